//! Cuts the elements of many tensors into segments, which all cores work on.

use std::sync::atomic::{AtomicU64, Ordering};

use byte_source::{ProgressReporter, on_all_cores};
use tensor::Tensor;

/// Length of a read in bytes: two of them stay in the cache of a core.
pub(crate) const READ_LEN: usize = 512 << 10;
/// Length of a segment in bytes, at least. A longer tensor has at most [`SEGMENTS_MAX`] segments.
const SEGMENT_LEN: u64 = 8 << 20;
/// Largest number of segments of a tensor, whose results are kept until the tensor is done.
const SEGMENTS_MAX: u64 = 1024;

/// Error of reading the elements of an item.
#[derive(Debug)]
pub(crate) struct UnreadItem {
    pub(crate) item: usize,
    /// True if the tensor of the second input cannot be read.
    pub(crate) is_second: bool,
    pub(crate) reason: byte_source::Error,
}

/// Segment of an item, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) item: usize,
    pub(crate) number: usize,
    /// Range of elements in C order.
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Items cut into segments. An item without elements has none.
pub(crate) struct Segments {
    /// Number of elements of each item, and of a segment of it.
    sizes: Vec<(u64, u64)>,
    /// Number of segments of the items up to each one, inclusive.
    ends: Vec<u64>,
    nbytes: u64,
}

impl Segments {
    /// Cuts items of the size and dtype of `tensors`.
    pub(crate) fn new<'t>(tensors: impl Iterator<Item = &'t Tensor>) -> Self {
        let mut segments = Self { sizes: Vec::new(), ends: Vec::new(), nbytes: 0 };
        let mut all = 0_u64;
        for tensor in tensors {
            let (numel, size) = (tensor.numel(), tensor.dtype().size().max(1));
            let least = SEGMENT_LEN.checked_div(size).unwrap_or(1);
            let len = least.max(numel.div_ceil(SEGMENTS_MAX)).max(1);
            all = all.saturating_add(numel.div_ceil(len));
            segments.sizes.push((numel, len));
            segments.ends.push(all);
            segments.nbytes = segments.nbytes.saturating_add(tensor.nbytes());
        }
        segments
    }

    pub(crate) fn count(&self, item: usize) -> usize {
        let (numel, len) = self.sizes.get(item).copied().unwrap_or((0, 1));
        usize::try_from(numel.div_ceil(len)).unwrap_or(0)
    }

    fn get(&self, number: u64) -> Option<Segment> {
        let item = self.ends.partition_point(|end| *end <= number);
        let before = item.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
        let (numel, len) = *self.sizes.get(item)?;
        let within = number.checked_sub(before)?;
        let start = within.saturating_mul(len);
        let end = start.saturating_add(len).min(numel);
        Some(Segment { item, number: usize::try_from(within).ok()?, start, end })
    }

    /// Calls `work` for each segment on all cores, in order, and reports their bytes.
    ///
    /// # Errors
    /// The first error of `work`, and a cancellation of the observer.
    pub(crate) fn run<S>(
        &self,
        progress: ProgressReporter<'_>,
        new_state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, Segment) -> Result<(), UnreadItem> + Sync,
    ) -> Result<(), UnreadItem> {
        let (total, done) = (self.ends.last().copied().unwrap_or(0), AtomicU64::new(0));
        let progress = progress.with_total(Some(self.nbytes));
        let per_segment = self.nbytes.checked_div(total).unwrap_or(0);
        on_all_cores(total, new_state, |state, number| {
            let Some(segment) = self.get(number) else { return Ok(()) };
            work(state, segment)?;
            let done = done.fetch_add(per_segment, Ordering::Relaxed).saturating_add(per_segment);
            progress.advance(done).map_err(|stopped| UnreadItem {
                item: segment.item,
                is_second: false,
                reason: stopped.into(),
            })
        })
    }
}

/// Buffers of a thread for the elements of two tensors.
pub(crate) struct Buffers(pub(crate) Vec<u8>, pub(crate) Vec<u8>);

impl Buffers {
    pub(crate) fn new() -> Self {
        Self(vec![0; READ_LEN], vec![0; READ_LEN])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tensor::{Dtype, Storage};

    use super::*;

    #[test]
    fn each_element_is_in_one_segment() {
        let storage = Storage::owned(vec![0; 4]);
        let tensor =
            |numel| Tensor::new(Dtype::Int32, vec![numel], vec![0], 0, storage.clone()).expect("inside");
        let sizes = [0, 1, 3 << 20, 0, 10_000_000_000];
        let tensors = sizes.map(tensor);
        let segments = Segments::new(tensors.iter());
        let seen: Mutex<Vec<Segment>> = Mutex::default();
        let work = |(): &mut (), segment: Segment| {
            seen.lock().expect("no panic").push(segment);
            Ok(())
        };
        segments.run(ProgressReporter::unobserved(), || (), work).expect("nothing is read");
        let mut seen = seen.into_inner().expect("no panic");
        seen.sort_by_key(|segment| (segment.item, segment.start));
        for (item, numel) in sizes.into_iter().enumerate() {
            let own: Vec<&Segment> = seen.iter().filter(|segment| segment.item == item).collect();
            assert_eq!((own.len(), own.len() <= 1024), (segments.count(item), true));
            let mut at = 0;
            for (number, segment) in own.iter().enumerate() {
                assert_eq!((segment.number, segment.start), (number, at));
                at = segment.end;
            }
            assert_eq!(at, numel);
        }
    }
}

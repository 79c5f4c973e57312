//! Compares tensors with the bytes of a model while its file is hashed, so that a carton is read once.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use byte_source::Source;
use tensor::{ElementReader, RecordChecks, Tensor, ViewId};

/// Length of a read in bytes; the buffer stays in the cache of a core.
const READ_LEN: usize = 256 << 10;

/// Length of the largest element in bytes, a complex128.
const ELEMENT_MAX: usize = 16;

/// Expected tensor, and the bytes of the model that should have its elements.
#[derive(Debug)]
pub(crate) struct StreamedPair {
    /// Views of the expected tensor and of the one in the model.
    views: (ViewId, ViewId),
    pub(crate) expected: Tensor,
    range: Range<u64>,
}

impl StreamedPair {
    /// Returns the pair, or `None` if the elements of `found` are not one range of `model`.
    pub(crate) fn new(model: &Arc<dyn Source>, expected: &Tensor, found: &Tensor) -> Option<Self> {
        let views = (expected.view_id(), found.view_id());
        let (expected, found) = in_memory_order(expected.without_repeats(), found.without_repeats())?;
        let region = found.storage().region().filter(|region| Arc::ptr_eq(region.source(), model))?;
        let place = |at: u64| region.range().start.checked_add(at);
        let range = place(found.span().start)?..place(found.span().end)?;
        Some(Self { views, expected, range })
    }
}

/// Orders the dimensions of both views by the strides of `found`. Returns `None` if its elements then are not contiguous,
/// or the shapes differ.
fn in_memory_order(mut expected: Tensor, mut found: Tensor) -> Option<(Tensor, Tensor)> {
    let rank = found.shape().len();
    for place in 0..rank {
        let largest = (place..rank).max_by_key(|dim| (found.stride().get(*dim), Reverse(*dim)))?;
        (expected, found) = (expected.transpose(place, largest)?, found.transpose(place, largest)?);
    }
    (expected.shape() == found.shape() && found.is_contiguous()).then_some((expected, found))
}

/// Comparison of the bytes of a model, which come in order.
pub(crate) struct ModelStream<'c> {
    /// Sorted by the start of their ranges.
    comparisons: Vec<RangeComparison<'c>>,
    /// Number of comparisons at the start of the list that are complete.
    complete: usize,
    /// Number of bytes that have come.
    taken: u64,
    buffer: Vec<u8>,
    checks: &'c RecordChecks,
}

struct RangeComparison<'c> {
    pair: StreamedPair,
    reader: Option<ElementReader<'c>>,
    result: Result<bool, byte_source::Error>,
}

impl<'c> ModelStream<'c> {
    /// Creates a comparison that adds the checksums of the expected tensors to `checks`.
    pub(crate) fn new(mut pairs: Vec<StreamedPair>, checks: &'c RecordChecks) -> Self {
        pairs.sort_by_key(|pair| (pair.range.start, pair.range.end));
        let comparisons =
            pairs.into_iter().map(|pair| RangeComparison { pair, reader: None, result: Ok(true) });
        Self {
            comparisons: comparisons.collect(),
            complete: 0,
            taken: 0,
            buffer: vec![0; READ_LEN + 2 * ELEMENT_MAX],
            checks,
        }
    }

    /// Compares the next bytes of the model.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let window = self.taken..self.taken.saturating_add(bytes.len() as u64);
        let (checks, buffer) = (self.checks, &mut self.buffer);
        for comparison in self.comparisons.iter_mut().skip(self.complete) {
            if comparison.pair.range.start >= window.end {
                break;
            }
            comparison.take(&window, bytes, checks, buffer);
        }
        self.taken = window.end;
        let open = self.comparisons.iter().skip(self.complete);
        self.complete =
            self.complete.saturating_add(open.take_while(|it| it.pair.range.end <= window.end).count());
    }

    /// Returns for each pair that was compared whether its elements are equal.
    pub(crate) fn finish(self) -> HashMap<(ViewId, ViewId), Result<bool, byte_source::Error>> {
        let taken = self.taken;
        let compared = self.comparisons.into_iter().filter(|it| it.pair.range.end <= taken);
        compared.map(|it| (it.pair.views, it.result)).collect()
    }
}

impl<'c> RangeComparison<'c> {
    /// Compares the part of the range that is in `window`, which has `bytes`, up to the first difference.
    fn take(&mut self, window: &Range<u64>, bytes: &[u8], checks: &'c RecordChecks, buffer: &mut [u8]) {
        let StreamedPair { expected, range, .. } = &self.pair;
        let reader = self.reader.get_or_insert_with(|| ElementReader::new(expected, checks));
        let mut at = range.start.max(window.start);
        let end = range.end.min(window.end);
        while at < end && matches!(self.result, Ok(true)) {
            let next = end.min(at.saturating_add(READ_LEN as u64));
            let in_window = bytes_of(bytes, at..next, window.start);
            let (ours, first) = elements_around(at..next, range.start, expected.dtype().size(), buffer);
            let read = reader.read(first.saturating_sub(range.start), ours);
            let ours = bytes_of(ours, at..next, first);
            self.result = read.map(|()| ours.is_some() && ours == in_window);
            at = next;
        }
        if range.end <= window.end {
            self.reader = None;
        }
    }
}

/// Returns the part of `bytes`, whose first byte is at `start`, that is at `range`.
fn bytes_of(bytes: &[u8], range: Range<u64>, start: u64) -> Option<&[u8]> {
    byte_source::slice_range(bytes, &(range.start.checked_sub(start)?..range.end.checked_sub(start)?))
}

/// Returns a part of `buffer` for the whole elements that `range` touches, and the position of the first one. Elements of
/// `size` bytes start at `start`: a window of a file may end inside one.
fn elements_around(range: Range<u64>, start: u64, size: u64, buffer: &mut [u8]) -> (&mut [u8], u64) {
    let inside = |at: u64| at.saturating_sub(start).checked_rem(size).unwrap_or(0);
    let first = range.start.saturating_sub(inside(range.start));
    let end = range.end.saturating_add(size.saturating_sub(1));
    let end = end.saturating_sub(inside(end));
    let len = usize::try_from(end.saturating_sub(first)).unwrap_or(usize::MAX);
    (buffer.get_mut(..len).unwrap_or_default(), first)
}

#[cfg(test)]
mod tests {
    use byte_source::BufferSource;
    use byte_source::Region;
    use tensor::{Dtype, Storage};

    use super::*;

    fn region(source: &Arc<dyn Source>, range: Range<u64>) -> Storage {
        Storage::stored(Region::new(source, range).expect("inside"), None)
    }

    fn tensor(shape: &[u64], stride: &[u64], storage: &Storage) -> Tensor {
        Tensor::new(Dtype::Int32, shape.to_vec(), stride.to_vec(), 0, storage.clone()).expect("inside")
    }

    #[test]
    fn windows_of_any_length_find_each_changed_byte() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let model: Arc<dyn Source> = Arc::new(BufferSource::new("model.pt", bytes.clone()));
        let checkpoint: Arc<dyn Source> = Arc::new(BufferSource::new("x.pth", bytes.clone()));
        // The second tensor is inside the first; the third is stored by columns.
        let places: [(Range<u64>, &[u64], &[u64]); 3] =
            [(8..408, &[10, 10], &[10, 1]), (100..120, &[5], &[1]), (500..980, &[12, 10], &[1, 12])];
        for changed in [None, Some(7), Some(8), Some(110), Some(407), Some(408), Some(500), Some(979)] {
            for step in [1, 3, 64, 1000] {
                let checks = RecordChecks::default();
                let mut pairs = Vec::new();
                for (range, shape, stride) in &places {
                    let [ours, theirs] = [&checkpoint, &model]
                        .map(|source| tensor(shape, stride, &region(source, range.clone())));
                    pairs.push(StreamedPair::new(&model, &ours, &theirs).expect("one range"));
                }
                let views: Vec<_> = pairs.iter().map(|pair| pair.views.clone()).collect();
                let mut stream = ModelStream::new(pairs, &checks);
                let mut hashed = bytes.clone();
                if let Some(changed) = changed {
                    hashed[changed] ^= 1;
                }
                hashed.chunks(step).for_each(|window| stream.take(window));
                let found = stream.finish();
                for ((range, ..), views) in places.iter().zip(views) {
                    let is_changed = changed.is_some_and(|changed| range.contains(&(changed as u64)));
                    assert_eq!(
                        *found[&views].as_ref().expect("in memory"),
                        !is_changed,
                        "{range:?} {changed:?} {step}"
                    );
                }
            }
        }
    }

    #[test]
    fn elements_that_did_not_come_are_not_compared() {
        let model: Arc<dyn Source> = Arc::new(BufferSource::new("model.pt", vec![0; 100]));
        let view = tensor(&[10], &[1], &region(&model, 0..40));
        let checks = RecordChecks::default();
        let pair = StreamedPair::new(&model, &view, &view).expect("one range");
        let mut stream = ModelStream::new(vec![pair], &checks);
        stream.take(&[0; 39]);
        assert!(stream.finish().is_empty());
        let apart = tensor(&[5], &[2], &region(&model, 0..40));
        assert!(StreamedPair::new(&model, &apart, &apart).is_none());
        assert!(
            StreamedPair::new(&model, &view, &tensor(&[10], &[1], &Storage::owned(vec![0; 40]))).is_none()
        );
    }
}

//! Compares pairs of tensors of equal dtype and shape byte by byte, on all cores.

use std::sync::atomic::{AtomicU64, Ordering};

use byte_source::ProgressReporter;
use tensor::{ElementReader, RecordChecks, Tensor};

use crate::compare::segments::{Buffers, READ_LEN, Segment, Segments, UnreadItem};

/// Value of an atomic position that is not set.
const NONE: u64 = u64::MAX;

/// Returns for each pair a position in C order, in bytes, up to which the elements are equal; `None` if all are. Checksums of
/// what is read are added to `checks`.
///
/// # Errors
/// When a tensor cannot be read, or the observer stops the work.
pub(crate) fn first_differences(
    pairs: &[(&Tensor, &Tensor)],
    checks: &RecordChecks,
    progress: ProgressReporter<'_>,
) -> Result<Vec<Option<u64>>, UnreadItem> {
    let segments = Segments::new(pairs.iter().map(|(a, _)| *a));
    let first: Vec<AtomicU64> = pairs.iter().map(|_| AtomicU64::new(NONE)).collect();
    segments.run(progress, Buffers::new, |buffers, segment| {
        let (Some((a, b)), Some(first)) = (pairs.get(segment.item), first.get(segment.item)) else {
            return Ok(());
        };
        let size = a.dtype().size();
        let (start, end) = (segment.start.saturating_mul(size), segment.end.saturating_mul(size));
        if first.load(Ordering::Relaxed) < start {
            return Ok(());
        }
        let mut readers = PairReader::new(a, b, checks, segment);
        let mut at = start;
        while at < end {
            let (ours, theirs) = readers.read(buffers, at, end)?;
            if ours != theirs {
                let equal = ours.iter().zip(theirs).take_while(|(ours, theirs)| ours == theirs).count();
                first.fetch_min(at.saturating_add(equal as u64), Ordering::Relaxed);
                break;
            }
            at = at.saturating_add(ours.len() as u64);
        }
        Ok(())
    })?;
    let found = first.into_iter().map(AtomicU64::into_inner);
    Ok(found.map(|at| (at != NONE).then_some(at)).collect())
}

/// Readers of the elements of two tensors of the same size.
pub(crate) struct PairReader<'c> {
    first: ElementReader<'c>,
    second: ElementReader<'c>,
    item: usize,
}

impl<'c> PairReader<'c> {
    pub(crate) fn new(a: &Tensor, b: &Tensor, checks: &'c RecordChecks, segment: Segment) -> Self {
        let (first, second) = (ElementReader::new(a, checks), ElementReader::new(b, checks));
        Self { first, second, item: segment.item }
    }

    /// Reads the bytes from `at` on, at most [`READ_LEN`] of them and none from `end` on.
    ///
    /// # Errors
    /// When a tensor cannot be read.
    pub(crate) fn read<'b>(
        &mut self,
        Buffers(ours, theirs): &'b mut Buffers,
        at: u64,
        end: u64,
    ) -> Result<(&'b [u8], &'b [u8]), UnreadItem> {
        let len = usize::try_from(end.saturating_sub(at)).unwrap_or(READ_LEN).min(READ_LEN);
        let ours = ours.get_mut(..len).unwrap_or_default();
        let theirs = theirs.get_mut(..len).unwrap_or_default();
        let item = self.item;
        let failed = |is_second| move |reason: byte_source::Error| UnreadItem { item, is_second, reason };
        self.first.read(at, ours).map_err(failed(false))?;
        self.second.read(at, theirs).map_err(failed(true))?;
        Ok((ours, theirs))
    }
}

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage};

    use super::*;

    #[test]
    fn the_first_different_byte_is_found_in_any_segment() {
        const LEN: usize = 20_000_000;
        let bytes: Vec<u8> = (0..LEN).map(|n| u8::try_from(n % 251).expect("small")).collect();
        let tensor = |bytes: Vec<u8>| {
            Tensor::new(Dtype::UInt8, vec![bytes.len() as u64], vec![1], 0, Storage::owned(bytes))
                .expect("inside")
        };
        let original = tensor(bytes.clone());
        for place in [0, 1, READ_LEN - 1, READ_LEN, (8 << 20) - 1, 8 << 20, LEN - 1] {
            let mut other = bytes.clone();
            other[place] ^= 0x80;
            other[LEN - 1] ^= 1;
            let other = tensor(other);
            let checks = RecordChecks::default();
            let pairs = [(&original, &original), (&original, &other)];
            let found = first_differences(&pairs, &checks, ProgressReporter::unobserved());
            assert_eq!(found.expect("in memory"), [None, Some(place as u64)]);
        }
    }
}

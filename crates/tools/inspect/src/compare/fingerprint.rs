//! Fingerprints by which equal contents are found under other names, shapes and orders of elements.
//!
//! A fingerprint adds up a hash of each element, so that segments are hashed on all cores, and a sum does not depend on the
//! order of the elements. The hashes have random keys, so no file can be made to collide.

use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use byte_source::ProgressReporter;
use foldhash::fast::RandomState;
use tensor::{Dtype, ElementReader, RecordChecks, Tensor};

use crate::compare::segments::{READ_LEN, Segments, UnreadItem};

/// Random keys of the hashes of one comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashKeys([u64; 3]);

impl HashKeys {
    pub(crate) fn random() -> Self {
        let state = RandomState::default();
        Self([0_u8, 1, 2].map(|number| state.hash_one(number) | 1))
    }

    fn mix(self, key: usize, number: u64) -> u64 {
        let key = self.0.get(key).copied().unwrap_or(1);
        let product = u128::from(number ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let folded = (product ^ (product >> 64)).to_le_bytes();
        let low = folded.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        (low ^ (low >> 29)).wrapping_mul(key)
    }

    /// Hashes a run of bytes, such as a row.
    pub(crate) fn hash_bytes(self, bytes: &[u8]) -> u64 {
        let mut hash = bytes.len() as u64;
        for number in numbers(bytes, 8) {
            hash = self.mix(0, hash.rotate_left(17) ^ number);
        }
        hash
    }
}

/// Fingerprint of the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Fingerprint {
    /// Equal for the same elements in any order.
    pub(crate) unordered: [u64; 2],
    /// Equal for the same elements in the same order.
    pub(crate) ordered: u64,
    /// True if all elements are the same.
    pub(crate) is_constant: bool,
}

/// Sums over a segment, with the smallest and the largest element as a number.
#[derive(Clone, Copy, Debug)]
struct ElementSums {
    unordered: [u64; 2],
    ordered: u64,
    range: (u64, u64),
}

impl ElementSums {
    const EMPTY: Self = Self { unordered: [0; 2], ordered: 0, range: (u64::MAX, 0) };

    fn append(&mut self, next: &Self) {
        for (sum, next) in self.unordered.iter_mut().zip(next.unordered) {
            *sum = sum.wrapping_add(next);
        }
        self.ordered = self.ordered.wrapping_add(next.ordered);
        self.range = (self.range.0.min(next.range.0), self.range.1.max(next.range.1));
    }

    /// Adds elements of `size` bytes, the first of which is element `at`.
    fn add(&mut self, bytes: &[u8], size: usize, at: u64, keys: HashKeys) {
        for (at, number) in (at..).zip(numbers(bytes, size)) {
            let hash = keys.mix(0, number);
            let sums = Self {
                unordered: [hash, keys.mix(1, number)],
                ordered: keys.mix(2, hash ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                range: (number, number),
            };
            self.append(&sums);
        }
    }
}

/// Iterates over elements of `size` bytes as numbers; a longer element is folded.
fn numbers(bytes: &[u8], size: usize) -> impl Iterator<Item = u64> {
    bytes.chunks(size.max(1)).map(|element| {
        element.chunks(8).fold(0_u64, |number, part| {
            let mut bytes = [0; 8];
            if let Some(start) = bytes.get_mut(..part.len()) {
                start.copy_from_slice(part);
            }
            number.rotate_left(23).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ u64::from_le_bytes(bytes)
        })
    })
}

/// Computes the fingerprints of tensors on all cores.
///
/// # Errors
/// When a tensor cannot be read, or the observer stops the work.
pub(crate) fn fingerprints(
    tensors: &[Tensor],
    keys: HashKeys,
    checks: &RecordChecks,
    progress: ProgressReporter<'_>,
) -> Result<Vec<Fingerprint>, UnreadItem> {
    let segments = Segments::new(tensors.iter());
    let sums: Vec<Mutex<ElementSums>> = tensors.iter().map(|_| Mutex::new(ElementSums::EMPTY)).collect();
    segments.run(
        progress,
        || vec![0; READ_LEN],
        |buffer, segment| {
            let Some(tensor) = tensors.get(segment.item) else { return Ok(()) };
            let size = tensor.dtype().size().max(1);
            let step = (READ_LEN as u64).checked_div(size).unwrap_or(1).max(1);
            let mut reader = ElementReader::new(tensor, checks);
            let (mut total, mut at) = (ElementSums::EMPTY, segment.start);
            while at < segment.end {
                let elements = step.min(segment.end.saturating_sub(at));
                let len = usize::try_from(elements.saturating_mul(size)).unwrap_or(READ_LEN).min(READ_LEN);
                let bytes = buffer.get_mut(..len).unwrap_or_default();
                let item = segment.item;
                let read = reader.read(at.saturating_mul(size), bytes);
                read.map_err(|reason| UnreadItem { item, is_second: false, reason })?;
                total.add(bytes, usize::try_from(size).unwrap_or(1), at, keys);
                at = at.saturating_add(elements);
            }
            // The sums do not depend on the order of the segments.
            if let Some(sums) = sums.get(segment.item) {
                sums.lock().unwrap_or_else(PoisonError::into_inner).append(&total);
            }
            Ok(())
        },
    )?;
    let found = sums.into_iter().map(|sums| {
        let ElementSums { unordered, ordered, range } =
            sums.into_inner().unwrap_or_else(PoisonError::into_inner);
        Fingerprint { unordered, ordered, is_constant: range.0 >= range.1 }
    });
    Ok(found.collect())
}

/// Tensors of which only those with equal keys can have the same elements.
pub(crate) type SizeKey = (Dtype, u64);

pub(crate) fn size_key(tensor: &Tensor) -> SizeKey {
    (tensor.dtype(), tensor.numel())
}

#[cfg(test)]
mod tests {
    use tensor::Storage;

    use super::*;

    fn tensor(shape: &[u64], stride: &[u64], values: &[i16]) -> Tensor {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor::new(Dtype::Int16, shape.to_vec(), stride.to_vec(), 0, Storage::owned(bytes)).expect("inside")
    }

    #[test]
    fn order_and_elements_are_told_apart() {
        let tensors = [
            tensor(&[2, 3], &[3, 1], &[1, 2, 3, 4, 5, 6]),
            tensor(&[6], &[1], &[1, 2, 3, 4, 5, 6]),
            tensor(&[3, 2], &[1, 3], &[1, 2, 3, 4, 5, 6]),
            tensor(&[6], &[1], &[1, 2, 3, 4, 5, 5]),
            tensor(&[6], &[0], &[7]),
        ];
        let checks = RecordChecks::default();
        let found = fingerprints(&tensors, HashKeys::random(), &checks, ProgressReporter::unobserved());
        let found = found.expect("in memory");
        assert_eq!(found[0], found[1]);
        assert_eq!(found[0].unordered, found[2].unordered);
        assert_ne!(found[0].ordered, found[2].ordered);
        assert_ne!(found[0].unordered, found[3].unordered);
        assert_eq!(
            found.iter().map(|found| found.is_constant).collect::<Vec<_>>(),
            [false, false, false, false, true]
        );
    }
}

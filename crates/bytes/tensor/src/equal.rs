//! Comparison of the elements of two tensors.

use byte_source::{Observer, WINDOW, Window};

use crate::Tensor;

impl Tensor {
    /// Returns true if `other` has the same shape, dtype and elements, compared bit by bit in windows.
    ///
    /// # Errors
    /// When one of the tensors cannot be read, or `observer` stops the work.
    pub fn has_elements_of(
        &self,
        other: &Tensor,
        observer: &dyn Observer,
    ) -> Result<bool, byte_source::Error> {
        if self.shape() != other.shape() || self.dtype() != other.dtype() {
            return Ok(false);
        }
        let (ours, theirs) = (self.gathered(), other.gathered());
        let (mut our_blocks, mut their_blocks) = (ours.blocks(), theirs.blocks());
        let mut start = 0;
        while start < self.nbytes() {
            observer.check()?;
            let left = self.nbytes().saturating_sub(start);
            let len = usize::try_from(left).unwrap_or(WINDOW).min(WINDOW);
            let our = Window::filled(len, |bytes| ours.read(start, bytes, &mut our_blocks))?;
            let their = Window::filled(len, |bytes| theirs.read(start, bytes, &mut their_blocks))?;
            if *our != *their {
                return Ok(false);
            }
            start = start.saturating_add(len as u64);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, Storage};

    #[test]
    fn elements_are_compared_bit_by_bit() {
        let part = |stride: [u64; 2]| {
            let storage = Storage::owned((0..4_i16).flat_map(i16::to_le_bytes).collect());
            Tensor::new(Dtype::Int16, vec![2, 2], stride.to_vec(), 0, storage).expect("inside its storage")
        };
        assert!(part([2, 1]).has_elements_of(&part([2, 1]), &()).expect("memory can be read"));
        assert!(!part([2, 1]).has_elements_of(&part([1, 2]), &()).expect("memory can be read"));
    }
}

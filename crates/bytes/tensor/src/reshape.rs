//! Reshaping of tensors, and reordering of the rows of each attention head.
//!
//! Facts: `torch.Tensor.reshape`, which returns a view if the elements are stored in C order and else a copy. This
//! crate makes the copy when the bytes are sent.

use std::num::NonZeroU64;

use crate::{Error, Tensor, contiguous_strides};

impl Tensor {
    /// Returns the elements in C order as a contiguous tensor of this shape. The result of a contiguous tensor shares
    /// its storage.
    ///
    /// # Errors
    /// When the shape does not have as many elements.
    pub fn reshaped(&self, shape: &[u64]) -> Result<Self, Error> {
        let numel = if shape.contains(&0) {
            Some(0)
        } else {
            shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))
        };
        if numel != Some(self.numel()) {
            return Err(Error::ElementCount { shape: self.shape().to_vec(), into: shape.to_vec() });
        }
        let (storage, offset) = if self.is_contiguous() {
            (self.storage().clone(), self.storage_offset())
        } else {
            // A tensor of one element is contiguous, so this one has a first dimension.
            (Self::concat(0, std::slice::from_ref(self))?.storage().clone(), 0)
        };
        Self::new(self.dtype(), shape.to_vec(), contiguous_strides(shape), offset, storage)
    }

    /// Views the first dimension as a grid of `groups` × `rows` × `columns`, and exchanges its rows and columns:
    /// element `(g, r, c)` becomes element `(g, c, r)`. `columns` follows from the size of the dimension. A second call
    /// with the number of columns as `rows` is the inverse.
    ///
    /// # Errors
    /// When `groups` × `rows` does not divide the first dimension.
    pub fn with_grid_transposed(&self, groups: u64, rows: NonZeroU64) -> Result<Self, Error> {
        let whole = |first: &u64| {
            let columns = first.checked_div(groups.checked_mul(rows.get())?)?;
            (columns.checked_mul(groups)?.checked_mul(rows.get())? == *first).then_some(columns)
        };
        let (Some(columns), Some(step)) = (self.shape().first().and_then(whole), self.stride().first())
        else {
            return Err(Error::IndivisibleGrid { shape: self.shape().to_vec(), groups, rows: rows.get() });
        };
        let overflow = || Error::Overflow { shape: self.shape().to_vec(), stride: self.stride().to_vec() };
        let next_row = step.checked_mul(columns).ok_or_else(overflow)?;
        let next_group = next_row.checked_mul(rows.get()).ok_or_else(overflow)?;
        let shape = [groups, columns, rows.get()].into_iter().chain(self.shape().iter().skip(1).copied());
        let stride = [next_group, *step, next_row].into_iter().chain(self.stride().iter().skip(1).copied());
        let (offset, storage) = (self.storage_offset(), self.storage().clone());
        let grid = Self::new(self.dtype(), shape.collect(), stride.collect(), offset, storage)?;
        grid.reshaped(self.shape())
    }
}

#[cfg(test)]
mod tests {
    use byte_source::Blob;

    use super::*;
    use crate::{Dtype, Storage};

    fn bytes(tensor: &Tensor) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        tensor.gathered().write_to(&mut out).expect("memory can be read");
        out
    }

    fn view(shape: &[u64], stride: &[u64], offset: u64) -> Tensor {
        let storage = Storage::owned((0..48).collect());
        Tensor::new(Dtype::UInt8, shape.to_vec(), stride.to_vec(), offset, storage).expect("inside")
    }

    fn rows(n: u64) -> NonZeroU64 {
        NonZeroU64::new(n).expect("above 0")
    }

    #[test]
    fn a_contiguous_tensor_stays_a_view() {
        let tensor = view(&[2, 3, 4], &[12, 4, 1], 5);
        let reshaped = tensor.reshaped(&[6, 4]).expect("24 elements");
        assert_eq!(reshaped.storage().id(), tensor.storage().id());
        let dims = (reshaped.storage_offset(), reshaped.shape(), reshaped.stride());
        assert_eq!(dims, (5, [6, 4].as_slice(), [4, 1].as_slice()));
        let scalar = view(&[1, 1], &[9, 9], 47).reshaped(&[]).expect("one element");
        assert_eq!((scalar.shape(), bytes(&scalar)), ([].as_slice(), vec![47]));
        let empty = view(&[3, 0], &[1, 1], 0).reshaped(&[0, u64::MAX]).expect("no elements");
        assert_eq!(bytes(&empty), []);
    }

    #[test]
    fn other_views_are_gathered_in_c_order() {
        let tensor = view(&[4, 3], &[1, 4], 0);
        let reshaped = tensor.reshaped(&[2, 6]).expect("12 elements");
        assert!(reshaped.is_contiguous() && reshaped.storage().is_computed());
        assert_eq!(bytes(&reshaped), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
        let repeated = view(&[2, 2], &[0, 1], 7).reshaped(&[4]).expect("4 elements");
        assert_eq!(bytes(&repeated), [7, 8, 7, 8]);
    }

    #[test]
    fn shapes_of_other_sizes_are_refused() {
        let error = |shape: &[u64]| view(&[2, 3], &[3, 1], 0).reshaped(shape).expect_err("not 6").to_string();
        assert_eq!(error(&[4]), "the elements of shape [2, 3] do not fill shape [4]");
        assert_eq!(error(&[0]), "the elements of shape [2, 3] do not fill shape [0]");
        assert!(error(&[u64::MAX, u64::MAX]).contains("do not fill"));
    }

    #[test]
    fn rows_and_columns_of_a_grid_change_places() {
        // Two heads of six rows, each of one element: three pairs become two halves.
        let tensor = view(&[12, 1], &[1, 1], 0);
        let halves = tensor.with_grid_transposed(2, rows(3)).expect("2 × 3 × 2");
        assert_eq!(bytes(&halves), [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
        let pairs = halves.with_grid_transposed(2, rows(2)).expect("2 × 2 × 3");
        assert_eq!(bytes(&pairs), bytes(&tensor));
        // With one row, nothing changes, and the storage is shared.
        let same = tensor.with_grid_transposed(6, rows(1)).expect("6 × 1 × 2");
        assert_eq!(same.view_id(), tensor.view_id());
        let transposed = view(&[4, 3], &[1, 4], 0).with_grid_transposed(1, rows(2)).expect("1 × 2 × 2");
        assert_eq!(bytes(&transposed), [0, 4, 8, 2, 6, 10, 1, 5, 9, 3, 7, 11]);
    }

    #[test]
    fn grids_that_do_not_fit_are_refused() {
        let error = |shape: &[u64], groups, n| {
            let strides = contiguous_strides(shape);
            view(shape, &strides, 0)
                .with_grid_transposed(groups, rows(n))
                .expect_err("no such grid")
                .to_string()
        };
        assert_eq!(error(&[12], 5, 2), "the first dimension of shape [12] is not a multiple of 5 × 2");
        for (groups, n) in [(0, 1), (1, 5), (24, 1), (u64::MAX, u64::MAX)] {
            assert!(error(&[12], groups, n).contains("not a multiple"));
        }
        assert!(error(&[], 1, 1).contains("not a multiple"));
    }
}

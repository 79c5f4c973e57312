//! Builders of tensors in memory.

use tensor::{Dtype, Storage, Tensor, contiguous_strides};

/// Returns a contiguous tensor whose elements are these bytes.
///
/// # Panics
///
/// Panics if there are fewer bytes than the elements need.
pub fn tensor(dtype: Dtype, shape: &[u64], bytes: Vec<u8>) -> Tensor {
    let (stride, storage) = (contiguous_strides(shape), Storage::owned(bytes));
    Tensor::new(dtype, shape.to_vec(), stride, 0, storage).expect("the bytes are its elements")
}

/// Returns a contiguous tensor of zeros.
pub fn zeros(dtype: Dtype, shape: &[u64]) -> Tensor {
    let len = shape.iter().product::<u64>().saturating_mul(dtype.size());
    tensor(dtype, shape, vec![0; usize::try_from(len).expect("tests have small tensors")])
}

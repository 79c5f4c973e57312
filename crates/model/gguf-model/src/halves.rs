//! Halves of stacked matrices: gates, and the matrices that are multiplied with them.

use tensor::Tensor;

/// Returns every second row of each matrix, or the rows of its first or second half.
pub(crate) fn half(tensor: &Tensor, part: u64, is_interleaved: bool) -> Result<Tensor, tensor::Error> {
    let (mut shape, mut stride) = (tensor.shape().to_vec(), tensor.stride().to_vec());
    let mut offset = tensor.storage_offset();
    if let (Some(rows), Some(step)) = (shape.get_mut(1), stride.get_mut(1)) {
        *rows /= 2;
        let first = if is_interleaved { part } else { part.saturating_mul(*rows) };
        offset = offset.saturating_add(first.saturating_mul(*step));
        *step = step.saturating_mul(if is_interleaved { 2 } else { 1 });
    }
    Tensor::new(tensor.dtype(), shape, stride, offset, tensor.storage().clone())
}

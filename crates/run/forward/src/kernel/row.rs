//! Reads the elements of a row one by one, for code that needs them without a product.

use kernels::{from_bf16, from_f16};
use tensor::Dtype;

use super::Matrix;

impl Matrix {
    /// Passes the elements of row `number` to `take`. Does nothing if `number` is out of range.
    pub(crate) fn for_each_in_row(&self, number: usize, mut take: impl FnMut(f64)) {
        if number >= self.rows() || self.is_column_major() {
            return;
        }
        let bytes = self.line(number);
        let halves = bytes.as_chunks().0.iter().map(|half| u16::from_le_bytes(*half));
        match self.dtype() {
            Dtype::Float64 => bytes.as_chunks().0.iter().for_each(|e| take(f64::from_le_bytes(*e))),
            Dtype::Float32 => bytes.as_chunks().0.iter().for_each(|e| take(f32::from_le_bytes(*e).into())),
            Dtype::BFloat16 => halves.for_each(|bits| take(from_bf16(bits).into())),
            Dtype::Float16 => halves.for_each(|bits| take(from_f16(bits).into())),
            // `new` refuses other dtypes.
            _ => {}
        }
    }
}

//! Reads the elements of a row one by one, for code that needs them without a product.

use tensor::Dtype;

use super::Matrix;
use super::simd::{from_bf16, from_f16};

impl Matrix {
    /// Passes the elements of row `number` to `take`. Does nothing if `number` is out of range.
    pub(crate) fn for_each_in_row(&self, number: usize, mut take: impl FnMut(f64)) {
        if number >= self.rows() || self.is_column_major() {
            return;
        }
        let bytes = self.line(number);
        match self.dtype() {
            Dtype::Float64 => bytes.as_chunks().0.iter().for_each(|e| take(f64::from_le_bytes(*e))),
            Dtype::Float32 => bytes.as_chunks().0.iter().for_each(|e| take(f32::from_le_bytes(*e).into())),
            Dtype::BFloat16 => bytes.as_chunks().0.iter().for_each(|e| take(from_bf16(*e).into())),
            Dtype::Float16 => bytes.as_chunks().0.iter().for_each(|e| take(from_f16(*e).into())),
            // `new` refuses other dtypes.
            _ => {}
        }
    }
}

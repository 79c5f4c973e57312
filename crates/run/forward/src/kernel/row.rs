//! Reads the elements of a row one by one, for code that needs them without a product.

use kernels::{decode_q8_block, from_bf16, from_f16};
use tensor::Dtype;

use super::matrix::{Encoding, Matrix};

impl Matrix {
    /// Passes the elements of row `number` to `take`. Does nothing if `number` is out of range.
    pub(crate) fn for_each_in_row(&self, number: usize, mut take: impl FnMut(f64)) {
        if number >= self.rows() || self.is_column_major() {
            return;
        }
        let bytes = self.line(number);
        let halves = bytes.as_chunks().0.iter().map(|half| u16::from_le_bytes(*half));
        let dtype = match self.encoding() {
            Encoding::Dtype(dtype) => dtype,
            Encoding::Q8_0 => {
                let blocks = bytes.as_chunks::<34>().0.iter();
                return blocks.flat_map(decode_q8_block).for_each(|number| take(number.into()));
            }
        };
        match dtype {
            Dtype::Float64 => bytes.as_chunks().0.iter().for_each(|e| take(f64::from_le_bytes(*e))),
            Dtype::Float32 => bytes.as_chunks().0.iter().for_each(|e| take(f32::from_le_bytes(*e).into())),
            Dtype::BFloat16 => halves.for_each(|bits| take(from_bf16(bits).into())),
            Dtype::Float16 => halves.for_each(|bits| take(from_f16(bits).into())),
            // `new` refuses other dtypes.
            _ => {}
        }
    }
}

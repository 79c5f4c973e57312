//! The tensors with the frequencies of positions, which checkpoints may have although every forward computes them.
//!
//! Facts: `precompute_freqs_cis` in Meta's `llama-models` 0.3.0, which computes in float32:
//! `1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))`. PyTorch's power of float32 may differ from
//! the exact one in the last place.

use std::io;

use half::{bf16, f16};
use mapped::{Blob, Sink, Window};
use tensor::{Dtype, Storage, Tensor};

use crate::{Error, Result};

/// How far a frequency may be from the computed one, in units of the last place of float32: the power and its inverse
/// are both rounded, and so are those that they are compared with.
const LAST_PLACES: f64 = 4.0;

/// The frequencies of positions in heads of this size, unscaled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frequencies {
    pub(crate) theta: f64,
    /// Even.
    pub(crate) head_dim: u64,
}

impl Frequencies {
    /// One of them, as float32.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "PyTorch computes in float32 too; numbers that float32 lacks are larger than any head"
    )]
    fn at(self, pair: u64) -> f32 {
        let exponent = pair.saturating_mul(2) as f32 / self.head_dim as f32;
        1.0 / f64::from(self.theta as f32).powf(exponent.into()) as f32
    }

    /// One of them in this dtype, as little-endian bytes; none if the dtype is not a floating-point number.
    fn bytes(self, pair: u64, dtype: Dtype) -> Vec<u8> {
        let number = self.at(pair);
        match dtype {
            Dtype::Float64 => f64::from(number).to_le_bytes().to_vec(),
            Dtype::Float32 => number.to_le_bytes().to_vec(),
            Dtype::Float16 => f16::from_f32(number).to_le_bytes().to_vec(),
            Dtype::BFloat16 => bf16::from_f32(number).to_le_bytes().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Compares a tensor with them. Returns whether they are equal bit for bit; they may differ in the last place.
    ///
    /// # Errors
    /// When one of them is another number, or the tensor cannot be read.
    pub(crate) fn compare(self, name: &str, tensor: &Tensor) -> Result<bool> {
        let mut comparison =
            Comparison { frequencies: self, dtype: tensor.dtype(), next: 0, exact: true, wrong: None };
        let read = tensor.gathered().write_to(&mut comparison);
        if let Some((pair, found)) = comparison.wrong {
            let (tensor, expected, theta) = (name.to_owned(), self.at(pair), self.theta);
            return Err(Error::Frequency { tensor, pair, found, expected, theta });
        }
        read.map_err(|reason| Error::Read { tensor: name.to_owned(), reason })?;
        Ok(comparison.exact)
    }

    /// How many there are.
    pub(crate) fn count(self) -> u64 {
        self.head_dim.checked_div(2).unwrap_or(0)
    }

    /// All of them in memory as a tensor of a floating-point dtype.
    pub(crate) fn tensor(self, dtype: Dtype) -> Option<Tensor> {
        let bytes = (0..self.count()).flat_map(|pair| self.bytes(pair, dtype)).collect();
        Tensor::new(dtype, vec![self.count()], vec![1], 0, Storage::owned(bytes)).ok()
    }
}

/// Receives the bytes of a tensor and compares them with frequencies.
struct Comparison {
    frequencies: Frequencies,
    dtype: Dtype,
    /// The number of the next frequency.
    next: u64,
    exact: bool,
    /// The first one that differs, and what it is.
    wrong: Option<(u64, f32)>,
}

impl Sink for Comparison {
    fn write(&mut self, window: Window) -> io::Result<()> {
        let size = usize::try_from(self.dtype.size()).unwrap_or(1).max(1);
        for bytes in window.chunks(size) {
            let (pair, found) = (self.next, number(bytes, self.dtype));
            self.exact &= self.frequencies.bytes(pair, self.dtype) == bytes;
            if !is_close(found, self.frequencies.at(pair), self.dtype) {
                #[expect(clippy::cast_possible_truncation, reason = "it is shown next to a float32")]
                let found = found as f32;
                self.wrong = Some((pair, found));
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.next = self.next.saturating_add(1);
        }
        Ok(())
    }
}

/// A number from its little-endian bytes; not a number if the dtype is another one.
fn number(bytes: &[u8], dtype: Dtype) -> f64 {
    match (dtype, bytes) {
        (Dtype::Float64, bytes) => bytes.try_into().map_or(f64::NAN, f64::from_le_bytes),
        (Dtype::Float32, bytes) => {
            bytes.try_into().map_or(f64::NAN, |bytes| f32::from_le_bytes(bytes).into())
        }
        (Dtype::Float16, &[low, high]) => f16::from_le_bytes([low, high]).into(),
        (Dtype::BFloat16, &[low, high]) => bf16::from_le_bytes([low, high]).into(),
        _ => f64::NAN,
    }
}

/// Whether `found` is `expected`, rounded to `dtype`, up to the last place. False for what is not a number.
fn is_close(found: f64, expected: f32, dtype: Dtype) -> bool {
    let expected = f64::from(expected);
    // The distance of neighbouring numbers: relative to large ones, the same for all that are small.
    let (relative, least) = match dtype {
        Dtype::BFloat16 => (bf16::EPSILON.into(), f64::from(bf16::MIN_POSITIVE_SUBNORMAL)),
        Dtype::Float16 => (f16::EPSILON.into(), f64::from(f16::MIN_POSITIVE_SUBNORMAL)),
        _ => (LAST_PLACES * f64::from(f32::EPSILON), f64::from(f32::MIN_POSITIVE)),
    };
    (found - expected).abs() <= f64::max(relative * expected, least)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Frequencies = Frequencies { theta: 10_000.0, head_dim: 8 };

    fn tensor(numbers: &[f32]) -> Tensor {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let shape = vec![numbers.len() as u64];
        Tensor::new(Dtype::Float32, shape, vec![1], 0, Storage::owned(bytes)).expect("inside")
    }

    #[test]
    fn frequencies_are_those_of_metas_code() {
        // 1.0 / (10000.0 ** (torch.arange(0, 8, 2)[:4].float() / 8))
        let expected = [1.0, 0.1, 0.01, 0.001].map(f32::to_bits);
        assert_eq!([0, 1, 2, 3].map(|pair| SMALL.at(pair).to_bits()), expected);
        for dtype in [Dtype::Float64, Dtype::Float32, Dtype::Float16, Dtype::BFloat16] {
            let made = SMALL.tensor(dtype).expect("a small head");
            assert_eq!((made.shape(), made.dtype()), ([4].as_slice(), dtype));
            assert!(SMALL.compare("rope.freqs", &made).expect("they are equal"));
        }
    }

    #[test]
    fn the_last_place_may_differ() {
        let near = tensor(&[1.0, 0.1_f32.next_up(), 0.01_f32.next_down(), 0.001]);
        assert!(!SMALL.compare("rope.freqs", &near).expect("they are near"));
        let half = SMALL.tensor(Dtype::Float16).expect("a small head");
        assert!(SMALL.compare("rope.freqs", &half).expect("they are equal"));
    }

    #[test]
    fn other_numbers_are_refused() {
        let error =
            |numbers: &[f32]| SMALL.compare("rope.freqs", &tensor(numbers)).expect_err("wrong").to_string();
        assert_eq!(
            error(&[1.0, 0.2, 0.01, 0.001]),
            "tensor `rope.freqs`: element 1 is 0.2, expected 0.1 from a RoPE base (theta) of 10000"
        );
        for wrong in [f32::NAN, f32::INFINITY, -0.1, 0.0] {
            assert!(error(&[1.0, wrong]).contains("element 1 is"));
        }
    }
}

//! Rotary frequency tensors, which checkpoints may hold although every forward computes them.
//!
//! Facts: `precompute_freqs_cis` in Meta's `llama-models` 0.3.0, which computes in float32: `1.0 / (theta **
//! (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))`. PyTorch's float32 power may differ from the exact one in the
//! last place.

use std::io;

use byte_source::{Blob, Sink, Window};
use tensor::{Dtype, Storage, Tensor};

use crate::{Problem, Result};

#[derive(Clone, Copy, Debug)]
pub(crate) struct RotaryFrequencies {
    pub(crate) theta: f64,
    /// Size of a head, an even number.
    pub(crate) head_dim: u64,
}

impl RotaryFrequencies {
    pub(crate) fn count(self) -> u64 {
        self.head_dim.checked_div(2).unwrap_or(0)
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "PyTorch computes in float32 too; numbers that float32 lacks are larger than any head"
    )]
    fn frequency_of(self, pair: u64) -> f32 {
        let exponent = pair.saturating_mul(2) as f32 / self.head_dim as f32;
        1.0 / libm::pow(f64::from(self.theta as f32), exponent.into()) as f32
    }

    /// Returns all frequencies as a tensor in memory, of a floating-point dtype: `[head_dim / 2]`.
    pub(crate) fn tensor(self, dtype: Dtype) -> Option<Tensor> {
        let bytes = (0..self.count()).flat_map(|pair| self.frequency_of(pair).to_le_bytes()).collect();
        let tensor =
            Tensor::new(Dtype::Float32, vec![self.count()], vec![1], 0, Storage::owned(bytes)).ok()?;
        tensor.cast(dtype)
    }

    /// Compares a tensor with the frequencies, up to the last place. Returns true if they are equal bit for bit.
    ///
    /// # Errors
    /// Returns an error if an element differs from its frequency by more than the last place, or if the tensor cannot be
    /// read.
    pub(crate) fn compare(self, name: &str, tensor: &Tensor) -> Result<bool> {
        let cannot_read = |reason: byte_source::Error| reason.in_tensor(name);
        let Some(numbers) = tensor.cast(Dtype::Float64) else {
            return Err(Problem::NotFloat { tensor: name.to_owned(), dtype: tensor.dtype() }.into());
        };
        let mut comparison =
            FrequencyComparison { frequencies: self, dtype: tensor.dtype(), next: 0, first_mismatch: None };
        let read = numbers.gathered().write_to(&mut comparison);
        if let Some((pair, found)) = comparison.first_mismatch {
            let (tensor, expected, theta) = (name.to_owned(), self.frequency_of(pair), self.theta);
            return Err(Problem::Frequency { tensor, pair, found, expected, theta }.into());
        }
        read.map_err(cannot_read)?;
        let made = self.tensor(tensor.dtype());
        let equals = |made: Tensor| made.has_elements_of(tensor, &()).map_err(cannot_read);
        made.map_or(Ok(false), equals)
    }
}

/// Sink that compares float64 values with the frequencies.
struct FrequencyComparison {
    frequencies: RotaryFrequencies,
    /// Dtype of the values before they were cast to float64.
    dtype: Dtype,
    next: u64,
    /// Index and value of the first element that differs.
    first_mismatch: Option<(u64, f32)>,
}

impl Sink for FrequencyComparison {
    fn write(&mut self, window: Window) -> byte_source::Result<()> {
        for bytes in window.chunks(size_of::<f64>()) {
            let found = bytes.try_into().map_or(f64::NAN, f64::from_le_bytes);
            let pair = self.next;
            if !is_close(found, self.frequencies.frequency_of(pair).into(), self.dtype) {
                #[expect(clippy::cast_possible_truncation, reason = "it is shown next to a float32")]
                let found = found as f32;
                self.first_mismatch = Some((pair, found));
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.next = self.next.saturating_add(1);
        }
        Ok(())
    }
}

/// Returns true if `found` is `expected`, rounded to `dtype`, up to the last place. False if `found` is not finite.
fn is_close(found: f64, expected: f64, dtype: Dtype) -> bool {
    // The tolerance is the spacing of the dtype: relative for normal values, constant for subnormal ones.
    let (relative, least) = match dtype {
        Dtype::BFloat16 => (2_f64.powi(-7), 2_f64.powi(-133)),
        Dtype::Float16 => (2_f64.powi(-10), 2_f64.powi(-24)),
        // Both the power and its inverse are rounded to float32, here and in the code that wrote the tensor.
        _ => (2_f64.powi(-21), 2_f64.powi(-126)),
    };
    (found - expected).abs() <= f64::max(relative * expected, least)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: RotaryFrequencies = RotaryFrequencies { theta: 10_000.0, head_dim: 8 };

    fn tensor(numbers: &[f32]) -> Tensor {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let shape = vec![numbers.len() as u64];
        Tensor::new(Dtype::Float32, shape, vec![1], 0, Storage::owned(bytes)).expect("inside")
    }

    #[test]
    fn frequencies_are_those_of_metas_code() {
        // 1.0 / (10000.0 ** (torch.arange(0, 8, 2)[:4].float() / 8))
        let expected = [1.0, 0.1, 0.01, 0.001].map(f32::to_bits);
        assert_eq!([0, 1, 2, 3].map(|pair| SMALL.frequency_of(pair).to_bits()), expected);
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
    fn at_most_one_place_may_differ() {
        for (dtype, expected, place) in [
            (Dtype::Float16, 0.5, 2_f64.powi(-11)),
            (Dtype::Float16, 2_f64.powi(-16), 2_f64.powi(-24)),
            (Dtype::BFloat16, 0.5, 2_f64.powi(-8)),
            (Dtype::BFloat16, 2_f64.powi(-127), 2_f64.powi(-133)),
            (Dtype::Float32, 0.5, 2_f64.powi(-22)),
            (Dtype::Float32, 2_f64.powi(-126), 2_f64.powi(-126)),
        ] {
            for sign in [1.0, -1.0] {
                let is_close = |places: f64| is_close(expected + sign * places * place, expected, dtype);
                assert!(is_close(1.0) && !is_close(1.25), "{dtype} {expected}");
            }
            assert!(!is_close(f64::NAN, expected, dtype));
        }
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

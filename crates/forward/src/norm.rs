//! The norms before the parts of a layer, and before the output.
//!
//! Facts: `norm` of the TorchScript text, which follows Meta's `llama-models` 0.3.0.

use crate::number::Real;
use crate::vector;

/// A norm over the last dimension.
#[derive(Clone, Debug)]
pub(crate) struct Norm<T> {
    /// The weight: [dim].
    pub(crate) weight: Vec<T>,
    pub(crate) eps: T,
}

impl<T: Real> Norm<T> {
    /// The norm of each row of `x` into the same row of `y`.
    #[expect(clippy::arithmetic_side_effects, reason = "floating-point numbers do not overflow")]
    pub(crate) fn apply(&self, x: &[T], y: &mut [T]) {
        let dim = self.weight.len().max(1);
        #[expect(clippy::cast_precision_loss, reason = "the width of a model is small")]
        let count = T::from_f64(dim as f64);
        for (x, y) in x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)) {
            let mean = vector::sum_of_squares(x) / count;
            let scale = T::ONE / (mean + self.eps).sqrt();
            for ((y, x), weight) in y.iter_mut().zip(x).zip(&self.weight) {
                *y = *x * scale * *weight;
            }
        }
    }
}

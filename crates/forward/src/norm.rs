//! The norms before the parts of a layer, and before the output.
//!
//! Facts: `norm` of the TorchScript text, which follows Meta's `llama-models` 0.3.0.

use crate::kernel::Pool;
use crate::number::Real;
use crate::sharing::share_rows;
use crate::vector::Normalize;

/// A norm over the last dimension.
#[derive(Clone, Debug)]
pub(crate) struct Norm<T> {
    /// The weight: [dim].
    pub(crate) weight: Vec<T>,
    pub(crate) eps: T,
}

impl<T: Real> Norm<T> {
    /// The norm of each row of `x` into the same row of `y`.
    pub(crate) fn apply(&self, pool: &Pool, x: &[T], y: &mut [T]) {
        let dim = self.weight.len();
        share_rows(pool, y, dim, |row, y| {
            let start = row.saturating_mul(dim);
            if let Some(x) = x.get(start..start.saturating_add(dim)) {
                T::run(Normalize { x, weight: &self.weight, eps: self.eps, y });
            }
        });
    }
}

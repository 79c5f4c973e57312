//! Norms before and after the parts of a layer, of queries and keys, and before the output.
//!
//! Facts: [`NormKind`](decoder::NormKind) and [`HeadNormScope`](decoder::HeadNorm).

use crate::kernel::Pool;
use crate::number::Real;
use crate::sharing::share_rows;
use crate::vector::Normalize;

/// Norm over the last dimension, or over each part of it.
#[derive(Clone, Debug)]
pub(crate) struct Norm<T> {
    /// Weights of one part that all parts share, or of all parts, concatenated.
    pub(crate) weight: Vec<T>,
    pub(crate) bias: Option<Vec<T>>,
    pub(crate) eps: T,
    /// True if the mean is subtracted.
    pub(crate) is_centred: bool,
    /// Number of elements that are normalised together.
    pub(crate) part: usize,
}

impl<T: Real> Norm<T> {
    /// Replaces each row of `width` numbers by its norm, part by part.
    pub(crate) fn apply(&self, pool: &Pool, width: usize, rows: &mut [T]) {
        share_rows(pool, rows, width, |_, row| self.row(row));
    }

    /// Writes the norm of each row of `x` into the same row of `y`; a row is one part.
    pub(crate) fn apply_into(&self, pool: &Pool, x: &[T], y: &mut [T]) {
        share_rows(pool, y, self.part, |row, y| {
            let start = row * self.part;
            if let Some(x) = x.get(start..start + self.part) {
                y.copy_from_slice(x);
                self.row(y);
            }
        });
    }

    /// Replaces a row by its norm, part by part.
    pub(crate) fn row(&self, row: &mut [T]) {
        let weights = self.weight.chunks_exact(self.part).cycle();
        for (row, weight) in row.chunks_exact_mut(self.part).zip(weights) {
            let bias = self.bias.as_deref();
            T::run(Normalize { row, weight, bias, eps: self.eps, is_centred: self.is_centred });
        }
    }
}

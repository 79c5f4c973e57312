//! Products of low rank that are added to rows of a weight, and their norms.

use std::ops::Range;

use crate::gram::add_gram;
use crate::matrix::Matrix;

/// Numbers of a factor that are in memory together while its norm is computed.
const CHUNK: u64 = 1 << 20;

/// Product of low rank that is added to some rows of a block.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) rows: Range<u64>,
    /// One row for each of `rows`.
    pub(crate) left: Matrix,
    /// One column for each column of the block.
    pub(crate) right: Matrix,
    pub(crate) scale: f64,
}

impl Term {
    /// Returns the square of the Frobenius norm of the product, which is the sum of the elementwise product of `LᵀL` and `RRᵀ`.
    ///
    /// # Errors
    /// When a factor cannot be read.
    pub(crate) fn squared_norm(&self) -> byte_source::Result<f64> {
        let transposed = self.right.transposed().ok_or(std::io::ErrorKind::InvalidData)?;
        let (left, right) = rayon::join(|| gram(&self.left), || gram(&transposed));
        let squared: f64 = left?.iter().zip(right?).map(|(left, right)| left * right).sum();
        // Rounding can make the sum of no change negative. A comparison with NaN is false, so that it stays.
        let squared = if squared < 0.0 { 0.0 } else { squared };
        Ok(squared * self.scale * self.scale)
    }
}

/// Returns the products of all pairs of columns of a matrix.
fn gram(matrix: &Matrix) -> byte_source::Result<Vec<f64>> {
    let rank = usize::try_from(matrix.columns()).map_err(|_| std::io::ErrorKind::InvalidData)?;
    let mut sums = vec![0.0_f64; rank.saturating_mul(rank)];
    let most = CHUNK.checked_div(matrix.columns()).unwrap_or(1).max(1);
    let mut at = 0;
    while at < matrix.rows() {
        let end = at.saturating_add(most).min(matrix.rows());
        let rows = matrix.rows_in(&(at..end)).ok_or(std::io::ErrorKind::InvalidData)?;
        add_gram(&rows.read()?, rank, &mut sums);
        at = end;
    }
    Ok(sums)
}

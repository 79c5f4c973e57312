//! Right factors of products, packed in panels of columns, with the norms of their columns.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "it parses nothing: sizes are those of numbers in memory"
)]

use crate::vectors::{DOUBLE_PANEL, PANEL};

/// Right factor of a product: `rank × columns` numbers in panels. The last panel is filled with zeros.
#[derive(Debug)]
pub(crate) struct Panels {
    rank: usize,
    /// Panels, each with a row for each step.
    rows: Vec<[f32; PANEL]>,
    /// For each panel, the largest norm of its columns, rounded up.
    norms: Vec<f32>,
}

impl Panels {
    pub(crate) fn pack(right: &[f32], rank: usize) -> Self {
        let columns = right.len().checked_div(rank).unwrap_or(0);
        let count = columns.div_ceil(PANEL);
        let mut rows = vec![[0.0_f32; PANEL]; count * rank];
        let mut squares = vec![[0.0_f64; PANEL]; count];
        for (step, right) in right.chunks_exact(columns.max(1)).take(rank).enumerate() {
            let packed = rows.iter_mut().skip(step).step_by(rank.max(1));
            for ((packed, squares), numbers) in packed.zip(&mut squares).zip(right.chunks(PANEL)) {
                for ((packed, square), number) in packed.iter_mut().zip(squares).zip(numbers) {
                    *packed = *number;
                    *square += f64::from(*number) * f64::from(*number);
                }
            }
        }
        let largest = |squares: &[f64; PANEL]| norm_above(squares.iter().copied().fold(0.0, nan_or_max));
        let norms = squares.iter().map(largest).collect();
        Self { rank, rows, norms }
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn panel(&self, number: usize) -> &[[f32; PANEL]] {
        let start = number * self.rank;
        self.rows.get(start..start + self.rank).unwrap_or_default()
    }

    /// Returns a number that is not below the norm of any column of a panel.
    pub(crate) fn norm(&self, number: usize) -> f32 {
        self.norms.get(number).copied().unwrap_or(f32::NAN)
    }

    /// Sets `half` to one of the two halves of a panel, as doubles.
    #[inline(always)]
    pub(crate) fn widen_half(&self, number: usize, second: bool, half: &mut Vec<[f64; DOUBLE_PANEL]>) {
        half.clear();
        half.extend(self.panel(number).iter().map(|row| {
            let mut wide = [0.0; DOUBLE_PANEL];
            let start = if second { DOUBLE_PANEL } else { 0 };
            for (wide, number) in wide.iter_mut().zip(row.iter().skip(start)) {
                *wide = f64::from(*number);
            }
            wide
        }));
    }
}

/// Returns the larger number, or NaN if one of both is NaN.
fn nan_or_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// Returns a float32 that is not below the square root of `square`, which may be a sum with rounding errors.
pub(crate) fn norm_above(square: f64) -> f32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the factor is larger than the error of the rounding"
    )]
    let norm = (square.sqrt() * 1.000_001) as f32;
    if square > 0.0 { norm.max(f32::MIN_POSITIVE) } else { norm }
}

//! Products of all pairs of columns of a matrix, in double precision.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "it parses nothing: sizes are those of numbers in memory"
)]

use kernels::{Simd, run_f64};

use crate::vectors::{DOUBLE_PANEL, InRegisters, Tiles, multiply_tile};

/// Rows whose copies stay in the first cache.
const ROWS_TOGETHER: usize = 64;

/// Adds `MᵀM` to `sums`, of a matrix with rows of `rank` numbers.
pub(crate) fn add_gram(rows: &[f32], rank: usize, sums: &mut [f64]) {
    if rank > 0 {
        run_f64(InRegisters(Gram { rows, rank, sums }));
    }
}

struct Gram<'g> {
    rows: &'g [f32],
    rank: usize,
    sums: &'g mut [f64],
}

impl Tiles<f64> for Gram<'_> {
    #[inline(always)]
    fn run<S: Simd<f64, N>, const N: usize, const ROWS: usize>(self, simd: S) {
        let Self { rows, rank, sums } = self;
        let mut tile = [[0.0; DOUBLE_PANEL]; ROWS];
        for rows in rows.chunks(rank * ROWS_TOGETHER) {
            let panels = columns_of::<DOUBLE_PANEL>(rows, rank);
            let groups = columns_of::<ROWS>(rows, rank);
            for (first, left) in (0..).step_by(ROWS).zip(&groups) {
                let bands = sums.chunks_mut(rank).skip(first).take(ROWS);
                let mut bands: Vec<&mut [f64]> = bands.collect();
                for (start, panel) in (0..).step_by(DOUBLE_PANEL).zip(&panels) {
                    multiply_tile(simd, left, panel, &mut tile);
                    for (band, products) in bands.iter_mut().zip(&tile) {
                        let sums = band.iter_mut().skip(start);
                        sums.zip(products).for_each(|(sum, product)| *sum += product);
                    }
                }
            }
        }
    }
}

/// Copies rows of `rank` numbers into bands of `COLUMNS` columns. The last band is filled with zeros.
#[inline(always)]
fn columns_of<const COLUMNS: usize>(rows: &[f32], rank: usize) -> Vec<Vec<[f64; COLUMNS]>> {
    let band = |start: usize| {
        let row = |row: &[f32]| {
            let row = row.get(start..).unwrap_or_default();
            if let Some(whole) = row.first_chunk::<COLUMNS>() {
                return whole.map(f64::from);
            }
            let mut wide = [0.0; COLUMNS];
            wide.iter_mut().zip(row).for_each(|(wide, number)| *wide = f64::from(*number));
            wide
        };
        rows.chunks_exact(rank).map(row).collect()
    };
    (0..rank).step_by(COLUMNS).map(band).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_definition() {
        for (count, rank) in [(1, 1), (200, 3), (70, 16), (65, 40)] {
            let number = |n: usize| f32::from(u8::try_from((n * 37 + 11) % 101).expect("small")) / 64.0 - 0.7;
            let rows: Vec<f32> = (0..count * rank).map(number).collect();
            let mut sums = vec![0.0; rank * rank];
            add_gram(&rows, rank, &mut sums);
            for first in 0..rank {
                for second in 0..rank {
                    let products =
                        rows.chunks_exact(rank).map(|row| f64::from(row[first]) * f64::from(row[second]));
                    let expected: f64 = products.sum();
                    assert!((sums[first * rank + second] - expected).abs() < 1e-12, "{first} {second}");
                }
            }
        }
    }
}

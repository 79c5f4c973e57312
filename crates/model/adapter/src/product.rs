//! Adds products of low rank to rows of a weight, in double precision.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "it parses nothing: sizes are those of numbers in memory"
)]

use std::ops::Range;

use kernels::{Simd, run_f64};

use crate::panels::Panels;
use crate::vectors::{DOUBLE_PANEL, InRegisters, PANEL, Tiles, multiply_tile, pack_rows};

/// Product of low rank: rows of the left factor, and all of the right one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors<'f> {
    /// `rows × rank` numbers in row-major order.
    pub(crate) left: &'f [f32],
    pub(crate) right: &'f Panels,
    pub(crate) scale: f64,
}

/// Adds `scale · left · right` to `sums`, which has numbers of `columns` for each row.
pub(crate) fn add_product(factors: Factors<'_>, sums: &mut [f64], columns: Range<usize>) {
    run_f64(InRegisters(Product { factors, sums, columns }));
}

struct Product<'p> {
    factors: Factors<'p>,
    sums: &'p mut [f64],
    columns: Range<usize>,
}

impl Tiles<f64> for Product<'_> {
    #[inline(always)]
    fn run<S: Simd<f64, N>, const N: usize, const ROWS: usize>(self, simd: S) {
        let Self { factors: Factors { left, right, scale }, sums, columns } = self;
        let (rank, width) = (right.rank(), columns.len());
        if rank == 0 || width == 0 {
            return;
        }
        let left = pack_rows::<f64, ROWS>(left, rank);
        let (mut half, mut tile) = (Vec::with_capacity(rank), [[0.0; DOUBLE_PANEL]; ROWS]);
        let halves = columns.start / DOUBLE_PANEL..columns.end.div_ceil(DOUBLE_PANEL);
        for number in halves {
            let first = number * DOUBLE_PANEL;
            let from = columns.start.max(first);
            let to = columns.end.min(first + DOUBLE_PANEL);
            let skipped = from - first;
            let target = from - columns.start..to - columns.start;
            right.widen_half(first / PANEL, !first.is_multiple_of(PANEL), &mut half);
            let groups = sums.chunks_mut(width * ROWS);
            for (left, sums) in left.chunks_exact(rank).zip(groups) {
                multiply_tile(simd, left, &half, &mut tile);
                for (sums, products) in sums.chunks_mut(width).zip(&tile) {
                    let sums = sums.get_mut(target.clone()).unwrap_or_default();
                    for (sum, product) in sums.iter_mut().zip(products.iter().skip(skipped)) {
                        *sum += scale * product;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_definition_bit_by_bit() {
        for (rows, rank, width, columns) in [
            (1, 1, 1, 0..1),
            (5, 3, 1100, 7..1007),
            (9, 16, 600, 0..600),
            (4, 2, 10, 9..10),
            (13, 5, 77, 40..50),
        ] {
            let number = |n: usize| f32::from(u8::try_from((n * 37 + 11) % 101).expect("small")) / 64.0 - 0.7;
            let left: Vec<f32> = (0..rows * rank).map(number).collect();
            let right: Vec<f32> = (0..rank * width).map(|n| number(n + 5)).collect();
            let mut sums = vec![0.25; rows * columns.len()];
            let factors = Factors { left: &left, right: &Panels::pack(&right, rank), scale: 0.5 };
            add_product(factors, &mut sums, columns.clone());
            for row in 0..rows {
                for (place, column) in columns.clone().enumerate() {
                    let products = (0..rank).map(|step| {
                        f64::from(left[row * rank + step]) * f64::from(right[step * width + column])
                    });
                    let expected = 0.25 + 0.5 * products.fold(0.0_f64, |sum, product| sum + product);
                    let found = sums[row * columns.len() + place];
                    assert_eq!(found.to_bits(), expected.to_bits(), "{row} {column}");
                }
            }
        }
    }
}

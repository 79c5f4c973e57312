//! Sums of weights of 16 bits and products of low rank: computed in single precision with a bound of the error, and again in double
//! precision where the bound leaves open how the sum is rounded.
//!
//! So the results are those of double precision, bit by bit. Facts: the error of a sum of `k` products in any order is at most
//! `k · u / (1 − k · u)` times the sum of their magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms", 3.1),
//! which is at most the product of the norms of both vectors.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "it parses nothing: sizes are those of factors and numbers in memory"
)]

use std::ops::Range;

use kernels::{Simd, from_bf16, from_f16, run_f32, to_bf16, to_f16};
use tensor::Dtype;

use crate::panels::norm_above;
use crate::product::Factors;
use crate::round;
use crate::vectors::{InRegisters, PANEL, Tiles, multiply_tile, pack_rows};

/// Half a unit in the last place of 1 in float32.
const UNIT: f64 = 1.0 / (1 << 24) as f64;
/// Magnitude from which on sums are computed in double precision: below it, no dtype of 16 bits overflows by its rounding alone.
const LARGE: f32 = 3.3e38;
/// Part of the magnitude of a sum that covers its last rounding, and that of the bounds themselves: both are half a unit.
const RELATIVE_SLACK: f32 = 1.25 * f32::EPSILON;
/// Steps whose products are summed before they are added to the others: errors grow with the number of steps.
const STEPS: usize = 32;
/// Scales whose rounding to float32 has a relative error.
const SCALES: Range<f64> = 1e-30..1e30;

pub(crate) fn is_supported(dtype: Dtype, scales: impl IntoIterator<Item = f64>) -> bool {
    matches!(dtype, Dtype::BFloat16 | Dtype::Float16)
        && scales.into_iter().all(|scale| scale == 0.0 || SCALES.contains(&scale.abs()))
}

/// Adds products to the numbers of `bytes`, which have `columns` of each row, and returns how many sums needed double precision.
pub(crate) fn add_products(
    dtype: Dtype,
    terms: &[Factors<'_>],
    bytes: &mut [u8],
    columns: Range<usize>,
) -> usize {
    let mut repeated = 0;
    match dtype {
        Dtype::BFloat16 => {
            run_f32(InRegisters(Sums::<false> { terms, bytes, columns, repeated: &mut repeated }));
        }
        _ => run_f32(InRegisters(Sums::<true> { terms, bytes, columns, repeated: &mut repeated })),
    }
    repeated
}

/// Sums of float16 (`HALF`) or bfloat16.
struct Sums<'s, const HALF: bool> {
    terms: &'s [Factors<'s>],
    bytes: &'s mut [u8],
    columns: Range<usize>,
    /// Number of sums that needed double precision.
    repeated: &'s mut usize,
}

/// Product whose left factor is packed, with bounds of its error.
struct PackedTerm<'f, const ROWS: usize> {
    factors: Factors<'f>,
    left: Vec<[f32; ROWS]>,
    /// For each row, the error of products with a column of norm 1.
    errors: Vec<[f32; ROWS]>,
    scale: f32,
    /// Error of products that are too small for the exponents of float32.
    underflow: f32,
}

impl<'f, const ROWS: usize> PackedTerm<'f, ROWS> {
    #[inline(always)]
    fn new(factors: Factors<'f>, terms: usize, is_fused: bool) -> Self {
        let rank = factors.right.rank();
        let left = pack_rows(factors.left, rank);
        let sums = rank.div_ceil(STEPS) * terms;
        // A processor without fused operations rounds each product, too. The scale is rounded, and each product with it.
        let roundings = STEPS.min(rank) * (if is_fused { 1 } else { 2 }) + sums;
        let units = (f64::from(clamped(roundings)) + 3.0) * UNIT * factors.scale.abs();
        let row_error = |row: &[f32]| {
            let square = row.iter().map(|factor| f64::from(*factor) * f64::from(*factor)).sum::<f64>();
            above(f64::from(norm_above(square)) * units)
        };
        let rows = factors.left.chunks_exact(rank.max(1)).map(row_error).collect::<Vec<_>>();
        let group = |rows: &[f32]| {
            let mut group = [0.0; ROWS];
            group.iter_mut().zip(rows).for_each(|(error, row)| *error = *row);
            group
        };
        let errors = rows.chunks(ROWS).map(group).collect();
        #[expect(clippy::cast_possible_truncation, reason = "the error of the rounding is part of the bound")]
        let scale = factors.scale as f32;
        let underflow = (f64::from(clamped(rank)) * 2.0 + 8.0) * factors.scale.abs().max(1.0);
        let underflow = above(underflow * f64::from(f32::from_bits(1)));
        Self { factors, left, errors, scale, underflow }
    }

    #[inline(always)]
    fn errors(&self, group: usize, panel: usize) -> [f32; ROWS] {
        let norm = self.factors.right.norm(panel);
        let errors = self.errors.get(group).copied().unwrap_or([f32::NAN; ROWS]);
        errors.map(|error| error * norm * 1.000_001 + self.underflow)
    }
}

/// Returns a size as a number; sizes above 2^32 are not in memory.
fn clamped(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Returns a float32 that is not below `value`.
#[inline(always)]
fn above(value: f64) -> f32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the factor is larger than the error of the rounding"
    )]
    let above = (value * 1.000_001) as f32;
    if value > 0.0 { above.max(f32::from_bits(1)) } else { above }
}

impl<const HALF: bool> Tiles<f32> for Sums<'_, HALF> {
    #[inline(always)]
    fn run<S: Simd<f32, N>, const N: usize, const ROWS: usize>(self, simd: S) {
        let Self { terms, bytes, columns, repeated } = self;
        let width = columns.len() * 2;
        if width == 0 {
            return;
        }
        let packed: Vec<PackedTerm<'_, ROWS>> =
            terms.iter().map(|term| PackedTerm::new(*term, terms.len(), S::IS_FUSED)).collect();
        let mut tile = [[0.0_f32; PANEL]; ROWS];
        for panel in columns.start / PANEL..columns.end.div_ceil(PANEL) {
            let first = panel * PANEL;
            let from = columns.start.max(first);
            let to = columns.end.min(first + PANEL);
            let skipped = from - first;
            let start = (from - columns.start) * 2;
            let end = (to - columns.start) * 2;
            for (group, rows) in bytes.chunks_mut(width * ROWS).enumerate() {
                let mut sums = [[0.0_f32; PANEL]; ROWS];
                let mut errors = [0.0_f32; ROWS];
                for term in &packed {
                    let rank = term.factors.right.rank();
                    let at = group * rank;
                    let left = term.left.get(at..at + rank).unwrap_or_default();
                    let right = term.factors.right.panel(panel);
                    for (left, right) in left.chunks(STEPS).zip(right.chunks(STEPS)) {
                        multiply_tile(simd, left, right, &mut tile);
                        for (sums, products) in sums.iter_mut().zip(&tile) {
                            for (sum, product) in sums.iter_mut().zip(products) {
                                *sum += term.scale * product;
                            }
                        }
                    }
                    for (error, more) in errors.iter_mut().zip(term.errors(group, panel)) {
                        *error += more;
                    }
                }
                for (number, row) in rows.chunks_mut(width).enumerate() {
                    let Some((sums, error)) = sums.get(number).zip(errors.get(number)) else { continue };
                    let Some(numbers) = row.get_mut(start..end) else { continue };
                    let numbers = numbers.as_chunks_mut().0;
                    let (mut rounded, mut unsure) = ([[0; 2]; PANEL], [0; PANEL]);
                    let is_unsure = if let Ok(whole) = <&mut [[u8; 2]; PANEL]>::try_from(&mut *numbers) {
                        round_sums::<HALF>(whole, sums, *error, (&mut rounded, &mut unsure))
                    } else {
                        let mut padded = [[0; 2]; PANEL];
                        let part = padded.get_mut(skipped..).unwrap_or_default();
                        part.iter_mut().zip(&*numbers).for_each(|(part, number)| *part = *number);
                        round_sums::<HALF>(&padded, sums, *error, (&mut rounded, &mut unsure))
                    };
                    if is_unsure {
                        let row = group * ROWS + number;
                        let unsure = unsure.get(skipped..).unwrap_or_default();
                        let rounded = rounded.get_mut(skipped..).unwrap_or_default();
                        *repeated += resolve::<HALF>(terms, (row, from), (numbers, unsure), rounded);
                    }
                    let rounded = rounded.iter().skip(skipped);
                    numbers.iter_mut().zip(rounded).for_each(|(number, rounded)| *number = *rounded);
                }
            }
        }
    }
}

/// Rounds the sums of `numbers` and `products` to 16 bits, and marks those that an error of the products could change. Returns
/// true if there are any.
#[inline(always)]
fn round_sums<const HALF: bool>(
    numbers: &[[u8; 2]; PANEL],
    products: &[f32; PANEL],
    error: f32,
    (sums, unsure): (&mut [[u8; 2]; PANEL], &mut [u32; PANEL]),
) -> bool {
    let mut is_unsure = 0_u32;
    for (((number, product), sum), unsure) in numbers.iter().zip(products).zip(sums).zip(unsure) {
        let (low, doubt) = round_sum::<HALF>(*number, *product, error);
        *sum = low.to_le_bytes();
        *unsure = doubt;
        is_unsure |= doubt;
    }
    is_unsure != 0
}

/// Rounds the sum of a number and a product. The second result is not zero if an error of the product could change it.
#[inline(always)]
fn round_sum<const HALF: bool>(number: [u8; 2], product: f32, error: f32) -> (u16, u32) {
    let bits = u16::from_le_bytes(number);
    let number = if HALF { from_f16(bits) } else { from_bf16(bits) };
    let sum = number + product;
    let slack = sum.abs() * RELATIVE_SLACK + error;
    let round = |value: f32| if HALF { to_f16(value) } else { to_bf16(value) };
    let (low, high) = (round(sum - slack), round(sum + slack));
    // A comparison with NaN is false.
    let is_bounded = sum.abs() + slack < LARGE;
    (low, u32::from(low ^ high) | u32::from(!is_bounded))
}

/// Computes the sums of a row in double precision that are marked, from column `column` on, and returns their number.
#[inline(never)]
fn resolve<const HALF: bool>(
    terms: &[Factors<'_>],
    (row, column): (usize, usize),
    (numbers, unsure): (&[[u8; 2]], &[u32]),
    rounded: &mut [[u8; 2]],
) -> usize {
    let mut repeated = 0_usize;
    for (((number, unsure), rounded), column) in numbers.iter().zip(unsure).zip(rounded).zip(column..) {
        if *unsure == 0 {
            continue;
        }
        repeated += 1;
        let bits = u16::from_le_bytes(*number);
        let mut sum = f64::from(if HALF { from_f16(bits) } else { from_bf16(bits) });
        for Factors { left, right, scale } in terms {
            let rank = right.rank();
            let start = row * rank;
            let left = left.get(start..start + rank).unwrap_or_default();
            let mut product = 0.0;
            for (factor, right) in left.iter().zip(right.panel(column / PANEL)) {
                // The product of two float32 is exact.
                let right = right.get(column % PANEL).copied().unwrap_or(f32::NAN);
                product += f64::from(*factor) * f64::from(right);
            }
            sum += scale * product;
        }
        *rounded = if HALF { round::to_f16(sum) } else { round::to_bf16(sum) }.to_le_bytes();
    }
    repeated
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{narrow, widen};
    use crate::panels::Panels;
    use crate::product::add_product;

    #[test]
    fn sums_are_those_of_double_precision_bit_by_bit() {
        let mut state = 7_u64;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f32::from(u16::try_from(state >> 48).expect("16 bits")) / 65536.0 - 0.5
        };
        let mut repeated = 0;
        for dtype in [Dtype::BFloat16, Dtype::Float16] {
            // `grid` is a unit of which factors are multiples, so that many sums are in the middle of two numbers.
            for (rows, rank, width, columns, size, grid, scale) in [
                (13, 16, 100, 0..100, 0.1, None, 2.0),
                (7, 70, 70, 3..67, 0.02, None, 0.3),
                (6, 3, 64, 0..64, 1.0, Some(0.25_f32), 0.0625),
                (5, 8, 33, 31..33, 1e20, None, 1e10),
                (4, 4, 40, 0..40, 1e-20, None, -1.0),
                (4, 4, 40, 0..40, 0.0, None, 1.0),
                (6, 2, 32, 0..32, 1e-3, None, 1.5),
            ] {
                let mut factor = |_| {
                    let number = uniform() * size;
                    grid.map_or(number, |grid| (number / grid).round() * grid)
                };
                let left: Vec<f32> = (0..rows * rank).map(&mut factor).collect();
                let right: Vec<f32> = (0..rank * width).map(&mut factor).collect();
                let right = Panels::pack(&right, rank);
                // All patterns of bits, NaN and infinity among them.
                let count = rows * columns.len();
                let bits = (0..count).map(|n| u16::try_from((n * 40_503) % 65_536).expect("16 bits"));
                let mut bytes: Vec<u8> = bits.flat_map(u16::to_le_bytes).collect();
                let factors = Factors { left: &left, right: &right, scale };
                let mut sums = Vec::new();
                widen(dtype, &bytes, &mut sums).expect("a dtype of 16 bits");
                add_product(factors, &mut sums, columns.clone());
                add_product(factors, &mut sums, columns.clone());
                let mut expected = vec![0; bytes.len()];
                narrow(dtype, &sums, &mut expected);
                repeated += add_products(dtype, &[factors, factors], &mut bytes, columns);
                assert!(bytes == expected, "{dtype}, rank {rank}, size {size}");
            }
        }
        assert!(repeated > 0, "no sum was in doubt");
    }
}

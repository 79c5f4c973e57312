//! Sums of weights of 16 bits and products of low rank: computed in single precision with a bound of the error, and again in double
//! precision where the bound leaves open how the sum is rounded.
//!
//! So the results are those of double precision, bit by bit. Facts: the error of a sum of `k` products in any order is at most
//! `k · u / (1 − k · u)` times the sum of their magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms", 3.1),
//! which is at most the product of the norms of both vectors.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};
use tensor::Dtype;

use crate::panels::norm_above;
use crate::product::Factors;
use crate::round;
use crate::vectors::{PANEL, multiply_tile, pack_rows};

/// Half a unit in the last place of 1 in float32.
const UNIT: f64 = 1.0 / (1 << 24) as f64;
/// Magnitude from which on sums are computed in double precision: below it, no dtype of 16 bits overflows by its rounding alone.
const LARGE: f32 = 3.3e38;
/// Part of the magnitude of a sum that covers the last rounding of it, and those of the bounds themselves.
const RELATIVE_SLACK: f32 = 1.0 / (1 << 21) as f32;
/// Scales whose rounding to float32 has a relative error.
const SCALES: Range<f64> = 1e-30..1e30;

/// Returns true if sums of this dtype with products of these scales can be computed in single precision.
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
    let arch = Arch::new();
    match dtype {
        Dtype::BFloat16 => arch.dispatch(Sums::<false> { terms, bytes, columns }),
        _ => arch.dispatch(Sums::<true> { terms, bytes, columns }),
    }
}

/// Sums of float16 (`HALF`) or bfloat16.
struct Sums<'s, const HALF: bool> {
    terms: &'s [Factors<'s>],
    bytes: &'s mut [u8],
    columns: Range<usize>,
}

impl<const HALF: bool> WithSimd for Sums<'_, HALF> {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        match PANEL.checked_div(S::F32_LANES) {
            Some(2) => self.add::<S, 6, 2>(simd),
            Some(4) => self.add::<S, 3, 4>(simd),
            Some(8) => self.add::<S, 2, 8>(simd),
            _ => self.add::<S, 1, PANEL>(simd),
        }
    }
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
    fn new(factors: Factors<'f>, count: usize) -> Self {
        let rank = factors.right.rank();
        let left = pack_rows(factors.left, rank);
        let (steps, count) = (f64::from(clamped(rank)), f64::from(clamped(count)));
        // Twice for processors that round each product, and the roundings of the scale and of the sum of all products.
        let units = (2.0 * steps + 2.0 * count + 8.0) * UNIT * factors.scale.abs();
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
        let underflow = above((4.0 * steps + 8.0) * factors.scale.abs().max(1.0) * f64::from(f32::from_bits(1)));
        Self { factors, left, errors, scale, underflow }
    }

    /// Returns the bounds of the errors of a group of rows in a panel of the right factor.
    #[inline(always)]
    fn errors(&self, group: usize, panel: usize) -> [f32; ROWS] {
        let norm = self.factors.right.norm(panel);
        let errors = self.errors.get(group).copied().unwrap_or([f32::NAN; ROWS]);
        errors.map(|error| error * norm * (1.0 + RELATIVE_SLACK) + self.underflow)
    }
}

/// Returns a size as a number; sizes above 2^32 are not in memory.
fn clamped(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Returns a float32 that is not below `value`.
#[inline(always)]
fn above(value: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "the factor is larger than the error of the rounding")]
    let above = (value * 1.000_001) as f32;
    if value > 0.0 { above.max(f32::from_bits(1)) } else { above }
}

impl<const HALF: bool> Sums<'_, HALF> {
    #[inline(always)]
    fn add<S: Simd, const ROWS: usize, const VECTORS: usize>(self, simd: S) -> usize {
        let Self { terms, bytes, columns } = self;
        let width = columns.len().saturating_mul(2);
        if width == 0 {
            return 0;
        }
        let packed: Vec<PackedTerm<'_, ROWS>> =
            terms.iter().map(|term| PackedTerm::new(*term, terms.len())).collect();
        let mut repeated = 0_usize;
        let mut tile = [[0.0_f32; PANEL]; ROWS];
        for panel in columns.start / PANEL..columns.end.div_ceil(PANEL) {
            let first = panel.saturating_mul(PANEL);
            let from = columns.start.max(first);
            let to = columns.end.min(first.saturating_add(PANEL));
            let skipped = from.saturating_sub(first);
            let start = from.saturating_sub(columns.start).saturating_mul(2);
            let end = to.saturating_sub(columns.start).saturating_mul(2);
            for (group, rows) in bytes.chunks_mut(width.saturating_mul(ROWS)).enumerate() {
                let mut sums = [[0.0_f32; PANEL]; ROWS];
                let mut errors = [0.0_f32; ROWS];
                for term in &packed {
                    let rank = term.factors.right.rank();
                    let at = group.saturating_mul(rank);
                    let left = term.left.get(at..at.saturating_add(rank)).unwrap_or_default();
                    let right = term.factors.right.panel(panel);
                    multiply_tile::<S, f32, ROWS, VECTORS, PANEL>(simd, left, right, &mut tile);
                    for (sums, products) in sums.iter_mut().zip(&tile) {
                        for (sum, product) in sums.iter_mut().zip(products) {
                            *sum += term.scale * product;
                        }
                    }
                    for (error, more) in errors.iter_mut().zip(term.errors(group, panel)) {
                        *error += more;
                    }
                }
                for (number, row) in rows.chunks_mut(width).enumerate() {
                    let Some((sums, error)) = sums.get(number).zip(errors.get(number)) else { continue };
                    let Some(numbers) = row.get_mut(start..end) else { continue };
                    let row = group.saturating_mul(ROWS).saturating_add(number);
                    let mut rounded = [[0; 2]; PANEL];
                    if let Ok(whole) = <&mut [[u8; 2]; PANEL]>::try_from(numbers.as_chunks_mut().0)
                        && !round_sums::<HALF>(whole, sums, *error, &mut rounded)
                    {
                        *whole = rounded;
                        continue;
                    }
                    let sums = sums.get(skipped..).unwrap_or_default();
                    let resolved = resolve::<HALF>(terms, (row, from), (sums, *error), numbers);
                    repeated = repeated.saturating_add(resolved);
                }
            }
        }
        repeated
    }
}

/// Rounds the sums of `numbers` and `products` to 16 bits. Returns true if an error of the products could change one of them.
#[inline(always)]
fn round_sums<const HALF: bool>(
    numbers: &[[u8; 2]; PANEL],
    products: &[f32; PANEL],
    error: f32,
    sums: &mut [[u8; 2]; PANEL],
) -> bool {
    let mut unsure = 0_u32;
    for ((number, product), sum) in numbers.iter().zip(products).zip(sums) {
        let (low, is_unsure) = round_sum::<HALF>(*number, *product, error);
        *sum = low.to_le_bytes();
        unsure |= is_unsure;
    }
    unsure != 0
}

/// Rounds the sum of a number and a product. The second result is not zero if an error of the product could change it.
#[inline(always)]
fn round_sum<const HALF: bool>(number: [u8; 2], product: f32, error: f32) -> (u16, u32) {
    let bits = u16::from_le_bytes(number);
    let number = if HALF { round::f16_to_f32(bits) } else { round::bf16_to_f32(bits) };
    let sum = number + product;
    let slack = sum.abs() * RELATIVE_SLACK + error;
    let round = |value: f32| if HALF { round::f32_to_f16(value) } else { round::f32_to_bf16(value) };
    let (low, high) = (round(sum - slack), round(sum + slack));
    // A comparison with NaN is false.
    let is_bounded = sum.abs() + slack < LARGE;
    (low, u32::from(low ^ high) | u32::from(!is_bounded))
}

/// Rounds the sums of a row from a column on, those in doubt in double precision, and returns their number.
#[inline(never)]
fn resolve<const HALF: bool>(
    terms: &[Factors<'_>],
    (row, column): (usize, usize),
    (products, error): (&[f32], f32),
    numbers: &mut [u8],
) -> usize {
    let mut repeated = 0_usize;
    let places = column..column.saturating_add(PANEL);
    for ((number, product), column) in numbers.as_chunks_mut::<2>().0.iter_mut().zip(products).zip(places) {
        let (mut rounded, unsure) = round_sum::<HALF>(*number, *product, error);
        if unsure != 0 {
            repeated = repeated.saturating_add(1);
            let bits = u16::from_le_bytes(*number);
            let mut sum = if HALF { round::from_f16(bits) } else { round::from_bf16(bits) };
            for Factors { left, right, scale } in terms {
                let rank = right.rank();
                let start = row.saturating_mul(rank);
                let left = left.get(start..start.saturating_add(rank)).unwrap_or_default();
                let mut product = 0.0;
                for (factor, right) in left.iter().zip(right.panel(column / PANEL)) {
                    // The product of two float32 is exact.
                    let right = right.get(column % PANEL).copied().unwrap_or(f32::NAN);
                    product += f64::from(*factor) * f64::from(right);
                }
                sum += scale * product;
            }
            rounded = if HALF { round::to_f16(sum) } else { round::to_bf16(sum) };
        }
        *number = rounded.to_le_bytes();
    }
    repeated
}

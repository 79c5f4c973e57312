//! Sums of products in registers: a few rows of one factor times a panel of another one.
//!
//! A panel has 128 bytes of each row, so its rows are whole vectors of every processor.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "it parses nothing: sizes are those of numbers in memory"
)]

use kernels::{Loops, Simd};

/// Columns of a panel of float32.
pub(crate) const PANEL: usize = 32;
/// Columns of a panel of float64.
pub(crate) const DOUBLE_PANEL: usize = 16;

/// Number type of products, into which the float32 of an adapter are widened.
pub(crate) trait Number: Copy + Default + From<f32> {}
impl Number for f32 {}
impl Number for f64 {}

/// Loops over tiles of rows of a panel, whose width is two vectors.
pub(crate) trait Tiles<T> {
    fn run<S: Simd<T, N>, const N: usize, const ROWS: usize>(self, simd: S);
}

/// [`Tiles`] that are as large as the registers of the processor hold.
pub(crate) struct InRegisters<W>(pub(crate) W);

impl<T, W: Tiles<T>> Loops<T> for InRegisters<W> {
    #[inline(always)]
    fn run<S: Simd<T, N>, const N: usize>(self, simd: S) {
        match S::TILE_ROWS {
            6 => self.0.run::<S, N, 6>(simd),
            3 => self.0.run::<S, N, 3>(simd),
            _ => self.0.run::<S, N, 1>(simd),
        }
    }
}

/// Sets `out` to the products of `ROWS` rows, whose numbers come together for each step, and a panel with a row for each step.
#[inline(always)]
pub(crate) fn multiply_tile<
    T: Number,
    S: Simd<T, N>,
    const N: usize,
    const ROWS: usize,
    const COLUMNS: usize,
>(
    simd: S,
    left: &[[T; ROWS]],
    panel: &[[T; COLUMNS]],
    out: &mut [[T; COLUMNS]; ROWS],
) {
    let mut sums = [[simd.splat(T::default()); 2]; ROWS];
    for (factors, right) in left.iter().zip(panel) {
        let [first, second] = right.as_chunks::<N>().0 else { return };
        let right = [simd.load(first), simd.load(second)];
        for (factor, sums) in factors.iter().zip(&mut sums) {
            let factor = simd.splat(*factor);
            for (sum, right) in sums.iter_mut().zip(right) {
                *sum = simd.mul_add(factor, right, *sum);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        for (out, sum) in out.as_chunks_mut::<N>().0.iter_mut().zip(sums) {
            *out = simd.store(sum);
        }
    }
}

/// Packs rows of `rank` numbers in groups of `ROWS`, whose numbers come together for each step. The last group is filled with
/// zeros.
#[inline(always)]
pub(crate) fn pack_rows<T: Number, const ROWS: usize>(rows: &[f32], rank: usize) -> Vec<[T; ROWS]> {
    let count = rows.len().checked_div(rank).unwrap_or(0);
    let mut packed = vec![[T::default(); ROWS]; count.div_ceil(ROWS) * rank];
    let groups = rows.chunks((rank * ROWS).max(1));
    for (group, packed) in groups.zip(packed.chunks_mut(rank.max(1))) {
        for (number, row) in group.chunks_exact(rank.max(1)).enumerate() {
            for (packed, factor) in packed.iter_mut().zip(row) {
                if let Some(place) = packed.get_mut(number) {
                    *place = T::from(*factor);
                }
            }
        }
    }
    packed
}

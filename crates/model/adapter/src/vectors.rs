//! Sums of products in registers: a few rows of one factor times a panel of another one.
//!
//! A panel has 128 bytes of each row, so its rows are whole vectors of every processor.

use pulp::{Arch, Simd, WithSimd};

/// Columns of a panel of float32.
pub(crate) const PANEL: usize = 32;
/// Columns of a panel of float64.
pub(crate) const DOUBLE_PANEL: usize = 16;

/// Floating-point number with vectors of the processor.
pub(crate) trait Number: Copy {
    type Vector<S: Simd>: Copy;

    const ZERO: Self;

    /// Widens a number of an adapter, which is exact.
    fn from_f32(number: f32) -> Self;
    fn splat<S: Simd>(self, simd: S) -> Self::Vector<S>;
    fn multiply_add<S: Simd>(
        simd: S,
        factor: Self::Vector<S>,
        other: Self::Vector<S>,
        sum: Self::Vector<S>,
    ) -> Self::Vector<S>;
    fn vectors<S: Simd>(numbers: &[Self]) -> &[Self::Vector<S>];
    fn vectors_mut<S: Simd>(numbers: &mut [Self]) -> &mut [Self::Vector<S>];
}

impl Number for f32 {
    type Vector<S: Simd> = S::f32s;

    const ZERO: Self = 0.0;

    #[inline(always)]
    fn from_f32(number: f32) -> Self {
        number
    }

    #[inline(always)]
    fn splat<S: Simd>(self, simd: S) -> S::f32s {
        simd.splat_f32s(self)
    }

    #[inline(always)]
    fn multiply_add<S: Simd>(simd: S, factor: S::f32s, other: S::f32s, sum: S::f32s) -> S::f32s {
        simd.mul_add_e_f32s(factor, other, sum)
    }

    #[inline(always)]
    fn vectors<S: Simd>(numbers: &[Self]) -> &[S::f32s] {
        S::as_simd_f32s(numbers).0
    }

    #[inline(always)]
    fn vectors_mut<S: Simd>(numbers: &mut [Self]) -> &mut [S::f32s] {
        S::as_mut_simd_f32s(numbers).0
    }
}

impl Number for f64 {
    type Vector<S: Simd> = S::f64s;

    const ZERO: Self = 0.0;

    #[inline(always)]
    fn from_f32(number: f32) -> Self {
        Self::from(number)
    }

    #[inline(always)]
    fn splat<S: Simd>(self, simd: S) -> S::f64s {
        simd.splat_f64s(self)
    }

    #[inline(always)]
    fn multiply_add<S: Simd>(simd: S, factor: S::f64s, other: S::f64s, sum: S::f64s) -> S::f64s {
        simd.mul_add_e_f64s(factor, other, sum)
    }

    #[inline(always)]
    fn vectors<S: Simd>(numbers: &[Self]) -> &[S::f64s] {
        S::as_simd_f64s(numbers).0
    }

    #[inline(always)]
    fn vectors_mut<S: Simd>(numbers: &mut [Self]) -> &mut [S::f64s] {
        S::as_mut_simd_f64s(numbers).0
    }
}

pub(crate) trait DoubleTiles {
    /// Works on tiles of `ROWS` rows, each of `VECTORS` vectors.
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize>(self, simd: S);
}

/// Runs the work with tiles as large as the registers of the processor hold, with some left for the factors.
pub(crate) fn run_double_tiles(work: impl DoubleTiles) {
    Arch::new().dispatch(WithRegisters(work));
}

struct WithRegisters<W>(W);

impl<W: DoubleTiles> WithSimd for WithRegisters<W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match DOUBLE_PANEL.checked_div(S::F64_LANES) {
            Some(2) => self.0.run::<S, 6, 2>(simd),
            Some(4) => self.0.run::<S, 3, 4>(simd),
            Some(8) => self.0.run::<S, 2, 8>(simd),
            _ => self.0.run::<S, 1, DOUBLE_PANEL>(simd),
        }
    }
}

/// Sets `out` to the products of `ROWS` rows, whose numbers come together for each step, and a panel with a row for each step.
/// `VECTORS` is the number of vectors of a panel's row.
#[inline(always)]
pub(crate) fn multiply_tile<
    S: Simd,
    N: Number,
    const ROWS: usize,
    const VECTORS: usize,
    const COLUMNS: usize,
>(
    simd: S,
    left: &[[N; ROWS]],
    panel: &[[N; COLUMNS]],
    out: &mut [[N; COLUMNS]; ROWS],
) {
    let mut sums = [[N::ZERO.splat(simd); VECTORS]; ROWS];
    for (factors, right) in left.iter().zip(panel) {
        let Ok(right) = <&[N::Vector<S>; VECTORS]>::try_from(N::vectors::<S>(right)) else { return };
        let right = *right;
        for (factor, sums) in factors.iter().zip(&mut sums) {
            let factor = factor.splat(simd);
            for (sum, right) in sums.iter_mut().zip(right) {
                *sum = N::multiply_add(simd, factor, right, *sum);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        for (out, sum) in N::vectors_mut::<S>(out).iter_mut().zip(sums) {
            *out = sum;
        }
    }
}

/// Packs rows of `rank` numbers in groups of `ROWS`, whose numbers come together for each step. The last group is filled with
/// zeros.
#[inline(always)]
pub(crate) fn pack_rows<N: Number, const ROWS: usize>(rows: &[f32], rank: usize) -> Vec<[N; ROWS]> {
    let count = rows.len().checked_div(rank).unwrap_or(0);
    let mut packed = vec![[N::ZERO; ROWS]; count.div_ceil(ROWS).saturating_mul(rank)];
    let groups = rows.chunks(rank.saturating_mul(ROWS).max(1));
    for (group, packed) in groups.zip(packed.chunks_mut(rank.max(1))) {
        for (number, row) in group.chunks_exact(rank.max(1)).enumerate() {
            for (packed, factor) in packed.iter_mut().zip(row) {
                if let Some(place) = packed.get_mut(number) {
                    *place = N::from_f32(*factor);
                }
            }
        }
    }
    packed
}

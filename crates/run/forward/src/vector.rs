//! Vector loops that are compiled for the CPU's instructions.

#![expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "arrays of known lengths, which stay in registers"
)]
#![expect(clippy::inline_always, reason = "loops are to be compiled for other instructions than the rest")]

use kernels::{Loops, Simd, run_nested};

use crate::number::Real;

/// Number of partial sums, so that an addition need not wait for the previous one.
const LANES: usize = 32;

/// Normalisation of a row: divides it by the root of its mean square plus `eps`, multiplies by the weight, then adds
/// the bias. If it is centred, the mean is subtracted first.
pub(crate) struct Normalize<'v, T> {
    pub(crate) row: &'v mut [T],
    pub(crate) weight: &'v [T],
    pub(crate) bias: Option<&'v [T]>,
    pub(crate) eps: T,
    pub(crate) is_centred: bool,
}

impl<T: Real> Loops<T> for Normalize<'_, T> {
    #[inline(always)]
    fn run<S: Simd<T, N>, const N: usize>(self, _: S) {
        let Self { row, weight, bias, eps, is_centred } = self;
        #[expect(clippy::cast_precision_loss, reason = "the width of a model is small")]
        let count = T::from_f64(row.len() as f64);
        if is_centred {
            let mean = lane_sum(row, |x| x) / count;
            for x in row.iter_mut() {
                *x = *x - mean;
            }
        }
        let scale = T::ONE / (lane_sum(row, |x| x * x) / count + eps).sqrt();
        for (x, weight) in row.iter_mut().zip(weight) {
            *x = *x * scale * *weight;
        }
        for (x, bias) in row.iter_mut().zip(bias.into_iter().flatten()) {
            *x += *bias;
        }
    }
}

/// Returns the sum of `of(x)` over all numbers `x`.
#[inline(always)]
fn lane_sum<T: Real>(numbers: &[T], of: impl Fn(T) -> T) -> T {
    let mut sums = [T::default(); LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += of(*x);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += of(*x);
    }
    sum_lanes(sums)
}

/// Returns the sum of the elements, added in pairs.
#[inline(always)]
fn sum_lanes<T: Real>(mut sums: [T; LANES]) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        let (low, high) = sums.split_at_mut(half);
        for (low, high) in low.iter_mut().zip(high) {
            *low += *high;
        }
        half /= 2;
    }
    let [sum, ..] = sums;
    sum
}

/// Loop for `x += y · factor`.
pub(crate) struct AddScaled<'v, T> {
    pub(crate) x: &'v mut [T],
    pub(crate) y: &'v [T],
    pub(crate) factor: T,
}

impl<T: Real> Loops<T> for AddScaled<'_, T> {
    #[inline(always)]
    fn run<S: Simd<T, N>, const N: usize>(self, _: S) {
        for (x, y) in self.x.iter_mut().zip(self.y) {
            *x += *y * self.factor;
        }
    }
}

/// Loop for `x = x · factor`, then `x = cap · tanh(x / cap)` if there is a cap.
pub(crate) struct Scale<'v, T> {
    pub(crate) x: &'v mut [T],
    pub(crate) factor: T,
    pub(crate) cap: Option<T>,
}

impl<T: Real> Loops<T> for Scale<'_, T> {
    #[inline(always)]
    fn run<S: Simd<T, N>, const N: usize>(self, _: S) {
        for x in self.x.iter_mut() {
            *x *= self.factor;
        }
        if let Some(cap) = self.cap {
            for x in self.x {
                *x = cap * (*x / cap).tanh();
            }
        }
    }
}

/// Matrix product `c[rows, columns] += a[rows, inner] · b[inner, columns]`. Rows of `a`, `b` and `c` are `a_step`,
/// `b_step` and `c_step` numbers apart.
pub(crate) struct VectorProduct<'v, T> {
    pub(crate) a: &'v [T],
    pub(crate) a_step: usize,
    pub(crate) b: &'v [T],
    pub(crate) b_step: usize,
    pub(crate) inner: usize,
    pub(crate) columns: usize,
    pub(crate) c_step: usize,
}

/// Matrix product, and the matrix that it is added to.
struct ProductSums<'v, T> {
    product: &'v VectorProduct<'v, T>,
    c: &'v mut [T],
}

impl<T: Real> Loops<T> for ProductSums<'_, T> {
    #[inline(always)]
    fn run<S: Simd<T, N>, const N: usize>(self, simd: S) {
        let Self { product, c } = self;
        let (a, c) = product.add_panels::<S, N, 8, 2>(simd, product.a, c);
        let (a, c) = product.add_panels::<S, N, 4, 2>(simd, a, c);
        product.add_panels::<S, N, 1, 4>(simd, a, c);
    }
}

/// Elements of a row that are multiplied without a check for its end.
const UNROLLED: usize = 8;

impl<T: Real> VectorProduct<'_, T> {
    /// Adds the product to `c`, which has as many rows as `a`.
    #[inline(always)]
    pub(crate) fn add_to<S: Simd<T, N>, const N: usize>(&self, simd: S, c: &mut [T]) {
        run_nested(simd, ProductSums { product: self, c });
    }

    /// Computes the products of all whole panels of `R` rows, and returns the remaining rows of `a` and `c`. The sums
    /// of a panel's rows and of `V` vectors of columns are to fit in registers.
    #[inline(always)]
    fn add_panels<'p, S: Simd<T, N>, const N: usize, const R: usize, const V: usize>(
        &self,
        simd: S,
        a: &'p [T],
        c: &'p mut [T],
    ) -> (&'p [T], &'p mut [T]) {
        let (a_rows, c_rows) = (R * self.a_step, R * self.c_step);
        let count = (a.len() / a_rows).min(c.len() / c_rows);
        let (a, a_rest) = a.split_at(count * a_rows);
        let (c, c_rest) = c.split_at_mut(count * c_rows);
        for (a, c) in a.chunks_exact(a_rows).zip(c.chunks_exact_mut(c_rows)) {
            let mut column = 0;
            while column + V * N <= self.columns {
                self.add_tile::<S, N, R, V>(simd, a, column, c);
                column += V * N;
            }
            while column + N <= self.columns {
                self.add_tile::<S, N, R, 1>(simd, a, column, c);
                column += N;
            }
            if column < self.columns {
                self.add_rest_columns(a, column, c);
            }
        }
        (a_rest, c_rest)
    }

    /// Computes the sums of `R` rows and `V` vectors of columns.
    #[inline(always)]
    fn add_tile<S: Simd<T, N>, const N: usize, const R: usize, const V: usize>(
        &self,
        simd: S,
        a: &[T],
        column: usize,
        c: &mut [T],
    ) {
        let rows: [&[T]; R] = std::array::from_fn(|row| &a[row * self.a_step..][..self.inner]);
        let mut sums = [[simd.splat(T::default()); V]; R];
        let whole = self.inner / UNROLLED;
        let strides = rows.map(|row| &row.as_chunks::<UNROLLED>().0[..whole]);
        let mut b = self.b;
        for index in 0..whole {
            for element in 0..UNROLLED {
                let vectors: [S::Vector; V] = std::array::from_fn(|v| {
                    simd.load(b[column + v * N..].first_chunk().expect("`columns` are in a row"))
                });
                for row in 0..R {
                    let a = simd.splat(strides[row][index][element]);
                    for v in 0..V {
                        sums[row][v] = simd.mul_add(a, vectors[v], sums[row][v]);
                    }
                }
                b = b.get(self.b_step..).unwrap_or_default();
            }
        }
        for index in whole * UNROLLED..self.inner {
            let vectors: [S::Vector; V] = std::array::from_fn(|v| {
                simd.load(b[column + v * N..].first_chunk().expect("`columns` are in a row"))
            });
            for row in 0..R {
                let a = simd.splat(rows[row][index]);
                for v in 0..V {
                    sums[row][v] = simd.mul_add(a, vectors[v], sums[row][v]);
                }
            }
            b = b.get(self.b_step..).unwrap_or_default();
        }
        for row in 0..R {
            for v in 0..V {
                let start = row * self.c_step + column + v * N;
                let c = c[start..].first_chunk_mut::<N>().expect("`columns` are in a row");
                let sum = simd.store(sums[row][v]);
                for lane in 0..N {
                    c[lane] += sum[lane];
                }
            }
        }
    }

    /// Computes the columns that do not fill a vector.
    #[inline(always)]
    fn add_rest_columns(&self, a: &[T], column: usize, c: &mut [T]) {
        let rows = a.chunks(self.a_step).zip(c.chunks_mut(self.c_step));
        for (a, c) in rows {
            let Some(c) = c.get_mut(column..self.columns) else { return };
            for (a, b) in a.iter().take(self.inner).zip(self.b.chunks(self.b_step)) {
                for (c, b) in c.iter_mut().zip(b.iter().skip(column)) {
                    *c += *a * *b;
                }
            }
        }
    }
}

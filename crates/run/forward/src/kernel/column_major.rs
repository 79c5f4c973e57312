//! Products with column-major matrices: each column is read once, in the order of the file, multiplied by the inputs,
//! and added to all outputs.

#![expect(
    clippy::inline_always,
    reason = "a method becomes instructions only as a part of the function that is compiled for them"
)]
#![expect(
    clippy::indexing_slicing,
    reason = "sizes belong to each other since the product was made; where they did not, an index would panic"
)]

use std::marker::PhantomData;

use kernels::{Load, SimdWork, prefetch};

use super::Matrix;
use super::pool::{Pool, split_columns};
use super::product::{KernelNumber, Product};

/// Number of outputs that a thread takes at a time. Their sums for a few inputs stay in the L1 cache.
const OUTPUTS: usize = 1024;

/// Number of columns that are read together, so that sums are loaded and stored less often.
const COLUMNS: usize = 4;

/// Prefetch distance in columns.
const AHEAD: usize = 8;

/// Computes `y[m, rows] = x[m, cols] · Wᵀ + bias` of each product, for weights of dtype `D`, of which `B` bytes are `N`
/// numbers.
pub(super) fn linear<D, T, S, const N: usize, const B: usize>(
    simd: S,
    pool: &Pool,
    products: Vec<Product<'_, T>>,
) where
    D: Send + Sync,
    T: KernelNumber,
    S: Load<D, T, N, B>,
{
    let mut jobs = Vec::new();
    for Product { w, x, bias, y, .. } in products {
        let parts = split_columns(y, w.rows(), OUTPUTS).into_iter();
        jobs.extend(parts.map(|(first, y)| ColumnMajorWork {
            w,
            x,
            bias,
            first,
            y,
            dtype: PhantomData::<D>,
        }));
    }
    pool.for_each(jobs, |job| simd.run(job));
}

/// Part of a product that one thread takes: some outputs, all inputs.
struct ColumnMajorWork<'a, 'y, D, T, const N: usize, const B: usize> {
    w: &'a Matrix,
    x: &'a [T],
    bias: Option<&'a [T]>,
    first: usize,
    /// Outputs of each input.
    y: Vec<&'y mut [T]>,
    dtype: PhantomData<D>,
}

impl<D, T: KernelNumber, S: Load<D, T, N, B>, const N: usize, const B: usize> SimdWork<S>
    for ColumnMajorWork<'_, '_, D, T, N, B>
{
    type Output = ();

    #[inline(always)]
    fn run(self, simd: S) {
        let (count, cols) = (self.y.first().map_or(0, |y| y.len()), self.w.cols());
        let mut sums = vec![[T::default(); N]; count.div_ceil(N) * self.y.len()];
        let mut column = 0;
        while column + COLUMNS <= cols {
            self.add_columns::<S, COLUMNS>(simd, column, count, &mut sums);
            column += COLUMNS;
        }
        while column < cols {
            self.add_columns::<S, 1>(simd, column, count, &mut sums);
            column += 1;
        }
        for (y, sums) in self.y.into_iter().zip(sums.chunks_exact(count.div_ceil(N))) {
            for (at, (y, sum)) in y.iter_mut().zip(sums.as_flattened()).enumerate() {
                *y = self.bias.map_or(*sum, |bias| *sum + bias[self.first + at]);
            }
        }
    }
}

impl<D, T: KernelNumber, const N: usize, const B: usize> ColumnMajorWork<'_, '_, D, T, N, B> {
    /// Adds the products of `K` columns to the sums.
    #[inline(always)]
    fn add_columns<S: Load<D, T, N, B>, const K: usize>(
        &self,
        simd: S,
        column: usize,
        count: usize,
        sums: &mut [[T; N]],
    ) {
        let (vectors, bytes_of) = (count.div_ceil(N), |numbers| self.w.encoding().bytes_of(numbers));
        let range = bytes_of(self.first)..bytes_of(self.first + count);
        let weights: [&[u8]; K] = std::array::from_fn(|k| &self.w.line(column + k)[range.clone()]);
        for weights in weights {
            weights.chunks(64).for_each(|line| prefetch(line, AHEAD * self.w.line_bytes()));
        }
        let whole = weights.map(|weights| weights.as_chunks::<B>().0);
        let last: [[u8; B]; K] = weights.map(|weights| {
            let rest = weights.as_chunks::<B>().1;
            let mut last = [0; B];
            last[..rest.len()].copy_from_slice(rest);
            last
        });
        for (x, sums) in self.x.chunks_exact(self.w.cols()).zip(sums.chunks_exact_mut(vectors)) {
            let mut factors = [simd.splat(T::default()); K];
            for k in 0..K {
                factors[k] = simd.splat(x[column + k]);
            }
            for (vector, sum) in sums.iter_mut().enumerate() {
                let mut total = simd.load(sum);
                for k in 0..K {
                    let weights = simd.load_weights(whole[k].get(vector).unwrap_or(&last[k]));
                    total = simd.mul_add(weights, factors[k], total);
                }
                *sum = simd.store(total);
            }
        }
    }
}

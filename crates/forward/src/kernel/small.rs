//! Products of few inputs: each row of weights is read once, in the order of the file, and multiplied with all inputs.
//!
//! The weights come from memory, whose bandwidth is the limit, so they are widened and multiplied in f32 as they are.

#![expect(
    clippy::inline_always,
    reason = "a method becomes instructions only as a part of the function that is compiled for them"
)]
#![expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::needless_range_loop,
    reason = "sizes belong to each other since the product was made; where they did not, an index would panic"
)]

use std::marker::PhantomData;

use super::Matrix;
use super::pool::{Pool, columns};
use super::prefetch::prefetch;
use super::product::{Number, Product};
use super::simd::{Load, Work};

/// The most inputs that are few.
pub(super) const MOST: usize = 8;

/// About how many bytes of rows a thread takes at a time.
const CHUNK: usize = 1 << 17;

/// Rows and inputs whose sums are computed together, so that they share what is loaded.
const ROWS: usize = 4;
const INPUTS: usize = 4;

/// Sums of one row with one input, so that an addition need not wait for the one before it.
const SUMS: usize = 4;

/// Bytes that the CPU reads from memory at a time.
const LINE: usize = 64;

/// How many bytes ahead of their use weights are read from memory.
const AHEAD: usize = 4096;

/// `y[m, rows] = x[m, cols] · Wᵀ + bias`, for weights of dtype `D`, of which `B` bytes are `N` numbers.
pub(super) fn linear<D, T, S, const N: usize, const B: usize>(simd: S, pool: &Pool, product: Product<'_, T>)
where
    D: Send + Sync,
    T: Number,
    S: Load<D, T, N, B>,
{
    let Product { w, x, m, bias, y } = product;
    let inputs: Vec<Vec<[T; N]>> = x.chunks(w.cols().max(1)).map(padded).collect();
    let rows =
        CHUNK.checked_div(w.row_bytes()).unwrap_or(CHUNK).clamp(1, w.rows().max(1)).next_multiple_of(ROWS);
    let inputs = if w.cols() == 0 { vec![Vec::new(); m] } else { inputs };
    pool.for_each(columns(y, w.rows(), rows), |(first, mut y)| {
        simd.run(Few::<_, _, N, B> { w, inputs: &inputs, bias, first, y: &mut y, dtype: PhantomData::<D> });
    });
}

/// Numbers in whole vectors; zeros fill the last one.
fn padded<T: Number, const N: usize>(x: &[T]) -> Vec<[T; N]> {
    let (whole, rest) = x.as_chunks::<N>();
    let mut vectors = whole.to_vec();
    if !rest.is_empty() {
        let mut last = [T::default(); N];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        vectors.push(last);
    }
    vectors
}

/// The part of a product that one thread takes: some rows of weights, all inputs.
struct Few<'a, 'y, D, T, const N: usize, const B: usize> {
    w: &'a Matrix,
    inputs: &'a [Vec<[T; N]>],
    bias: Option<&'a [T]>,
    /// The first row.
    first: usize,
    /// The sums of each input with these rows.
    y: &'a mut [&'y mut [T]],
    dtype: PhantomData<D>,
}

impl<D, T: Number, S: Load<D, T, N, B>, const N: usize, const B: usize> Work<S> for Few<'_, '_, D, T, N, B> {
    type Output = ();

    #[inline(always)]
    fn run(mut self, simd: S) {
        let count = self.y.first().map_or(0, |y| y.len());
        let mut at = 0;
        while at < count {
            let rows = if count - at >= ROWS { ROWS } else { 1 };
            let mut input = 0;
            while input < self.inputs.len() {
                if rows == ROWS && self.inputs.len() - input >= INPUTS {
                    self.sums(simd, at, input);
                    input += INPUTS;
                } else {
                    for row in at..at + rows {
                        self.sum(simd, row, input);
                    }
                    input += 1;
                }
            }
            at += rows;
        }
    }
}

impl<D, T: Number, const N: usize, const B: usize> Few<'_, '_, D, T, N, B> {
    /// Computes the sum of row `at` of these with an input. The bytes of the row are read in their order: the memory is faster
    /// then than with several rows at once.
    #[inline(always)]
    fn sum<S: Load<D, T, N, B>>(&mut self, simd: S, at: usize, input: usize) {
        let (chunks, rest) = self.w.row(self.first + at).as_chunks::<B>();
        let (blocks, left) = chunks.as_chunks::<SUMS>();
        let vectors = self.inputs[input].as_slice();
        let mut sums = [simd.splat(T::default()); SUMS];
        for (block, vectors) in blocks.iter().zip(vectors.as_chunks::<SUMS>().0) {
            for i in 0..SUMS {
                if (i * B).is_multiple_of(LINE) {
                    prefetch(&block[i], AHEAD);
                }
                sums[i] = simd.mul_add(simd.load_weights(&block[i]), simd.load(&vectors[i]), sums[i]);
            }
        }
        let mut last = [0; B];
        last[..rest.len()].copy_from_slice(rest);
        let left = left.iter().chain((!rest.is_empty()).then_some(&last));
        for (chunk, vector) in left.zip(&vectors[blocks.len() * SUMS..]) {
            sums[0] = simd.mul_add(simd.load_weights(chunk), simd.load(vector), sums[0]);
        }
        let mut sum = self.bias.map_or(T::default(), |bias| bias[self.first + at]);
        for part in sums {
            sum = sum + total(simd.store(part));
        }
        self.y[input][at] = sum;
    }

    /// Computes the sums of `ROWS` rows from row `at` of these on with `INPUTS` inputs from `input` on.
    #[inline(always)]
    fn sums<S: Load<D, T, N, B>>(&mut self, simd: S, at: usize, input: usize) {
        const R: usize = ROWS;
        const M: usize = INPUTS;
        let rows: [&[u8]; R] = std::array::from_fn(|r| self.w.row(self.first + at + r));
        let inputs: [&[[T; N]]; M] = std::array::from_fn(|m| self.inputs[input + m].as_slice());
        let mut sums = [[simd.splat(T::default()); M]; R];
        let whole = self.w.cols() / N;
        let chunks = rows.map(|row| &row.as_chunks::<B>().0[..whole]);
        let vectors = inputs.map(|input| &input[..whole]);
        for i in 0..whole {
            for r in 0..R {
                prefetch(&chunks[r][i], AHEAD);
                let w = simd.load_weights(&chunks[r][i]);
                for m in 0..M {
                    sums[r][m] = simd.mul_add(w, simd.load(&vectors[m][i]), sums[r][m]);
                }
            }
        }
        if self.w.cols() > whole * N {
            for r in 0..R {
                let rest = rows[r].as_chunks::<B>().1;
                let mut last = [0; B];
                last[..rest.len()].copy_from_slice(rest);
                let w = simd.load_weights(&last);
                for m in 0..M {
                    sums[r][m] = simd.mul_add(w, simd.load(&inputs[m][whole]), sums[r][m]);
                }
            }
        }
        for r in 0..R {
            let bias = self.bias.map_or(T::default(), |bias| bias[self.first + at + r]);
            for m in 0..M {
                self.y[input + m][at + r] = total(simd.store(sums[r][m])) + bias;
            }
        }
    }
}

/// The sum of the elements, in pairs.
#[inline(always)]
fn total<T: Number, const N: usize>(elements: [T; N]) -> T {
    let (mut elements, mut half) = (elements, N / 2);
    while half > 0 {
        for i in 0..half {
            elements[i] = elements[i] + elements[i + half];
        }
        half /= 2;
    }
    elements[0]
}

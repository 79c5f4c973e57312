//! Products of few inputs: each row of weights is read once, in the order of the file, and multiplied with all inputs.
//!
//! The weights come from memory, whose bandwidth is the limit, so they are widened and multiplied in f32 as they are.

#![expect(
    clippy::inline_always,
    reason = "a method becomes instructions only as a part of the function that is compiled for them"
)]
#![expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "sizes belong to each other since the product was made; where they did not, an index would panic"
)]

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use kernels::{Load, SimdWork, prefetch};

use super::Matrix;
use super::pool::Pool;
use super::product::{ALIKE_INPUTS_MAX, KernelNumber, Product};

/// Approximate bytes of rows that a thread takes at a time, at least and at most. Memory is slow at first where a
/// thread starts anew.
const CHUNK: RangeInclusive<usize> = 1 << 16..=1 << 22;

/// Rows and inputs whose sums are computed together, so that they share loaded numbers.
const ROWS: usize = 4;
const INPUTS: usize = 4;

/// Inputs whose sums with one row are computed together where rows are computed alike.
const ALIKE_INPUTS: usize = 2;

/// Number of partial sums of one row with one input, so that an addition need not wait for the previous one.
const SUMS: usize = 4;

/// Size of a cache line in bytes.
const LINE: usize = 64;

/// Prefetch distance in bytes.
pub(super) const AHEAD: usize = 4096;

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
    for_each_part(pool, products, |part| {
        simd.run(FewInputsWork::<_, _, N, B> { lines: part.row_bytes(), part, dtype: PhantomData::<D> });
    });
}

/// Calls `work` with each part of the products, on all threads.
pub(super) fn for_each_part<T: KernelNumber, const N: usize>(
    pool: &Pool,
    products: Vec<Product<'_, T>>,
    work: impl Fn(ProductPart<'_, '_, T, N>) + Send + Sync,
) {
    let (mut shared, mut outputs) = (Vec::new(), Vec::new());
    for Product { w, x, bias, y, is_alike, .. } in products {
        shared.push(SharedOperands { w, inputs: PaddedInputs::new(x, w.cols()), bias, is_alike });
        outputs.push(y);
    }
    let left = shared.iter().map(|shared| shared.w.bytes().len()).sum();
    let wholes = shared.iter().zip(outputs).map(|(shared, y)| ProductPart::whole_product(shared, y));
    let parts = ProductParts { wholes, current: None, left, threads: pool.threads() };
    pool.for_each(parts, work);
}

/// Operands that all parts of a product share.
pub(super) struct SharedOperands<'a, T: KernelNumber, const N: usize> {
    w: &'a Matrix,
    pub(super) inputs: PaddedInputs<'a, T, N>,
    pub(super) bias: Option<&'a [T]>,
    is_alike: bool,
}

/// Inputs in whole vectors; zeros fill the last vector of each input.
pub(super) struct PaddedInputs<'a, T: KernelNumber, const N: usize> {
    vectors: Cow<'a, [[T; N]]>,
    vectors_per_input: usize,
}

impl<'a, T: KernelNumber, const N: usize> PaddedInputs<'a, T, N> {
    fn new(x: &'a [T], cols: usize) -> Self {
        let each = cols.div_ceil(N);
        if let (vectors, []) = x.as_chunks::<N>()
            && cols.is_multiple_of(N)
        {
            return Self { vectors: vectors.into(), vectors_per_input: each };
        }
        let mut vectors = Vec::with_capacity(x.len() / cols * each);
        for x in x.chunks_exact(cols) {
            let (whole, rest) = x.as_chunks::<N>();
            vectors.extend_from_slice(whole);
            if !rest.is_empty() {
                let mut last = [T::default(); N];
                last[..rest.len()].copy_from_slice(rest);
                vectors.push(last);
            }
        }
        Self { vectors: vectors.into(), vectors_per_input: each }
    }

    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.vectors.len() / self.vectors_per_input
    }

    #[inline(always)]
    pub(super) fn input(&self, number: usize) -> &[[T; N]] {
        &self.vectors[number * self.vectors_per_input..][..self.vectors_per_input]
    }
}

/// Part of a product that one thread takes: some rows of weights, all inputs.
pub(super) struct ProductPart<'a, 'y, T: KernelNumber, const N: usize> {
    pub(super) shared: &'a SharedOperands<'a, T, N>,
    /// Index of the first row.
    pub(super) first: usize,
    /// Outputs of each input for these rows; empty after the last input.
    pub(super) y: [&'y mut [T]; ALIKE_INPUTS_MAX],
}

impl<'a, 'y, T: KernelNumber, const N: usize> ProductPart<'a, 'y, T, N> {
    fn whole_product(shared: &'a SharedOperands<'a, T, N>, y: &'y mut [T]) -> Self {
        let mut all = y.chunks_exact_mut(shared.w.rows());
        Self { shared, first: 0, y: std::array::from_fn(|_| all.next().unwrap_or_default()) }
    }

    pub(super) fn row_bytes(&self) -> RowBytes<'a> {
        RowBytes { lines: self.shared.w.lines_from(self.first), size: self.shared.w.line_bytes() }
    }

    /// Cuts off the first rows, and returns them.
    fn split_off_rows(&mut self, rows: usize) -> Self {
        let rows = rows.min(self.y[0].len());
        let y = self.y.each_mut().map(|rest| {
            let count = rows.min(rest.len());
            let (part, after) = std::mem::take(rest).split_at_mut(count);
            *rest = after;
            part
        });
        let part = Self { shared: self.shared, first: self.first, y };
        self.first += rows;
        part
    }
}

/// Bytes of the rows of a part.
#[derive(Clone, Copy)]
pub(super) struct RowBytes<'a> {
    lines: &'a [u8],
    size: usize,
}

impl<'a> RowBytes<'a> {
    #[inline(always)]
    pub(super) fn row(self, at: usize) -> &'a [u8] {
        &self.lines[at * self.size..][..self.size]
    }
}

/// Iterator over the parts of products, in the order of the rows: large ones first, so that threads start anew seldom,
/// then smaller and smaller ones, so that they finish together.
struct ProductParts<'a, 'y, T: KernelNumber, I, const N: usize> {
    wholes: I,
    /// Rest of the product that parts are cut off.
    current: Option<ProductPart<'a, 'y, T, N>>,
    /// Bytes of all rows that are left.
    left: usize,
    threads: usize,
}

impl<'a, 'y, T, I, const N: usize> Iterator for ProductParts<'a, 'y, T, I, N>
where
    T: KernelNumber,
    I: Iterator<Item = ProductPart<'a, 'y, T, N>>,
{
    type Item = ProductPart<'a, 'y, T, N>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.current.as_ref().is_none_or(|current| current.y[0].is_empty()) {
            self.current = Some(self.wholes.next()?);
        }
        let current = self.current.as_mut()?;
        let line = current.shared.w.line_bytes().max(1);
        let bytes = (self.left / self.threads / 2).clamp(*CHUNK.start(), *CHUNK.end());
        let part = current.split_off_rows((bytes / line).max(1).next_multiple_of(ROWS));
        self.left -= part.y[0].len() * line;
        Some(part)
    }
}

/// Part of a product, with the dtype of its weights.
struct FewInputsWork<'a, 'y, D, T: KernelNumber, const N: usize, const B: usize> {
    part: ProductPart<'a, 'y, T, N>,
    lines: RowBytes<'a>,
    dtype: PhantomData<D>,
}

impl<D, T: KernelNumber, S: Load<D, T, N, B>, const N: usize, const B: usize> SimdWork<S>
    for FewInputsWork<'_, '_, D, T, N, B>
{
    type Output = ();

    #[inline(always)]
    fn run(mut self, simd: S) {
        let (count, inputs) = (self.part.y[0].len(), self.part.shared.inputs.count());
        let mut at = 0;
        while at < count {
            let rows = if count - at >= ROWS { ROWS } else { 1 };
            let mut input = 0;
            while input < inputs {
                if !self.part.shared.is_alike && rows == ROWS && inputs - input >= INPUTS {
                    self.sum_rows(simd, at, input);
                    input += INPUTS;
                } else if self.part.shared.is_alike && inputs - input >= ALIKE_INPUTS {
                    (at..at + rows).for_each(|row| self.sum_row::<S, ALIKE_INPUTS>(simd, row, input));
                    input += ALIKE_INPUTS;
                } else {
                    (at..at + rows).for_each(|row| self.sum_row::<S, 1>(simd, row, input));
                    input += 1;
                }
            }
            at += rows;
        }
    }
}

impl<D, T: KernelNumber, const N: usize, const B: usize> FewInputsWork<'_, '_, D, T, N, B> {
    /// Computes the sums of row `at` of this part with `M` inputs from `input` on; each sum is the same for any `M`. The bytes of the
    /// row are read in order: memory is faster then than with several rows at once.
    #[inline(always)]
    fn sum_row<S: Load<D, T, N, B>, const M: usize>(&mut self, simd: S, at: usize, input: usize) {
        let SharedOperands { inputs, bias, .. } = self.part.shared;
        let (chunks, rest) = self.lines.row(at).as_chunks::<B>();
        let (blocks, left) = chunks.as_chunks::<SUMS>();
        let vectors: [&[[T; N]]; M] = std::array::from_fn(|m| inputs.input(input + m));
        let of_blocks = vectors.map(|vectors| &vectors.as_chunks::<SUMS>().0[..blocks.len()]);
        let mut sums = [[simd.splat(T::default()); SUMS]; M];
        for (number, block) in blocks.iter().enumerate() {
            for i in 0..SUMS {
                if (i * B).is_multiple_of(LINE) {
                    prefetch(&block[i], AHEAD);
                }
                let weights = simd.load_weights(&block[i]);
                for m in 0..M {
                    sums[m][i] = simd.mul_add(weights, simd.load(&of_blocks[m][number][i]), sums[m][i]);
                }
            }
        }
        let mut last = [0; B];
        last[..rest.len()].copy_from_slice(rest);
        let left = left.iter().chain((!rest.is_empty()).then_some(&last));
        for (chunk, number) in left.zip(blocks.len() * SUMS..) {
            let weights = simd.load_weights(chunk);
            for m in 0..M {
                sums[m][0] = simd.mul_add(weights, simd.load(&vectors[m][number]), sums[m][0]);
            }
        }
        for (m, sums) in sums.into_iter().enumerate() {
            let mut sum = bias.map_or(T::default(), |bias| bias[self.part.first + at]);
            for part in sums {
                sum = sum + sum_in_pairs(simd.store(part));
            }
            self.part.y[input + m][at] = sum;
        }
    }

    /// Computes the sums of `ROWS` rows from row `at` of this part on with `INPUTS` inputs from `input` on.
    #[inline(always)]
    fn sum_rows<S: Load<D, T, N, B>>(&mut self, simd: S, at: usize, input: usize) {
        const R: usize = ROWS;
        const M: usize = INPUTS;
        let SharedOperands { w, inputs, bias, .. } = self.part.shared;
        let rows: [&[u8]; R] = std::array::from_fn(|r| self.lines.row(at + r));
        let inputs: [&[[T; N]]; M] = std::array::from_fn(|m| inputs.input(input + m));
        let mut sums = [[simd.splat(T::default()); M]; R];
        let whole = w.cols() / N;
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
        if w.cols() > whole * N {
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
            let bias = bias.map_or(T::default(), |bias| bias[self.part.first + at + r]);
            for m in 0..M {
                self.part.y[input + m][at + r] = sum_in_pairs(simd.store(sums[r][m])) + bias;
            }
        }
    }
}

/// Returns the sum of the elements, added in pairs.
#[inline(always)]
pub(super) fn sum_in_pairs<T: KernelNumber, const N: usize>(elements: [T; N]) -> T {
    let (mut elements, mut half) = (elements, N / 2);
    while half > 0 {
        for i in 0..half {
            elements[i] = elements[i] + elements[i + half];
        }
        half /= 2;
    }
    elements[0]
}

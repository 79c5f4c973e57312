//! Products of many inputs: blocks of weights are widened into a buffer that fits in the L2 cache, and each block is
//! multiplied with all inputs before the next block is read.
//!
//! The outputs are computed transposed: vectors go along the inputs, which are rearranged once for each product, so that
//! weights can be widened row by row as they are.
//!
//! Facts: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 34, 2008), for the blocks.

#![expect(
    clippy::inline_always,
    reason = "a method becomes instructions only as a part of the function that is compiled for them"
)]
#![expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "sizes belong to each other since the product was made; where they did not, an index would panic"
)]

use std::marker::PhantomData;
use std::ops::Range;

use kernels::{Instructions, Load, Simd, SimdWork, prefetch};

use super::Matrix;
use super::pool::{Pool, split_columns};
use super::product::{KernelNumber, Product};

/// Computation of the products of a tile of `R` rows of weights with `V` vectors of `N` inputs.
pub(super) trait TileKernel<T: KernelNumber, const N: usize, const V: usize, const R: usize>:
    Copy + Send + Sync
{
    /// Instruction set for all other operations.
    type Simd: Simd<T, N>;
    /// Block of `STEP` columns of `R` rows of weights.
    type Weights: Copy + Send + Sync;
    /// Block of the same columns of the inputs.
    type Inputs: Copy + Send + Sync;

    const STEP: usize;
    /// Number of blocks that are multiplied before the sums go back to memory.
    const STEPS: usize;
    /// Rows of weights that are multiplied with all inputs before the next rows are read: the L2 cache holds them, as
    /// many columns of the inputs, and the sums.
    const ROWS: usize;

    fn simd(self) -> Self::Simd;
    fn zero_weights(self) -> Self::Weights;
    fn zero_inputs(self) -> Self::Inputs;
    /// Copies the bytes of a row of weights into row `row` of `to`.
    fn put_weights(self, bytes: &[u8], row: usize, to: &mut [Self::Weights]);
    /// Copies up to `N` inputs into vector `vector` of `to`.
    fn put_inputs(self, x: &[&[T]], vector: usize, to: &mut [Self::Inputs]);
    fn multiply(self, step: TileStep<'_, Self::Weights, Self::Inputs, TileSums<T, N, V, R>>);
}

pub(super) type TileSums<T, const N: usize, const V: usize, const R: usize> = Aligned<[[[T; N]; V]; R]>;

/// Step of a product: tiles of weights times panels of inputs.
pub(super) struct TileStep<'a, W, X, C> {
    /// Blocks of weights: `count` of each tile, one tile after the other.
    pub(super) weights: &'a [W],
    /// Blocks of inputs: `count` of each panel, one panel after the other.
    inputs: &'a [X],
    pub(super) count: usize,
    /// Sums of each tile with the first panel, then with the second, and so on.
    sums: &'a mut [C],
    /// True in the first step, where the sums count as 0.
    pub(super) first: bool,
    next: PrefetchRange<'a>,
}

/// Bytes to prefetch: the same range of several rows.
struct PrefetchRange<'a> {
    rows: &'a [u8],
    row_bytes: usize,
    range: Range<usize>,
}

impl<W, X, C> TileStep<'_, W, X, C> {
    /// Iterates over the panels with their sums. An equal part of the next bytes is prefetched with each panel.
    #[inline(always)]
    pub(super) fn panels(&mut self) -> impl Iterator<Item = (&[X], &mut [C])> {
        let panels = self.inputs.len() / self.count;
        let rows = (self.next.rows.len() / self.next.row_bytes).div_ceil(panels);
        let (tiles, next) = (self.sums.len() / panels, &self.next);
        let panels = self.inputs.chunks_exact(self.count).zip(self.sums.chunks_exact_mut(tiles));
        panels.enumerate().map(move |(number, panel)| {
            for row in next.rows.chunks_exact(next.row_bytes).skip(number * rows).take(rows) {
                for line in row[next.range.clone()].chunks(64) {
                    prefetch(line, 0);
                }
            }
            panel
        })
    }
}

/// Number of inputs that are multiplied with a block of weights before the next block is read.
const INPUTS: usize = 512;

/// Prefetch distance, in rows, of the first weights of a block.
const AHEAD: usize = 8;

/// Computes `y[m, rows] = x[m, cols] · Wᵀ + bias` of each product.
pub(super) fn linear<T, K, const N: usize, const V: usize, const R: usize>(
    tile: K,
    pool: &Pool,
    products: Vec<Product<'_, T>>,
) where
    T: KernelNumber,
    K: TileKernel<T, N, V, R>,
{
    let mut all: Vec<InputPanels<'_, T, K::Inputs>> = Vec::new();
    for Product { w, x, m, .. } in &products {
        if !all.iter().any(|other| other.is_rearranged_from(x, w.cols())) {
            let count = w.cols().div_ceil(K::STEP) * m.div_ceil(V * N);
            all.push(InputPanels { x, cols: w.cols(), inputs: vec![tile.zero_inputs(); count] });
        }
    }
    let jobs = all.iter_mut().flat_map(|InputPanels { x, cols, inputs }| {
        let (cols, steps) = (*cols, cols.div_ceil(K::STEP));
        let blocks = inputs.chunks_mut(steps * (INPUTS / (V * N))).zip(x.chunks(cols * INPUTS));
        blocks.flat_map(move |(block, x)| {
            let panels = block.len() / steps;
            let parts = block.chunks_mut(K::STEPS * panels).zip((0..cols).step_by(K::STEPS * K::STEP));
            parts.map(move |(part, start)| (part, x, cols, start..cols.min(start + K::STEPS * K::STEP)))
        })
    });
    pool.for_each(jobs, |(part, x, cols, range)| {
        let panels = part.chunks_exact_mut(range.len().div_ceil(K::STEP));
        let x: Vec<&[T]> = x.chunks_exact(cols).map(|x| &x[range.clone()]).collect();
        for (panel, x) in panels.zip(x.chunks(V * N)) {
            for (vector, x) in x.chunks(N).enumerate() {
                tile.put_inputs(x, vector, panel);
            }
        }
    });
    let rows = rows_at_once(&products, pool.threads(), R, K::ROWS.next_multiple_of(R));
    let mut jobs = Vec::new();
    for Product { w, x, bias, y, .. } in products {
        let inputs = all.iter().find(|other| other.is_rearranged_from(x, w.cols()));
        let inputs = inputs.map_or(&[][..], |other| other.inputs.as_slice());
        let steps = w.cols().div_ceil(K::STEP);
        let blocks = inputs.chunks(steps * (INPUTS / (V * N))).zip(y.chunks_mut(w.rows() * INPUTS));
        for (inputs, y) in blocks {
            let columns = split_columns(y, w.rows(), rows).into_iter();
            jobs.extend(columns.map(|(first, y)| TiledBlock { w, inputs, bias, first, y }));
        }
    }
    pool.for_each(jobs, |block| block.run(tile));
}

/// Inputs of one or several products, rearranged in panels.
struct InputPanels<'a, T, X> {
    x: &'a [T],
    cols: usize,
    inputs: Vec<X>,
}

impl<T, X> InputPanels<'_, T, X> {
    fn is_rearranged_from(&self, x: &[T], cols: usize) -> bool {
        std::ptr::eq(self.x, x) && self.cols == cols
    }
}

/// Returns the number of rows of weights that a thread takes at a time: a multiple of `tile`, at most `most`, for which
/// the threads finish at about the same time.
fn rows_at_once<T: KernelNumber>(
    products: &[Product<'_, T>],
    threads: usize,
    tile: usize,
    most: usize,
) -> usize {
    let longest = |rows: &usize| {
        let mut threads = vec![0; threads];
        for Product { w, m, .. } in products {
            for block in (0..*m).step_by(INPUTS) {
                for first in (0..w.rows()).step_by(*rows) {
                    let work = w.cols() * (w.rows() - first).min(*rows) * (m - block).min(INPUTS);
                    // The thread that finishes first takes the next block.
                    if let Some(first) = threads.iter_mut().min() {
                        *first += work;
                    }
                }
            }
        }
        threads.into_iter().max()
    };
    let fewest = (most / 2).next_multiple_of(tile);
    (fewest..=most).rev().filter(|rows| rows.is_multiple_of(tile)).min_by_key(longest).unwrap_or(most)
}

/// Part of a product that one thread takes: some rows of weights, some inputs.
struct TiledBlock<'a, 'y, T, X> {
    w: &'a Matrix,
    /// Panels of the inputs, one after the other for each step.
    inputs: &'a [X],
    bias: Option<&'a [T]>,
    first: usize,
    /// Outputs of each input for these rows.
    y: Vec<&'y mut [T]>,
}

impl<T: KernelNumber, X> TiledBlock<'_, '_, T, X> {
    fn run<K, const N: usize, const V: usize, const R: usize>(mut self, tile: K)
    where
        K: TileKernel<T, N, V, R, Inputs = X>,
    {
        let row_bytes = self.w.line_bytes();
        let count = self.y.first().map_or(0, |y| y.len());
        let rows = &self.w.lines_from(self.first)[..count * row_bytes];
        let (tiles, panels) = (count.div_ceil(R), self.y.len().div_ceil(V * N));
        let steps = self.inputs.len() / panels;
        let mut weights = vec![tile.zero_weights(); tiles * steps.min(K::STEPS)];
        let mut sums = vec![Aligned([[[T::default(); N]; V]; R]); tiles * panels];
        let bytes_before = |step: usize| self.w.encoding().bytes_of(step * K::STEP).min(row_bytes);
        let bytes = |step: usize| bytes_before(step)..bytes_before(step + K::STEPS);
        for (start, inputs) in (0..steps).step_by(K::STEPS).zip(self.inputs.chunks(K::STEPS * panels)) {
            let count = inputs.len() / panels;
            for (row, all) in rows.chunks_exact(row_bytes).enumerate() {
                if start == 0 {
                    // No earlier step prefetched the first weights.
                    bytes(0).step_by(64).for_each(|at| prefetch(&all[at..], AHEAD * row_bytes));
                }
                tile.put_weights(&all[bytes(start)], row % R, &mut weights[row / R * count..][..count]);
            }
            tile.multiply(TileStep {
                weights: &weights[..tiles * count],
                inputs,
                count,
                sums: &mut sums,
                first: start == 0,
                next: PrefetchRange { rows, row_bytes, range: bytes(start + K::STEPS) },
            });
        }
        let bias = self.bias.map_or(&[][..], |bias| &bias[self.first..self.first + count]);
        tile.simd().run(WriteOutputs { sums: &sums, tiles, bias, y: &mut self.y });
    }
}

/// Work that writes the sums, plus the bias, to the outputs.
struct WriteOutputs<'a, 'y, T, const N: usize, const V: usize, const R: usize> {
    sums: &'a [TileSums<T, N, V, R>],
    tiles: usize,
    bias: &'a [T],
    y: &'a mut [&'y mut [T]],
}

impl<T: KernelNumber, S: Simd<T, N>, const N: usize, const V: usize, const R: usize> SimdWork<S>
    for WriteOutputs<'_, '_, T, N, V, R>
{
    type Output = ();

    #[inline(always)]
    fn run(self, simd: S) {
        let mut groups = self.y.chunks_mut(N);
        for panel in self.sums.chunks_exact(self.tiles) {
            for vector in 0..V {
                let Some(y) = groups.next() else { return };
                for (number, tile) in panel.iter().enumerate() {
                    for row in (0..R).step_by(N) {
                        let mut square = [[T::default(); N]; N];
                        for (to, from) in square.iter_mut().zip(&tile.0[row..]) {
                            *to = from[vector];
                        }
                        simd.transpose(&mut square);
                        let (at, rows) = (number * R + row, N.min(R - row));
                        for (y, sums) in y.iter_mut().zip(&square) {
                            // The last tile may have fewer rows.
                            let to = y.get_mut(at..).unwrap_or_default();
                            if to.len() >= rows {
                                to[..rows].copy_from_slice(&sums[..rows]);
                            } else {
                                to.copy_from_slice(&sums[..to.len()]);
                            }
                        }
                    }
                }
                if !self.bias.is_empty() {
                    for y in y {
                        y.iter_mut().zip(self.bias).for_each(|(y, bias)| *y = *y + *bias);
                    }
                }
            }
        }
    }
}

/// Value that is aligned to 64 bytes, so that no vector in it crosses a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Aligned<A>(pub(super) A);

/// Weights in tiles of `R` rows, in vectors of `N` numbers.
pub(super) type TileWeights<T, const N: usize, const R: usize> = Aligned<[[T; N]; R]>;

/// Tiles of weights that are widened, in vectors of `N` numbers, `B` bytes each.
pub(super) struct WidenedTile<D, S, const B: usize>(S, PhantomData<D>);

impl<D, S: Copy, const B: usize> Clone for WidenedTile<D, S, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D, S: Copy, const B: usize> Copy for WidenedTile<D, S, B> {}

impl<D, S, const B: usize> WidenedTile<D, S, B> {
    pub(super) fn new(simd: S) -> Self {
        Self(simd, PhantomData)
    }
}

impl<T, D, S, const N: usize, const V: usize, const R: usize, const B: usize> TileKernel<T, N, V, R>
    for WidenedTile<D, S, B>
where
    T: KernelNumber,
    D: Send + Sync,
    S: Load<D, T, N, B>,
{
    type Simd = S;
    type Weights = Aligned<[[T; N]; R]>;
    type Inputs = Aligned<[[[T; N]; V]; N]>;

    const STEP: usize = N;
    const STEPS: usize = 192 / N;
    const ROWS: usize = 192;

    fn simd(self) -> S {
        self.0
    }

    fn zero_weights(self) -> Self::Weights {
        Aligned([[T::default(); N]; R])
    }

    fn zero_inputs(self) -> Self::Inputs {
        Aligned([[[T::default(); N]; V]; N])
    }

    fn put_weights(self, bytes: &[u8], row: usize, to: &mut [Self::Weights]) {
        self.0.run(WidenRow { bytes, row, to, dtype: PhantomData::<D> });
    }

    fn put_inputs(self, x: &[&[T]], vector: usize, to: &mut [Self::Inputs]) {
        self.0.run(TransposeInputs {
            x,
            to,
            step: N,
            read: zero_padded,
            put: |to: &mut Self::Inputs, k: usize, x| to.0[k][vector] = x,
        });
    }

    fn multiply(self, step: TileStep<'_, Self::Weights, Self::Inputs, TileSums<T, N, V, R>>) {
        self.0.run(step);
    }
}

/// Rearrangement of inputs into vectors across the inputs: `read` makes a vector of some columns of one input, `put`
/// stores a vector of one column of all inputs.
pub(super) struct TransposeInputs<'a, T, X, F, G> {
    pub(super) x: &'a [&'a [T]],
    pub(super) to: &'a mut [X],
    /// Number of columns for each element of `to`.
    pub(super) step: usize,
    pub(super) read: F,
    pub(super) put: G,
}

impl<T, X, F, G, S, const N: usize> SimdWork<S> for TransposeInputs<'_, T, X, F, G>
where
    T: KernelNumber,
    S: Simd<T, N>,
    F: Fn(&[T]) -> [T; N],
    G: Fn(&mut X, usize, [T; N]),
{
    type Output = ();

    #[inline(always)]
    fn run(self, simd: S) {
        for (number, to) in self.to.iter_mut().enumerate() {
            let mut square = [[T::default(); N]; N];
            for (square, x) in square.iter_mut().zip(self.x) {
                let columns = x.len().min(number * self.step)..x.len().min((number + 1) * self.step);
                *square = (self.read)(&x[columns]);
            }
            simd.transpose(&mut square);
            for (k, x) in square.into_iter().enumerate() {
                (self.put)(to, k, x);
            }
        }
    }
}

/// Returns the numbers, followed by zeros.
#[inline(always)]
fn zero_padded<T: KernelNumber, const N: usize>(x: &[T]) -> [T; N] {
    x.try_into().unwrap_or_else(|_| {
        let mut padded = [T::default(); N];
        padded.iter_mut().zip(x).for_each(|(to, from)| *to = *from);
        padded
    })
}

/// Work that widens a row of weights of dtype `D`.
struct WidenRow<'a, D, T, const N: usize, const R: usize, const B: usize> {
    bytes: &'a [u8],
    row: usize,
    to: &'a mut [Aligned<[[T; N]; R]>],
    dtype: PhantomData<D>,
}

impl<D, T, S, const N: usize, const R: usize, const B: usize> SimdWork<S> for WidenRow<'_, D, T, N, R, B>
where
    T: KernelNumber,
    S: Load<D, T, N, B>,
{
    type Output = ();

    #[inline(always)]
    fn run(self, simd: S) {
        let (whole, rest) = self.bytes.as_chunks::<B>();
        for (to, from) in self.to.iter_mut().zip(whole) {
            to.0[self.row] = simd.store(simd.load_weights(from));
        }
        if let (Some(to), false) = (self.to.get_mut(whole.len()), rest.is_empty()) {
            let mut last = [0; B];
            last[..rest.len()].copy_from_slice(rest);
            to.0[self.row] = simd.store(simd.load_weights(&last));
        }
    }
}

impl<T, S, const N: usize, const V: usize, const R: usize> SimdWork<S>
    for TileStep<'_, Aligned<[[T; N]; R]>, Aligned<[[[T; N]; V]; N]>, TileSums<T, N, V, R>>
where
    T: KernelNumber,
    S: Simd<T, N>,
{
    type Output = ();

    #[inline(always)]
    fn run(mut self, simd: S) {
        let (weights, count, first) = (self.weights, self.count, self.first);
        for (panel, sums) in self.panels() {
            for (tile, sums) in weights.chunks_exact(count).zip(sums) {
                let mut totals = [[simd.splat(T::default()); V]; R];
                if !first {
                    // Loops, because the compiler turns `map` into calls.
                    for r in 0..R {
                        for v in 0..V {
                            totals[r][v] = simd.load(&sums.0[r][v]);
                        }
                    }
                }
                for (w, x) in tile.iter().zip(panel) {
                    for k in 0..N {
                        let x = &x.0[k];
                        for r in 0..R {
                            let w = simd.splat(w.0[r][k]);
                            for v in 0..V {
                                totals[r][v] = simd.mul_add(w, simd.load(&x[v]), totals[r][v]);
                            }
                        }
                    }
                }
                for r in 0..R {
                    for v in 0..V {
                        sums.0[r][v] = simd.store(totals[r][v]);
                    }
                }
            }
        }
    }
}

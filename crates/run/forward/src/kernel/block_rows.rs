//! Products with rows of blocks of `Q8_0`, whose numbers are a scale times codes.
//!
//! For few inputs, the codes of a block are multiplied with the inputs first, and their sum with the scale. Each sum is the same for any
//! number of inputs. For many inputs, blocks are widened as other weights are.

#![expect(
    clippy::inline_always,
    reason = "a method becomes instructions only as a part of the function that is compiled for them"
)]
#![expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "sizes belong to each other since the product was made; where they did not, an index would panic"
)]

use kernels::{F32, Load, LoadBlock, SimdWork, prefetch};

use super::few_inputs::{self, AHEAD, ProductPart, RowBytes, sum_in_pairs};
use super::many_inputs::{self, TileKernel, TileStep, TileSums, TileWeights, WidenedTile};
use super::pool::Pool;
use super::product::Product;

/// Inputs whose sums with one row are computed together, so that they share the codes of a block.
const INPUTS: usize = 4;

/// Bytes of a block.
const BLOCK: usize = 34;

/// Computes `y[m, rows] = x[m, cols] · Wᵀ + bias` of each product, which all have few or all have many inputs.
pub(super) fn linear<S, const V: usize, const R: usize>(simd: S, pool: &Pool, products: Vec<Product<'_, f32>>)
where
    S: LoadBlock + Load<F32, f32, 16, 64>,
{
    if products.iter().any(Product::has_many_inputs) {
        let tile = BlockTile(WidenedTile::<F32, S, 64>::new(simd));
        return many_inputs::linear::<f32, _, 16, V, R>(tile, pool, products);
    }
    few_inputs::for_each_part(pool, products, |part| {
        simd.run(BlockRowsWork { rows: part.row_bytes(), part });
    });
}

/// Computes products in f64, number by number: only a model of f64 with some blocks has them.
pub(super) fn linear_f64(pool: &Pool, products: Vec<Product<'_, f64>>) {
    for Product { w, x, bias, y, .. } in products {
        let rows = y.chunks_mut(w.rows()).zip(x.chunks(w.cols()));
        pool.for_each(rows, |(y, x)| {
            for (row, y) in y.iter_mut().enumerate() {
                let (mut sum, mut x) = (bias.map_or(0.0, |bias| bias[row]), x.iter());
                w.for_each_in_row(row, |number| sum += number * x.next().copied().unwrap_or_default());
                *y = sum;
            }
        });
    }
}

/// Part of a product with few inputs.
struct BlockRowsWork<'a, 'y> {
    part: ProductPart<'a, 'y, f32, 16>,
    rows: RowBytes<'a>,
}

impl<S: LoadBlock> SimdWork<S> for BlockRowsWork<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self, simd: S) {
        let inputs = self.part.shared.inputs.count();
        for row in 0..self.part.y[0].len() {
            let mut input = 0;
            while input + INPUTS <= inputs {
                self.sum_row::<S, INPUTS>(simd, row, input);
                input += INPUTS;
            }
            while input < inputs {
                self.sum_row::<S, 1>(simd, row, input);
                input += 1;
            }
        }
    }
}

impl BlockRowsWork<'_, '_> {
    /// Computes the sums of row `at` of this part with `M` inputs from `input` on.
    #[inline(always)]
    fn sum_row<S: LoadBlock, const M: usize>(&mut self, simd: S, at: usize, input: usize) {
        let (blocks, _) = self.rows.row(at).as_chunks::<BLOCK>();
        let shared = self.part.shared;
        let inputs: [&[[[f32; 16]; 2]]; M] =
            std::array::from_fn(|m| &shared.inputs.input(input + m).as_chunks::<2>().0[..blocks.len()]);
        let zero = simd.splat(0.0);
        let mut sums = [zero; M];
        for (number, block) in blocks.iter().enumerate() {
            // For each block, because every second one would leave out some cache lines.
            prefetch(block, AHEAD);
            let (scale, codes) = simd.load_block(block);
            for m in 0..M {
                let [first, second] = &inputs[m][number];
                let of_block = simd.mul_add(codes[0], simd.load(first), zero);
                let of_block = simd.mul_add(codes[1], simd.load(second), of_block);
                sums[m] = simd.mul_add(of_block, scale, sums[m]);
            }
        }
        for m in 0..M {
            let bias = shared.bias.map_or(0.0, |bias| bias[self.part.first + at]);
            self.part.y[input + m][at] = sum_in_pairs(simd.store(sums[m])) + bias;
        }
    }
}

/// Tiles of blocks, which differ from tiles of float32 numbers in how they are widened.
#[derive(Clone, Copy)]
struct BlockTile<T>(T);

impl<S, T, const V: usize, const R: usize> TileKernel<f32, 16, V, R> for BlockTile<T>
where
    S: LoadBlock,
    T: TileKernel<f32, 16, V, R, Simd = S, Weights = TileWeights<f32, 16, R>>,
{
    type Simd = S;
    type Weights = T::Weights;
    type Inputs = T::Inputs;

    const STEP: usize = T::STEP;
    const STEPS: usize = T::STEPS;
    const ROWS: usize = T::ROWS;

    fn simd(self) -> S {
        self.0.simd()
    }

    fn zero_weights(self) -> Self::Weights {
        self.0.zero_weights()
    }

    fn zero_inputs(self) -> Self::Inputs {
        self.0.zero_inputs()
    }

    fn put_weights(self, bytes: &[u8], row: usize, to: &mut [Self::Weights]) {
        self.simd().run(WidenBlocks { bytes, row, to });
    }

    fn put_inputs(self, x: &[&[f32]], vector: usize, to: &mut [Self::Inputs]) {
        self.0.put_inputs(x, vector, to);
    }

    fn multiply(self, step: TileStep<'_, Self::Weights, Self::Inputs, TileSums<f32, 16, V, R>>) {
        self.0.multiply(step);
    }
}

/// Work that widens a row of blocks.
struct WidenBlocks<'a, const R: usize> {
    bytes: &'a [u8],
    row: usize,
    to: &'a mut [TileWeights<f32, 16, R>],
}

impl<S: LoadBlock, const R: usize> SimdWork<S> for WidenBlocks<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run(self, simd: S) {
        let (blocks, _) = self.bytes.as_chunks::<BLOCK>();
        for ([first, second], block) in self.to.as_chunks_mut::<2>().0.iter_mut().zip(blocks) {
            let (scale, codes) = simd.load_block(block);
            let zero = simd.splat(0.0);
            first.0[self.row] = simd.store(simd.mul_add(codes[0], scale, zero));
            second.0[self.row] = simd.store(simd.mul_add(codes[1], scale, zero));
        }
    }
}

//! Products of bfloat16 weights with many inputs, which are rounded to bfloat16 as in PyTorch. Sums are f32.
//!
//! The CPU multiplies pairs of neighbouring columns, so inputs are rearranged in pairs. Subnormal numbers count as 0.

#![expect(
    clippy::inline_always,
    reason = "a method becomes instructions only as a part of the function that is compiled for them"
)]
#![expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "sizes belong to each other since the product was made; where they did not, an index would panic"
)]

use kernels::{AmxBf16, Avx512, Avx512Bf16, Bf16Inputs, Bf16Weights, Instructions, Simd, SimdWork, to_bf16};

use super::many_inputs::{TileKernel, TileStep, TileSums, TransposeInputs};

/// Products with the bfloat16 instructions of AVX-512.
#[derive(Clone, Copy)]
pub(super) struct Avx512Products(pub(super) Avx512Bf16);

/// Products with the bfloat16 instructions of AMX.
#[derive(Clone, Copy)]
pub(super) struct AmxProducts {
    pub(super) amx: AmxBf16,
    pub(super) avx512: Avx512,
}

const NO_INPUTS: Bf16Inputs = Bf16Inputs([[[[0; 2]; 16]; 2]; 16]);

const STEP: usize = 32;

/// Rounds at most 16 inputs to bfloat16, into vector `vector` of `to`.
fn put_inputs(avx512: Avx512, x: &[&[f32]], vector: usize, to: &mut [Bf16Inputs]) {
    // A pair has the size of an f32 number, so pairs are transposed as f32 numbers.
    let read = |x: &[f32]| {
        let mut pairs = [0.0; 16];
        for (pair, x) in pairs.iter_mut().zip(x.chunks(2)) {
            let second = x.get(1).map_or(0, |x| to_bf16(*x));
            *pair = f32::from_bits(u32::from(second) << 16 | u32::from(to_bf16(x[0])));
        }
        pairs
    };
    let put = |to: &mut Bf16Inputs, pair: usize, x: [f32; 16]| {
        for (to, x) in to.0[pair][vector].iter_mut().zip(x) {
            *to = [(x.to_bits() & 0xffff) as u16, (x.to_bits() >> 16) as u16];
        }
    };
    avx512.run(TransposeInputs { x, to, step: STEP, read, put });
}

/// Copies a row of weights into row `row` of `to`.
fn put_weights<const R: usize>(bytes: &[u8], row: usize, to: &mut [Bf16Weights<R>]) {
    let (whole, rest) = bytes.as_chunks::<64>();
    for (from, to) in whole.iter().zip(to.iter_mut()) {
        to.0[row] = *from;
    }
    if let (Some(to), false) = (to.get_mut(whole.len()), rest.is_empty()) {
        to.0[row] = [0; 64];
        to.0[row][..rest.len()].copy_from_slice(rest);
    }
}

/// Products of tiles of `R` rows of weights with 32 inputs, by AVX-512 or AMX.
pub(super) trait Bf16Products<const R: usize>: Copy + Send + Sync {
    /// Blocks of columns that are multiplied before the sums go back to memory.
    const STEPS: usize;
    /// Rows of weights that are multiplied with all inputs before the next rows are read.
    const ROWS: usize;

    /// Returns the AVX-512 instructions, for all other operations.
    fn avx512(self) -> Avx512;
    fn multiply(self, step: Bf16Step<'_, R>);
}

/// Weights, inputs and sums in tiles of `R` rows.
pub(super) type Bf16Step<'a, const R: usize> =
    TileStep<'a, Bf16Weights<R>, Bf16Inputs, TileSums<f32, 16, 2, R>>;

/// Tiles of bfloat16 weights and inputs.
#[derive(Clone, Copy)]
pub(super) struct Bf16Tile<P>(pub(super) P);

impl<P: Bf16Products<R>, const R: usize> TileKernel<f32, 16, 2, R> for Bf16Tile<P> {
    type Simd = Avx512;
    type Weights = Bf16Weights<R>;
    type Inputs = Bf16Inputs;

    const STEP: usize = STEP;
    const STEPS: usize = P::STEPS;
    const ROWS: usize = P::ROWS;

    fn simd(self) -> Avx512 {
        self.0.avx512()
    }

    fn zero_weights(self) -> Bf16Weights<R> {
        Bf16Weights([[0; 64]; R])
    }

    fn zero_inputs(self) -> Bf16Inputs {
        NO_INPUTS
    }

    fn put_weights(self, bytes: &[u8], row: usize, to: &mut [Bf16Weights<R>]) {
        put_weights(bytes, row, to);
    }

    fn put_inputs(self, x: &[&[f32]], vector: usize, to: &mut [Bf16Inputs]) {
        put_inputs(self.simd(), x, vector, to);
    }

    fn multiply(self, step: Bf16Step<'_, R>) {
        self.0.multiply(step);
    }
}

impl Bf16Products<12> for Avx512Products {
    const STEPS: usize = 12;
    const ROWS: usize = 192;

    fn avx512(self) -> Avx512 {
        self.0.avx512()
    }

    fn multiply(self, step: Bf16Step<'_, 12>) {
        self.0.run(step);
    }
}

impl SimdWork<Avx512Bf16> for Bf16Step<'_, 12> {
    type Output = ();

    #[inline(always)]
    fn run(mut self, simd: Avx512Bf16) {
        let (weights, count, first) = (self.weights, self.count, self.first);
        let avx512 = simd.avx512();
        for (panel, sums) in self.panels() {
            for (tile, sums) in weights.chunks_exact(count).zip(sums) {
                let mut totals = [[avx512.splat(0.0_f32); 2]; 12];
                if !first {
                    for r in 0..12 {
                        for v in 0..2 {
                            totals[r][v] = avx512.load(&sums.0[r][v]);
                        }
                    }
                }
                for (w, x) in tile.iter().zip(panel) {
                    for pair in 0..16 {
                        for r in 0..12 {
                            let w = w.0[r].as_chunks::<4>().0[pair];
                            for v in 0..2 {
                                totals[r][v] = simd.add_products(w, &x.0[pair][v], totals[r][v]);
                            }
                        }
                    }
                }
                for r in 0..12 {
                    for v in 0..2 {
                        sums.0[r][v] = avx512.store(totals[r][v]);
                    }
                }
            }
        }
    }
}

impl Bf16Products<32> for AmxProducts {
    const STEPS: usize = 8;
    const ROWS: usize = 256;

    fn avx512(self) -> Avx512 {
        self.avx512
    }

    fn multiply(self, mut step: Bf16Step<'_, 32>) {
        let (weights, count, first) = (step.weights, step.count, step.first);
        self.amx.run(|tiles| {
            for (panel, sums) in step.panels() {
                for (tile, sums) in weights.chunks_exact(count).zip(sums) {
                    tiles.add_products(tile, panel, first, &mut sums.0);
                }
            }
        });
    }
}

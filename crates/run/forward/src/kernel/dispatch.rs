//! Choice of the instruction set for a product.

use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use kernels::{AmxBf16, Avx2, Avx512, Avx512Bf16};
use kernels::{Bf16, F16, F32, F64, Load, LoadBlock, Portable};
use tensor::Dtype;

#[cfg(target_arch = "x86_64")]
use super::bf16;
use super::many_inputs::WidenedTile;
use super::matrix::Encoding;
use super::product::{FEW_INPUTS_MAX, KernelNumber, Product};
use super::{Pool, block_rows, column_major, few_inputs, many_inputs};

/// Rows of weights in a tile of portable code. SSE2 has 16 registers of four numbers, in which the sums of two rows leave space for the
/// factors; others have twice as many.
const PORTABLE_ROWS: usize = if cfg!(target_arch = "x86_64") { 2 } else { 4 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Portable code for every CPU.
    Portable,
    /// AVX2, FMA, F16C, BMI1 and BMI2.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512, and its bfloat16 products for many inputs with bfloat16 weights.
    Avx512Bf16,
    /// AVX-512, and AMX for many inputs with bfloat16 weights.
    AmxBf16,
}

impl Kernel {
    /// All kernels, the fastest last.
    pub(crate) const ALL: [Self; 5] =
        [Self::Portable, Self::Avx2, Self::Avx512, Self::Avx512Bf16, Self::AmxBf16];

    pub(crate) fn best() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        if kernels::uses_portable_code() {
            return Self::Portable;
        }
        *BEST.get_or_init(|| {
            Self::ALL.into_iter().rev().find(|kernel| kernel.is_available()).unwrap_or(Self::Portable)
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512-bf16",
            Self::AmxBf16 => "amx-bf16",
        }
    }

    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Avx2 => Avx2::detect().is_some(),
            Self::Avx512 => Avx512::detect().is_some(),
            Self::Avx512Bf16 => Avx512Bf16::detect().is_some(),
            Self::AmxBf16 => Avx512::detect().is_some() && AmxBf16::detect().is_some(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn is_available(self) -> bool {
        self == Self::Portable
    }

    /// Computes products in f32, as one batch of work for the threads.
    pub(crate) fn linear(self, pool: &Pool, products: Vec<Product<'_, f32>>) {
        for alike in group_products(products) {
            match (self, alike.first().map(|product| product.w.encoding())) {
                (_, Some(Encoding::Dtype(Dtype::Float64))) => self.linear_widened(pool, alike),
                (Self::Portable, _) => linear_portable(pool, alike),
                #[cfg(target_arch = "x86_64")]
                _ => self.linear_vectorized(pool, alike),
                #[cfg(not(target_arch = "x86_64"))]
                _ => linear_portable(pool, alike),
            }
        }
    }

    /// Computes products in f64 and rounds the results to f32.
    #[expect(clippy::cast_possible_truncation, reason = "sums in f64 are rounded to the nearest f32")]
    fn linear_widened(self, pool: &Pool, products: Vec<Product<'_, f32>>) {
        for Product { w, x, m, bias, y, is_alike } in products {
            let wide = |narrow: &[f32]| narrow.iter().copied().map(f64::from).collect::<Vec<_>>();
            let (x, bias, mut wide_y) = (wide(x), bias.map(wide), vec![0.0; y.len()]);
            let wide = Product { w, x: &x, m, bias: bias.as_deref(), y: &mut wide_y, is_alike };
            self.linear_f64(pool, vec![wide]);
            y.iter_mut().zip(wide_y).for_each(|(to, from)| *to = from as f32);
        }
    }

    /// Computes products of one group in f32 with the CPU's vector instructions.
    #[cfg(target_arch = "x86_64")]
    fn linear_vectorized(self, pool: &Pool, products: Vec<Product<'_, f32>>) {
        let most = products.iter().map(|product| product.m).max().unwrap_or(0);
        let is_many_bf16 = products.first().is_some_and(|it| {
            it.has_many_inputs()
                && !it.w.is_column_major()
                && it.w.encoding() == Encoding::Dtype(Dtype::BFloat16)
        });
        let (avx2, avx512) = (Avx2::detect(), Avx512::detect());
        match (self, avx2, avx512, Avx512Bf16::detect(), AmxBf16::detect()) {
            (Self::AmxBf16, _, Some(avx512), _, Some(amx)) if is_many_bf16 => {
                many_inputs::linear(bf16::Bf16Tile(bf16::AmxProducts { amx, avx512 }), pool, products);
            }
            (Self::Avx512Bf16, _, _, Some(pairs), _) if is_many_bf16 => {
                many_inputs::linear(bf16::Bf16Tile(bf16::Avx512Products(pairs)), pool, products);
            }
            (Self::Avx512 | Self::Avx512Bf16 | Self::AmxBf16, _, Some(simd), ..) if most > 16 => {
                linear_by_dtype::<_, 2, 12>(simd, pool, products);
            }
            (Self::Avx512 | Self::Avx512Bf16 | Self::AmxBf16, _, Some(simd), ..) => {
                linear_by_dtype::<_, 1, 12>(simd, pool, products);
            }
            (Self::Avx2, Some(simd), ..) => linear_by_dtype::<_, 1, 6>(simd, pool, products),
            _ => linear_portable(pool, products),
        }
    }

    pub(crate) fn linear_f64(self, pool: &Pool, products: Vec<Product<'_, f64>>) {
        for alike in group_products(products) {
            // Only an f64 model with some narrower weights has products of weights that are not f64.
            match alike.first().map(|product| product.w.encoding()) {
                Some(Encoding::Q8_0) => block_rows::linear_f64(pool, alike),
                Some(Encoding::Dtype(Dtype::BFloat16)) => linear_f64_few::<Bf16, 16>(pool, alike),
                Some(Encoding::Dtype(Dtype::Float16)) => linear_f64_few::<F16, 16>(pool, alike),
                Some(Encoding::Dtype(Dtype::Float32)) => linear_f64_few::<F32, 32>(pool, alike),
                #[cfg(target_arch = "x86_64")]
                _ => match (self, Avx2::detect(), Avx512::detect()) {
                    (Self::Avx512 | Self::Avx512Bf16 | Self::AmxBf16, _, Some(simd)) => {
                        linear_by_size::<F64, _, _, 8, 2, 12, 64>(simd, pool, alike);
                    }
                    (Self::Avx2, Some(simd), _) => {
                        linear_by_size::<F64, _, _, 8, 1, 6, 64>(simd, pool, alike);
                    }
                    _ => linear_by_size::<F64, _, _, 8, 1, PORTABLE_ROWS, 64>(Portable, pool, alike),
                },
                #[cfg(not(target_arch = "x86_64"))]
                _ => linear_by_size::<F64, _, _, 8, 1, PORTABLE_ROWS, 64>(Portable, pool, alike),
            }
        }
    }
}

/// Computes products in f64 in batches of few inputs.
fn linear_f64_few<D: Send + Sync, const B: usize>(pool: &Pool, products: Vec<Product<'_, f64>>)
where
    Portable: Load<D, f64, 8, B>,
{
    if products.iter().any(|product| product.w.is_column_major()) {
        return column_major::linear::<D, _, _, 8, B>(Portable, pool, products);
    }
    let parts = products.into_iter().flat_map(|product| product.split_inputs(FEW_INPUTS_MAX));
    few_inputs::linear::<D, _, _, 8, B>(Portable, pool, parts.collect());
}

/// Groups the products that are not empty by dtype, storage order, and few or many inputs.
fn group_products<T: KernelNumber>(mut products: Vec<Product<'_, T>>) -> Vec<Vec<Product<'_, T>>> {
    let mut groups: Vec<Vec<_>> = Vec::new();
    products.retain_mut(|product| !product.fill_if_empty());
    for product in products.into_iter().flat_map(Product::split_if_alike) {
        let is_alike = |group: &&mut Vec<Product<'_, T>>| {
            let way = |it: &Product<'_, T>| (it.w.encoding(), it.w.is_column_major(), it.has_many_inputs());
            group.first().is_some_and(|other| way(other) == way(&product))
        };
        match groups.iter_mut().find(is_alike) {
            Some(group) => group.push(product),
            None => groups.push(vec![product]),
        }
    }
    groups
}

fn linear_portable(pool: &Pool, products: Vec<Product<'_, f32>>) {
    linear_by_dtype::<_, 1, PORTABLE_ROWS>(Portable, pool, products);
}

/// Computes products with weights that are widened to f32, in tiles of `R` rows and `V` vectors.
fn linear_by_dtype<S, const V: usize, const R: usize>(simd: S, pool: &Pool, products: Vec<Product<'_, f32>>)
where
    S: Load<F32, f32, 16, 64> + Load<Bf16, f32, 16, 32> + Load<F16, f32, 16, 32> + LoadBlock,
{
    match products.first().map(|product| product.w.encoding()) {
        Some(Encoding::Q8_0) => block_rows::linear::<_, V, R>(simd, pool, products),
        Some(Encoding::Dtype(Dtype::BFloat16)) => {
            linear_by_size::<Bf16, _, _, 16, V, R, 32>(simd, pool, products);
        }
        Some(Encoding::Dtype(Dtype::Float16)) => {
            linear_by_size::<F16, _, _, 16, V, R, 32>(simd, pool, products);
        }
        _ => linear_by_size::<F32, _, _, 16, V, R, 64>(simd, pool, products),
    }
}

/// Computes products that all have few or all have many inputs.
fn linear_by_size<D, T, S, const N: usize, const V: usize, const R: usize, const B: usize>(
    simd: S,
    pool: &Pool,
    products: Vec<Product<'_, T>>,
) where
    D: Send + Sync,
    T: KernelNumber,
    S: Load<D, T, N, B>,
{
    if products.iter().any(|product| product.w.is_column_major()) {
        column_major::linear::<D, T, S, N, B>(simd, pool, products);
    } else if products.iter().any(Product::has_many_inputs) {
        many_inputs::linear::<T, _, N, V, R>(WidenedTile::<D, S, B>::new(simd), pool, products);
    } else {
        few_inputs::linear::<D, T, S, N, B>(simd, pool, products);
    }
}

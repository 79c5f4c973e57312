//! Which instructions a product uses.

use std::sync::OnceLock;

use tensor::Dtype;

#[cfg(target_arch = "x86_64")]
use super::bf16;
use super::product::{Number, Product};
use super::simd::{Bf16, F16, F32, F64, Load, Portable};
use super::tiled::Widened;
#[cfg(target_arch = "x86_64")]
use super::x86::{AmxBf16, Avx2, Avx512, Avx512Bf16};
use super::{Pool, small, tiled};

/// The instructions that products use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// What every CPU has.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// And its products of bfloat16 numbers, for many inputs.
    Avx512Bf16,
    /// AVX-512, and AMX for many inputs with bfloat16 weights.
    AmxBf16,
}

impl Kernel {
    /// All of them, the fastest last.
    pub(crate) const ALL: [Self; 5] =
        [Self::Portable, Self::Avx2, Self::Avx512, Self::Avx512Bf16, Self::AmxBf16];

    /// The fastest that the CPU has.
    pub(crate) fn best() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| {
            Self::ALL.into_iter().rev().find(|kernel| kernel.is_available()).unwrap_or(Self::Portable)
        })
    }

    /// The name, for reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512-bf16",
            Self::AmxBf16 => "amx-bf16",
        }
    }

    /// Whether the CPU has these instructions.
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

    /// Whether the CPU has these instructions.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn is_available(self) -> bool {
        self == Self::Portable
    }

    /// Computes a product in f32.
    #[expect(clippy::cast_possible_truncation, reason = "sums in f64 are rounded to the nearest f32")]
    pub(crate) fn linear(self, pool: &Pool, mut product: Product<'_, f32>) {
        if product.is_empty() {
            return;
        }
        if product.w.dtype() == Dtype::Float64 {
            let Product { w, x, m, bias, y } = product;
            let wide = |narrow: &[f32]| narrow.iter().copied().map(f64::from).collect::<Vec<_>>();
            let (x, bias, mut wide_y) = (wide(x), bias.map(wide), vec![0.0; y.len()]);
            self.linear_f64(pool, Product { w, x: &x, m, bias: bias.as_deref(), y: &mut wide_y });
            return y.iter_mut().zip(wide_y).for_each(|(to, from)| *to = from as f32);
        }
        match self {
            Self::Portable => portable(pool, product),
            #[cfg(target_arch = "x86_64")]
            _ => self.vectors(pool, product),
            #[cfg(not(target_arch = "x86_64"))]
            _ => portable(pool, product),
        }
    }

    /// Computes a product in f32 with the CPU's vectors.
    #[cfg(target_arch = "x86_64")]
    fn vectors(self, pool: &Pool, product: Product<'_, f32>) {
        let is_many_bf16 = product.w.dtype() == Dtype::BFloat16 && product.m > small::MOST;
        let (avx2, avx512) = (Avx2::detect(), Avx512::detect());
        match (self, avx2, avx512, Avx512Bf16::detect(), AmxBf16::detect()) {
            (Self::AmxBf16, _, Some(avx512), _, Some(amx)) if is_many_bf16 => {
                tiled::linear(bf16::Bf16Tile(bf16::Tiles { amx, avx512 }), pool, product);
            }
            (Self::Avx512Bf16, _, _, Some(pairs), _) if is_many_bf16 => {
                tiled::linear(bf16::Bf16Tile(bf16::Pairs(pairs)), pool, product);
            }
            (Self::Avx512 | Self::Avx512Bf16 | Self::AmxBf16, _, Some(simd), ..) if product.m > 16 => {
                any_dtype::<_, 2, 12>(simd, pool, product);
            }
            (Self::Avx512 | Self::Avx512Bf16 | Self::AmxBf16, _, Some(simd), ..) => {
                any_dtype::<_, 1, 12>(simd, pool, product);
            }
            (Self::Avx2, Some(simd), ..) => any_dtype::<_, 1, 6>(simd, pool, product),
            _ => portable(pool, product),
        }
    }

    /// Computes a product in f64.
    pub(crate) fn linear_f64(self, pool: &Pool, mut product: Product<'_, f64>) {
        if product.is_empty() {
            return;
        }
        match product.w.dtype() {
            // Only a f64 model with some narrower weights has these products.
            Dtype::BFloat16 => small::linear::<Bf16, _, _, 8, 16>(Portable, pool, product),
            Dtype::Float16 => small::linear::<F16, _, _, 8, 16>(Portable, pool, product),
            Dtype::Float32 => small::linear::<F32, _, _, 8, 32>(Portable, pool, product),
            #[cfg(target_arch = "x86_64")]
            _ => match (self, Avx2::detect(), Avx512::detect()) {
                (Self::Avx512 | Self::Avx512Bf16 | Self::AmxBf16, _, Some(simd)) => {
                    by_size::<F64, _, _, 8, 2, 12, 64>(simd, pool, product);
                }
                (Self::Avx2, Some(simd), _) => by_size::<F64, _, _, 8, 1, 6, 64>(simd, pool, product),
                _ => by_size::<F64, _, _, 8, 1, 4, 64>(Portable, pool, product),
            },
            #[cfg(not(target_arch = "x86_64"))]
            _ => by_size::<F64, _, _, 8, 1, 4, 64>(Portable, pool, product),
        }
    }
}

/// Computes a product with what every CPU has.
fn portable(pool: &Pool, product: Product<'_, f32>) {
    any_dtype::<_, 1, 4>(Portable, pool, product);
}

/// Computes a product with weights that are widened to f32, in tiles of `R` rows and `V` vectors.
fn any_dtype<S, const V: usize, const R: usize>(simd: S, pool: &Pool, product: Product<'_, f32>)
where
    S: Load<F32, f32, 16, 64> + Load<Bf16, f32, 16, 32> + Load<F16, f32, 16, 32>,
{
    match product.w.dtype() {
        Dtype::BFloat16 => by_size::<Bf16, _, _, 16, V, R, 32>(simd, pool, product),
        Dtype::Float16 => by_size::<F16, _, _, 16, V, R, 32>(simd, pool, product),
        _ => by_size::<F32, _, _, 16, V, R, 64>(simd, pool, product),
    }
}

/// Computes a product of few or of many inputs.
fn by_size<D, T, S, const N: usize, const V: usize, const R: usize, const B: usize>(
    simd: S,
    pool: &Pool,
    product: Product<'_, T>,
) where
    D: Send + Sync,
    T: Number,
    S: Load<D, T, N, B>,
{
    if product.m <= small::MOST {
        small::linear::<D, T, S, N, B>(simd, pool, product);
    } else {
        tiled::linear::<T, _, N, V, R>(Widened::<D, S, B>::new(simd), pool, product);
    }
}

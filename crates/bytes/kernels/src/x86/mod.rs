//! Vector instructions of x86-64. Each instruction set has a type whose values exist only if the CPU has the
//! instructions, so that code outside of this folder needs no `unsafe`.
//!
//! Facts: Intel's intrinsics guide.

#![expect(
    unsafe_code,
    reason = "an intrinsic needs a CPU that has it, which the values of this module prove"
)]
#![expect(clippy::indexing_slicing, reason = "arrays of 16, in loops over constants")]

mod bf16;
mod blocks;
mod nibbles;
mod ssse3;

use std::arch::x86_64::{self as x86, __m128i, __m256, __m256d, __m256i, __m512, __m512d};
use std::mem::transmute;

pub(crate) use self::bf16::has_permitted_amx_bf16;
pub use self::bf16::{AmxBf16, AmxSums, AmxTiles, Avx512Bf16, Bf16Inputs, Bf16Weights};
pub(crate) use self::ssse3::Ssse3;
use crate::Extension;
use crate::simd::{self, Bf16, F16, F32, F64, Instructions, Load, Simd, SimdWork};

/// AVX2, FMA, F16C, BMI1 and BMI2. A value exists only where the CPU has them.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

/// The parts F, BW, DQ and VL of AVX-512. A value exists only where the CPU has them.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx2 {
    /// Returns a value if these instructions are used.
    #[inline]
    pub fn detect() -> Option<Self> {
        Extension::Avx2.is_used().then_some(Self(()))
    }
}

impl Avx512 {
    /// Returns a value if these instructions are used.
    #[inline]
    pub fn detect() -> Option<Self> {
        (Extension::Avx512.is_used() && Avx2::detect().is_some()).then_some(Self(()))
    }
}

/// Prefetches the byte `ahead` bytes after the first of `bytes`, with its neighbours, into the CPU's cache. The CPU
/// ignores an address that is not mapped.
#[inline(always)]
pub(crate) fn prefetch(bytes: &[u8], ahead: usize) {
    // SAFETY: every x86-64 CPU has the instruction. It takes any address and cannot fault.
    unsafe { x86::_mm_prefetch::<{ x86::_MM_HINT_T1 }>(bytes.as_ptr().wrapping_add(ahead).cast()) };
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
fn run_avx2<W: SimdWork<Avx2>>(work: W, simd: Avx2) -> W::Output {
    work.run(simd)
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512<W: SimdWork<Avx512>>(work: W, simd: Avx512) -> W::Output {
    work.run(simd)
}

impl Instructions for Avx2 {
    const TILE_ROWS: usize = 3;
    const IS_FUSED: bool = true;

    #[inline(always)]
    fn run<W: SimdWork<Self>>(self, work: W) -> W::Output {
        // SAFETY: the CPU has the instructions, or there would be no `self`.
        unsafe { run_avx2(work, self) }
    }
}

impl Instructions for Avx512 {
    const TILE_ROWS: usize = 6;
    const IS_FUSED: bool = true;

    #[inline(always)]
    fn run<W: SimdWork<Self>>(self, work: W) -> W::Output {
        // SAFETY: the CPU has the instructions, or there would be no `self`.
        unsafe { run_avx512(work, self) }
    }
}

/// Implements [`Simd`] with vectors of one register.
macro_rules! one_register {
    ($isa:ty, $float:ty, $n:literal, $vector:ty, $splat:ident, $mul_add:ident, |$matrix:ident| $transpose:expr) => {
        impl Simd<$float, $n> for $isa {
            type Vector = $vector;

            #[inline(always)]
            fn splat(self, value: $float) -> $vector {
                // SAFETY: the CPU has the instruction, or there would be no `self`.
                unsafe { x86::$splat(value) }
            }

            #[inline(always)]
            fn load(self, array: &[$float; $n]) -> $vector {
                // SAFETY: both are as many numbers of the same type.
                unsafe { transmute::<[$float; $n], $vector>(*array) }
            }

            #[inline(always)]
            fn store(self, vector: $vector) -> [$float; $n] {
                // SAFETY: both are as many numbers of the same type.
                unsafe { transmute::<$vector, [$float; $n]>(vector) }
            }

            #[inline(always)]
            fn mul_add(self, a: $vector, b: $vector, c: $vector) -> $vector {
                // SAFETY: the CPU has the instruction, or there would be no `self`.
                unsafe { x86::$mul_add(a, b, c) }
            }

            #[inline(always)]
            fn transpose(self, $matrix: &mut [[$float; $n]; $n]) {
                $transpose;
            }
        }
    };
}
one_register!(Avx512, f32, 16, __m512, _mm512_set1_ps, _mm512_fmadd_ps, |matrix| {
    // SAFETY: the CPU has the instructions, or there would be no `self`.
    unsafe { transpose(matrix) }
});
one_register!(Avx512, f64, 8, __m512d, _mm512_set1_pd, _mm512_fmadd_pd, |matrix| simd::transpose(matrix));

/// Implements [`Simd`] with vectors of two registers.
macro_rules! two_registers {
    ($isa:ty, $float:ty, $n:literal, $vector:ty, $splat:ident, $mul_add:ident) => {
        impl Simd<$float, $n> for $isa {
            type Vector = [$vector; 2];

            #[inline(always)]
            fn splat(self, value: $float) -> [$vector; 2] {
                // SAFETY: the CPU has the instruction, or there would be no `self`.
                [unsafe { x86::$splat(value) }; 2]
            }

            #[inline(always)]
            fn load(self, array: &[$float; $n]) -> [$vector; 2] {
                // SAFETY: both are as many numbers of the same type.
                unsafe { transmute::<[$float; $n], [$vector; 2]>(*array) }
            }

            #[inline(always)]
            fn store(self, vector: [$vector; 2]) -> [$float; $n] {
                // SAFETY: both are as many numbers of the same type.
                unsafe { transmute::<[$vector; 2], [$float; $n]>(vector) }
            }

            #[inline(always)]
            fn mul_add(self, a: [$vector; 2], b: [$vector; 2], c: [$vector; 2]) -> [$vector; 2] {
                // SAFETY: the CPU has the instruction, or there would be no `self`.
                unsafe { [x86::$mul_add(a[0], b[0], c[0]), x86::$mul_add(a[1], b[1], c[1])] }
            }

            #[inline(always)]
            fn transpose(self, matrix: &mut [[$float; $n]; $n]) {
                simd::transpose(matrix);
            }
        }
    };
}
two_registers!(Avx2, f32, 16, __m256, _mm256_set1_ps, _mm256_fmadd_ps);
two_registers!(Avx2, f64, 8, __m256d, _mm256_set1_pd, _mm256_fmadd_pd);

impl Load<F64, f64, 8, 64> for Avx512 {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 64]) -> __m512d {
        // SAFETY: both are 64 bytes, and x86-64 is little-endian.
        unsafe { transmute::<[u8; 64], __m512d>(*bytes) }
    }
}

impl Load<F32, f32, 16, 64> for Avx512 {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 64]) -> __m512 {
        // SAFETY: both are 64 bytes, and x86-64 is little-endian.
        unsafe { transmute::<[u8; 64], __m512>(*bytes) }
    }
}

impl Load<Bf16, f32, 16, 32> for Avx512 {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 32]) -> __m512 {
        // SAFETY: both are 32 bytes, and the CPU has the instructions, or there would be no `self`.
        unsafe {
            let wide = x86::_mm512_cvtepu16_epi32(transmute::<[u8; 32], __m256i>(*bytes));
            x86::_mm512_castsi512_ps(x86::_mm512_slli_epi32::<16>(wide))
        }
    }
}

impl Load<F16, f32, 16, 32> for Avx512 {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 32]) -> __m512 {
        // SAFETY: both are 32 bytes, and the CPU has the instruction, or there would be no `self`.
        unsafe { x86::_mm512_cvtph_ps(transmute::<[u8; 32], __m256i>(*bytes)) }
    }
}

impl Load<F64, f64, 8, 64> for Avx2 {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 64]) -> [__m256d; 2] {
        // SAFETY: both are 64 bytes, and x86-64 is little-endian.
        unsafe { transmute::<[u8; 64], [__m256d; 2]>(*bytes) }
    }
}

impl Load<F32, f32, 16, 64> for Avx2 {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 64]) -> [__m256; 2] {
        // SAFETY: both are 64 bytes, and x86-64 is little-endian.
        unsafe { transmute::<[u8; 64], [__m256; 2]>(*bytes) }
    }
}

impl Load<Bf16, f32, 16, 32> for Avx2 {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 32]) -> [__m256; 2] {
        // SAFETY: both are 32 bytes, and the CPU has the instructions, or there would be no `self`.
        unsafe {
            transmute::<[u8; 32], [__m128i; 2]>(*bytes).map(|half| {
                let wide = x86::_mm256_cvtepu16_epi32(half);
                x86::_mm256_castsi256_ps(x86::_mm256_slli_epi32::<16>(wide))
            })
        }
    }
}

impl Load<F16, f32, 16, 32> for Avx2 {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 32]) -> [__m256; 2] {
        // SAFETY: both are 32 bytes, and the CPU has the instruction, or there would be no `self`.
        unsafe {
            let [low, high] = transmute::<[u8; 32], [__m128i; 2]>(*bytes);
            [x86::_mm256_cvtph_ps(low), x86::_mm256_cvtph_ps(high)]
        }
    }
}

/// Exchanges rows and columns: first inside of each group of 4 rows, then between the groups.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(matrix: &mut [[f32; 16]; 16]) {
    use x86::{
        _mm512_castpd_ps as single, _mm512_castps_pd as pair, _mm512_shuffle_f32x4 as groups,
        _mm512_unpackhi_pd as high_pairs, _mm512_unpackhi_ps as high, _mm512_unpacklo_pd as low_pairs,
        _mm512_unpacklo_ps as low,
    };
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    // SAFETY: both are 16 × 16 numbers.
    let rows = unsafe { transmute::<[[f32; 16]; 16], [__m512; 16]>(*matrix) };
    let mut four = rows;
    for i in (0..16).step_by(4) {
        let [a, b] = [low(rows[i], rows[i + 1]), high(rows[i], rows[i + 1])].map(|v| pair(v));
        let [c, d] = [low(rows[i + 2], rows[i + 3]), high(rows[i + 2], rows[i + 3])].map(|v| pair(v));
        four[i] = single(low_pairs(a, c));
        four[i + 1] = single(high_pairs(a, c));
        four[i + 2] = single(low_pairs(b, d));
        four[i + 3] = single(high_pairs(b, d));
    }
    let mut columns = rows;
    for i in 0..4 {
        let even = [groups::<EVEN>(four[i], four[i + 4]), groups::<EVEN>(four[i + 8], four[i + 12])];
        let odd = [groups::<ODD>(four[i], four[i + 4]), groups::<ODD>(four[i + 8], four[i + 12])];
        columns[i] = groups::<EVEN>(even[0], even[1]);
        columns[i + 4] = groups::<EVEN>(odd[0], odd[1]);
        columns[i + 8] = groups::<ODD>(even[0], even[1]);
        columns[i + 12] = groups::<ODD>(odd[0], odd[1]);
    }
    // SAFETY: both are 16 × 16 numbers.
    *matrix = unsafe { transmute::<[__m512; 16], [[f32; 16]; 16]>(columns) };
}

//! Codes of blocks of `Q8_0` with AVX2 and AVX-512.

use std::arch::x86_64::{self as x86, __m128i, __m256, __m512};
use std::mem::transmute;

use super::{Avx2, Avx512};
use crate::narrow_float::split_block;
use crate::simd::LoadBlock;

impl LoadBlock for Avx2 {
    #[inline(always)]
    fn load_block(self, block: &[u8; 34]) -> ([__m256; 2], [[__m256; 2]; 2]) {
        let (scale, codes) = split_block(block);
        // SAFETY: both are 32 bytes, and the CPU has the instructions, or there would be no `self`.
        unsafe {
            let scale = x86::_mm_cvtph_ps(x86::_mm_cvtsi32_si128(scale.into()));
            let [a, b, c, d] = transmute::<[u8; 32], [i64; 4]>(codes);
            // A macro, because a closure would not be compiled for the instructions.
            macro_rules! widened {
                ($codes:ident) => {
                    x86::_mm256_cvtepi32_ps(x86::_mm256_cvtepi8_epi32(x86::_mm_cvtsi64_si128($codes)))
                };
            }
            let codes = [[widened!(a), widened!(b)], [widened!(c), widened!(d)]];
            ([x86::_mm256_broadcastss_ps(scale); 2], codes)
        }
    }
}

impl LoadBlock for Avx512 {
    #[inline(always)]
    fn load_block(self, block: &[u8; 34]) -> (__m512, [__m512; 2]) {
        let (scale, codes) = split_block(block);
        // SAFETY: both are 32 bytes, and the CPU has the instructions, or there would be no `self`.
        unsafe {
            let scale = x86::_mm_cvtph_ps(x86::_mm_cvtsi32_si128(scale.into()));
            let [a, b] = transmute::<[u8; 32], [__m128i; 2]>(codes);
            let a = x86::_mm512_cvtepi32_ps(x86::_mm512_cvtepi8_epi32(a));
            let b = x86::_mm512_cvtepi32_ps(x86::_mm512_cvtepi8_epi32(b));
            (x86::_mm512_broadcastss_ps(scale), [a, b])
        }
    }
}

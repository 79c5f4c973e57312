//! Look-ups of codes of four bits with SSSE3, which processors of x86-64 without AVX2 have.

use std::arch::x86_64::{self as x86, __m128i};
use std::mem::transmute;

use crate::Extension;
use crate::nibbles::{CodeRun, EncodedNumber, NibbleLookup, NibbleTable, RUN_BYTES, RUNS};
use crate::simd::{Instructions, SimdWork};

/// SSSE3. A value exists only where the CPU has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ssse3(());

impl Ssse3 {
    /// Returns a value if these instructions are used.
    #[inline]
    pub(crate) fn detect() -> Option<Self> {
        Extension::Ssse3.is_used().then_some(Self(()))
    }
}

#[target_feature(enable = "ssse3")]
fn run<W: SimdWork<Ssse3>>(work: W, simd: Ssse3) -> W::Output {
    work.run(simd)
}

impl Instructions for Ssse3 {
    const TILE_ROWS: usize = 1;
    const IS_FUSED: bool = false;

    #[inline(always)]
    fn run<W: SimdWork<Self>>(self, work: W) -> W::Output {
        // SAFETY: the CPU has the instructions, or there would be no `self`.
        unsafe { run(work, self) }
    }
}

impl NibbleLookup for Ssse3 {
    #[inline(always)]
    fn look_up(self, [first, second]: [&NibbleTable; 2], codes: [[u8; RUN_BYTES]; 2]) -> [CodeRun; 2] {
        // SAFETY: as above.
        unsafe { [look_up(first, codes[0]), look_up(second, codes[1])] }
    }

    #[inline(always)]
    fn transpose_runs(self, runs: &[CodeRun; RUNS]) -> [[EncodedNumber; RUNS]; 32] {
        // SAFETY: as above.
        unsafe { transpose_runs(runs) }
    }
}

#[inline]
#[target_feature(enable = "ssse3")]
fn look_up(table: &NibbleTable, codes: [u8; RUN_BYTES]) -> CodeRun {
    const HALVES: [u8; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15];
    // SAFETY: each has as many bytes as its vectors.
    let ([early, late], order, codes) = unsafe {
        let table = transmute::<NibbleTable, [__m128i; 2]>(*table);
        (table, transmute::<[u8; 16], __m128i>(HALVES), transmute::<[u8; RUN_BYTES], __m128i>(codes))
    };
    let (early, late) = (x86::_mm_shuffle_epi8(early, order), x86::_mm_shuffle_epi8(late, order));
    let (low_bytes, high_bytes) =
        (x86::_mm_unpacklo_epi64(early, late), x86::_mm_unpackhi_epi64(early, late));
    let mask = x86::_mm_set1_epi8(15);
    let even = x86::_mm_and_si128(codes, mask);
    let odd = x86::_mm_and_si128(x86::_mm_srli_epi16::<4>(codes), mask);
    let numbers = [x86::_mm_unpacklo_epi8(even, odd), x86::_mm_unpackhi_epi8(even, odd)].map(|codes| {
        let low = x86::_mm_shuffle_epi8(low_bytes, codes);
        let high = x86::_mm_shuffle_epi8(high_bytes, codes);
        [x86::_mm_unpacklo_epi8(low, high), x86::_mm_unpackhi_epi8(low, high)]
    });
    // SAFETY: both are 64 bytes.
    unsafe { transmute::<[[__m128i; 2]; 2], CodeRun>(numbers) }
}

#[inline]
#[target_feature(enable = "ssse3")]
fn transpose_runs(runs: &[CodeRun; RUNS]) -> [[EncodedNumber; RUNS]; 32] {
    // SAFETY: both are 512 bytes.
    let parts = unsafe { transmute::<[CodeRun; RUNS], [[__m128i; 4]; RUNS]>(*runs) };
    let mut transposed = [[[x86::_mm_setzero_si128(); 2]; 4]; 4];
    for (part, out) in transposed.iter_mut().enumerate() {
        let pairs = |a: [__m128i; 4], b: [__m128i; 4]| {
            (x86::_mm_unpacklo_epi16(a[part], b[part]), x86::_mm_unpackhi_epi16(a[part], b[part]))
        };
        let fours = |a, b| (x86::_mm_unpacklo_epi32(a, b), x86::_mm_unpackhi_epi32(a, b));
        let eights = |a, b| [x86::_mm_unpacklo_epi64(a, b), x86::_mm_unpackhi_epi64(a, b)];
        let [r0, r1, r2, r3, r4, r5, r6, r7] = parts;
        let ((ab, ab_high), (cd, cd_high)) = (pairs(r0, r1), pairs(r2, r3));
        let ((ef, ef_high), (gh, gh_high)) = (pairs(r4, r5), pairs(r6, r7));
        let ((p0, p1), (p2, p3)) = (fours(ab, cd), fours(ab_high, cd_high));
        let ((q0, q1), (q2, q3)) = (fours(ef, gh), fours(ef_high, gh_high));
        *out = [eights(p0, q0), eights(p1, q1), eights(p2, q2), eights(p3, q3)];
    }
    // SAFETY: both are 512 bytes.
    unsafe { transmute::<[[[__m128i; 2]; 4]; 4], [[EncodedNumber; RUNS]; 32]>(transposed) }
}

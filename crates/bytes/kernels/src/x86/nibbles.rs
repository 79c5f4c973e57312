//! Look-ups of codes of four bits with AVX2.

use std::arch::x86_64::{self as x86, __m256i};
use std::mem::transmute;

use super::Avx2;
use crate::nibbles::{CodeRun, EncodedNumber, NibbleLookup, NibbleTable, RUN_BYTES, RUNS};

impl NibbleLookup for Avx2 {
    #[inline(always)]
    fn look_up(self, tables: [&NibbleTable; 2], codes: [[u8; RUN_BYTES]; 2]) -> [CodeRun; 2] {
        // SAFETY: the CPU has the instructions, or there would be no `self`.
        unsafe { look_up(tables, codes) }
    }

    #[inline(always)]
    fn transpose_runs(self, runs: &[CodeRun; RUNS]) -> [[EncodedNumber; RUNS]; 32] {
        // SAFETY: as above.
        unsafe { transpose_runs(runs) }
    }
}

/// Returns the first bytes of all numbers of a table, and then their second bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn split(table: &NibbleTable) -> __m256i {
    const HALVES: [[u8; 16]; 2] = [[0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]; 2];
    // SAFETY: all are 32 bytes.
    let (table, order) =
        unsafe { (transmute::<NibbleTable, __m256i>(*table), transmute::<[[u8; 16]; 2], __m256i>(HALVES)) };
    x86::_mm256_permute4x64_epi64::<0b11_01_10_00>(x86::_mm256_shuffle_epi8(table, order))
}

#[inline]
#[target_feature(enable = "avx2")]
fn look_up([first, second]: [&NibbleTable; 2], codes: [[u8; RUN_BYTES]; 2]) -> [CodeRun; 2] {
    let (first, second) = (split(first), split(second));
    let low_bytes = x86::_mm256_permute2x128_si256::<0x20>(first, second);
    let high_bytes = x86::_mm256_permute2x128_si256::<0x31>(first, second);
    // SAFETY: both are 32 bytes.
    let codes = unsafe { transmute::<[[u8; RUN_BYTES]; 2], __m256i>(codes) };
    let mask = x86::_mm256_set1_epi8(15);
    let even = x86::_mm256_and_si256(codes, mask);
    let odd = x86::_mm256_and_si256(x86::_mm256_srli_epi16::<4>(codes), mask);
    let find = |codes| {
        let low = x86::_mm256_shuffle_epi8(low_bytes, codes);
        let high = x86::_mm256_shuffle_epi8(high_bytes, codes);
        (x86::_mm256_unpacklo_epi8(low, high), x86::_mm256_unpackhi_epi8(low, high))
    };
    let (even, odd) = (find(even), find(odd));
    // Each half of a vector has eight numbers of one run. The halves are joined in vectors, because a vector that is
    // loaded must wait if it was stored in halves.
    let runs = [(even.0, odd.0), (even.1, odd.1)].map(|(even, odd)| {
        let early = x86::_mm256_unpacklo_epi16(even, odd);
        let late = x86::_mm256_unpackhi_epi16(even, odd);
        let first = x86::_mm256_permute2x128_si256::<0x20>(early, late);
        (first, x86::_mm256_permute2x128_si256::<0x31>(early, late))
    });
    let [(first, second), (first_end, second_end)] = runs;
    // SAFETY: both are 128 bytes.
    unsafe { transmute::<[__m256i; 4], [CodeRun; 2]>([first, first_end, second, second_end]) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn transpose_runs(runs: &[CodeRun; RUNS]) -> [[EncodedNumber; RUNS]; 32] {
    // SAFETY: both are eight times 64 bytes.
    let halves = unsafe { transmute::<[CodeRun; RUNS], [[__m256i; 2]; RUNS]>(*runs) };
    let mut transposed = [[[0; 2]; RUNS]; 32];
    for (half, out) in transposed.as_chunks_mut::<16>().0.iter_mut().enumerate().take(2) {
        let [r0, r1, r2, r3, r4, r5, r6, r7] =
            halves.map(|[first, second]| if half == 0 { first } else { second });
        let pairs = |a, b| (x86::_mm256_unpacklo_epi16(a, b), x86::_mm256_unpackhi_epi16(a, b));
        let fours = |a, b| (x86::_mm256_unpacklo_epi32(a, b), x86::_mm256_unpackhi_epi32(a, b));
        let eights = |a, b| [x86::_mm256_unpacklo_epi64(a, b), x86::_mm256_unpackhi_epi64(a, b)];
        let ((ab, ab_high), (cd, cd_high)) = (pairs(r0, r1), pairs(r2, r3));
        let ((ef, ef_high), (gh, gh_high)) = (pairs(r4, r5), pairs(r6, r7));
        let ((p0, p1), (p2, p3)) = (fours(ab, cd), fours(ab_high, cd_high));
        let ((q0, q1), (q2, q3)) = (fours(ef, gh), fours(ef_high, gh_high));
        let places = [eights(p0, q0), eights(p1, q1), eights(p2, q2), eights(p3, q3)];
        // A vector has the numbers at one place, and at the one eight places later.
        // SAFETY: both are 256 bytes.
        let places = unsafe { transmute::<[[__m256i; 2]; 4], [[[EncodedNumber; RUNS]; 2]; 8]>(places) };
        let (early, late) = out.split_at_mut(8);
        for ((early, late), [place, later]) in early.iter_mut().zip(late).zip(places) {
            (*early, *late) = (place, later);
        }
    }
    transposed
}

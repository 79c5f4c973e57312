//! Vector instructions of x86-64. Each instruction set has a type whose values exist only if the CPU has the
//! instructions, so that the rest of the crate needs no `unsafe` code.
//!
//! Facts: Intel's intrinsics guide; the Intel 64 and IA-32 manual, volume 1, chapter 18, and volume 2 (`LDTILECFG`,
//! `TDPBF16PS`) for AMX; Linux, `Documentation/arch/x86/xstate.rst`, for the permission to use it.

#![expect(
    unsafe_code,
    reason = "an intrinsic needs a CPU that has it, which the values of this module prove"
)]
#![expect(
    clippy::inline_always,
    reason = "a method becomes instructions only as a part of the function that is compiled for them"
)]
#![expect(clippy::unused_self, reason = "a value proves that the CPU has the instructions")]
#![expect(clippy::indexing_slicing, reason = "arrays of 16, in loops over constants")]

use std::arch::asm;
use std::arch::x86_64::{self as x86, __m128i, __m256, __m256d, __m256i, __m512, __m512bh, __m512d, __m512i};
use std::marker::PhantomData;
use std::mem::transmute;
use std::sync::OnceLock;

use super::simd::{self, Bf16, F16, F32, F64, Load, Simd, SimdWork};

/// AVX2, FMA and F16C. A value exists only where the CPU has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

/// The parts F, BW, DQ and VL of AVX-512. A value exists only where the CPU has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

/// bfloat16 products of AVX-512. A value exists only where the CPU has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512Bf16(());

/// AMX with bfloat16 products. A value exists only where the CPU has them and the system has permitted their use.
#[derive(Clone, Copy, Debug)]
pub(super) struct AmxBf16(());

impl Avx2 {
    /// Returns a value if the CPU has these instructions.
    pub(super) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        (has && is_x86_feature_detected!("f16c")).then_some(Self(()))
    }
}

impl Avx512 {
    /// Returns a value if the CPU has these instructions.
    pub(super) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let has = has && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl");
        (has && Avx2::detect().is_some()).then_some(Self(()))
    }
}

impl Avx512Bf16 {
    /// Returns a value if the CPU has these instructions.
    pub(super) fn detect() -> Option<Self> {
        (Avx512::detect().is_some() && is_x86_feature_detected!("avx512bf16")).then_some(Self(()))
    }
}

impl AmxBf16 {
    /// Returns a value if the CPU has these instructions and the system permits this process to use them.
    pub(super) fn detect() -> Option<Self> {
        static PERMITTED: OnceLock<bool> = OnceLock::new();
        PERMITTED.get_or_init(|| has_amx_bf16() && permit_tiles()).then_some(Self(()))
    }
}

/// Returns true if the CPU has tiles, and bfloat16 products of them.
fn has_amx_bf16() -> bool {
    const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
    let leaf = 7;
    #[allow(
        unused_unsafe,
        reason = "the oldest Rust that this builds with calls them unsafe, newer ones do not"
    )]
    // SAFETY: every CPU with 64 bits has the instruction, and it only reads.
    unsafe {
        x86::__cpuid(0).eax >= leaf && x86::__cpuid_count(leaf, 0).edx & BF16_AND_TILE == BF16_AND_TILE
    }
}

/// Asks the system for the permission to use tiles in this process, for which it makes room when it switches threads.
#[cfg(target_os = "linux")]
fn permit_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers, and changes only what this process may do.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// Returns false, because other systems are not asked.
#[cfg(not(target_os = "linux"))]
fn permit_tiles() -> bool {
    false
}

/// Prefetches the byte `ahead` bytes after the first of `bytes`, with its neighbours, into the CPU's cache. The CPU
/// ignores an address that is not mapped.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], ahead: usize) {
    // SAFETY: every x86-64 CPU has the instruction. It takes any address and cannot fault.
    unsafe { x86::_mm_prefetch::<{ x86::_MM_HINT_T1 }>(bytes.as_ptr().wrapping_add(ahead).cast()) };
}

#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<W: SimdWork<Avx2>>(work: W, simd: Avx2) -> W::Output {
    work.run(simd)
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512<W: SimdWork<Avx512>>(work: W, simd: Avx512) -> W::Output {
    work.run(simd)
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
fn run_avx512_bf16<W: SimdWork<Avx512Bf16>>(work: W, simd: Avx512Bf16) -> W::Output {
    work.run(simd)
}

/// Implements [`Simd`] with vectors of one register.
macro_rules! one_register {
    ($isa:ty, $run:ident, $float:ty, $n:literal, $vector:ty, $splat:ident, $mul_add:ident, $transpose:path) => {
        impl Simd<$float, $n> for $isa {
            type Vector = $vector;

            #[inline(always)]
            fn run<W: SimdWork<Self>>(self, work: W) -> W::Output {
                // SAFETY: the CPU has the instructions, or there would be no `self`.
                unsafe { $run(work, self) }
            }

            #[inline(always)]
            fn splat(self, value: $float) -> $vector {
                // SAFETY: as above.
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
            fn transpose(self, matrix: &mut [[$float; $n]; $n]) {
                // SAFETY: the CPU has the instructions, or there would be no `self`.
                #[allow(
                    unused_unsafe,
                    reason = "`simd::transpose` is safe to call, the other function is not"
                )]
                unsafe {
                    $transpose(matrix);
                }
            }
        }
    };
}
one_register!(Avx512, run_avx512, f32, 16, __m512, _mm512_set1_ps, _mm512_fmadd_ps, transpose);
one_register!(Avx512, run_avx512, f64, 8, __m512d, _mm512_set1_pd, _mm512_fmadd_pd, simd::transpose);

/// Implements [`Simd`] with vectors of two registers.
macro_rules! two_registers {
    ($isa:ty, $run:ident, $float:ty, $n:literal, $vector:ty, $splat:ident, $mul_add:ident) => {
        impl Simd<$float, $n> for $isa {
            type Vector = [$vector; 2];

            #[inline(always)]
            fn run<W: SimdWork<Self>>(self, work: W) -> W::Output {
                // SAFETY: the CPU has the instructions, or there would be no `self`.
                unsafe { $run(work, self) }
            }

            #[inline(always)]
            fn splat(self, value: $float) -> [$vector; 2] {
                // SAFETY: as above.
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
two_registers!(Avx2, run_avx2, f32, 16, __m256, _mm256_set1_ps, _mm256_fmadd_ps);
two_registers!(Avx2, run_avx2, f64, 8, __m256d, _mm256_set1_pd, _mm256_fmadd_pd);

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

impl Avx512Bf16 {
    /// Returns the other instructions of AVX-512, which a CPU with bfloat16 products has.
    pub(super) fn avx512(self) -> Avx512 {
        Avx512(())
    }

    pub(super) fn run<W: SimdWork<Self>>(self, work: W) -> W::Output {
        // SAFETY: the CPU has the instructions, or there would be no `self`.
        unsafe { run_avx512_bf16(work, self) }
    }

    /// Returns `sum`, with the two products of a pair of `x` with the pair `w` added to each element. Subnormal numbers
    /// count as 0.
    #[inline(always)]
    pub(super) fn add_products(self, w: [u8; 4], x: &[[u16; 2]; 16], sum: __m512) -> __m512 {
        // SAFETY: both are 16 pairs, and the CPU has the instructions, or there would be no `self`.
        unsafe {
            let w = transmute::<__m512i, __m512bh>(x86::_mm512_set1_epi32(i32::from_le_bytes(w)));
            x86::_mm512_dpbf16_ps(sum, w, transmute::<[[u16; 2]; 16], __m512bh>(*x))
        }
    }
}

/// bfloat16 weights: `R` rows of 32 columns, little-endian.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Weights<const R: usize>(pub(super) [[u8; 64]; R]);

/// bfloat16 inputs: 16 pairs of columns, each with the pairs of 2 × 16 inputs.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Inputs(pub(super) [[[[u16; 2]; 16]; 2]; 16]);

/// Sums in tiles: 32 rows of weights, 2 × 16 inputs.
pub(super) type AmxSums = [[[f32; 16]; 2]; 32];

/// AMX tiles, configured on this thread.
pub(super) struct AmxTiles {
    /// Marker that keeps the value on its thread, because tiles belong to a thread.
    thread: PhantomData<*const ()>,
}

/// Tile configuration that `LDTILECFG` reads.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Guard that frees the tiles, also when the work panics.
struct TileRelease;

impl Drop for TileRelease {
    fn drop(&mut self) {
        // SAFETY: only `AmxBf16::run` makes a value, after an instruction of the same set.
        unsafe { asm!("tilerelease", options(nomem, nostack)) };
    }
}

impl AmxBf16 {
    /// Runs the work with tiles of 16 rows of 64 bytes. The work must not ask for tiles again.
    pub(super) fn run<R>(self, work: impl FnOnce(&AmxTiles) -> R) -> R {
        let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
        row_bytes[..8].fill(64);
        rows[..8].fill(16);
        let config = TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows };
        // SAFETY: the CPU has the instruction and the system permits it, or there would be no `self`. It reads 64 bytes. No
        // code but `AmxTiles` uses tiles.
        unsafe {
            asm!("ldtilecfg [{config}]", config = in(reg) &raw const config, options(readonly, nostack));
        }
        let _release = TileRelease;
        work(&AmxTiles { thread: PhantomData })
    }
}

impl AmxTiles {
    /// Adds the products of `w` with `x` to `sums`; with `first`, `sums` counts as 0. Subnormal numbers count as 0.
    pub(super) fn add_products(&self, w: &[Weights<32>], x: &[Inputs], first: bool, sums: &mut AmxSums) {
        let blocks = w.len().min(x.len());
        if blocks == 0 {
            return;
        }
        // SAFETY: `self` proves that the tiles are ready. Of `w` and `x` the loop reads `blocks` blocks of 2048 bytes,
        // which both have. Of `sums` it reads and writes 32 rows of 128 bytes.
        unsafe {
            asm!(
                "test {first:e}, {first:e}",
                "jz 2f",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "jmp 3f",
                "2:",
                "tileloadd tmm0, [{sums} + {wide}]",
                "tileloadd tmm1, [{sums} + {wide} + 64]",
                "tileloadd tmm2, [{sums} + {wide} + 2048]",
                "tileloadd tmm3, [{sums} + {wide} + 2112]",
                "3:",
                "tileloadd tmm4, [{w} + {narrow}]",
                "tileloadd tmm6, [{x} + {wide}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{x} + {wide} + 64]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{w} + {narrow} + 1024]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {w}, 2048",
                "add {x}, 2048",
                "dec {blocks}",
                "jnz 3b",
                "tilestored [{sums} + {wide}], tmm0",
                "tilestored [{sums} + {wide} + 64], tmm1",
                "tilestored [{sums} + {wide} + 2048], tmm2",
                "tilestored [{sums} + {wide} + 2112], tmm3",
                first = in(reg) u32::from(first),
                sums = in(reg) sums,
                w = inout(reg) w.as_ptr() => _,
                x = inout(reg) x.as_ptr() => _,
                blocks = inout(reg) blocks => _,
                narrow = in(reg) 64_usize,
                wide = in(reg) 128_usize,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

//! bfloat16 products of AVX-512 and AMX.
//!
//! Facts: the Intel 64 and IA-32 manual, volume 1, chapter 18, and volume 2 (`LDTILECFG`, `TDPBF16PS`) for AMX; Linux,
//! `Documentation/arch/x86/xstate.rst`, for the permission to use it.

use std::arch::asm;
use std::arch::x86_64::{self as x86, __m512, __m512bh, __m512i, CpuidResult};
use std::marker::PhantomData;
use std::mem::transmute;

use super::Avx512;
use crate::Extension;
use crate::simd::SimdWork;

/// bfloat16 products of AVX-512. A value exists only where the CPU has them.
#[derive(Clone, Copy, Debug)]
pub struct Avx512Bf16(());

/// AMX with bfloat16 products. A value exists only where the CPU has them and the system has permitted their use.
#[derive(Clone, Copy, Debug)]
pub struct AmxBf16(());

impl Avx512Bf16 {
    /// Returns a value if these instructions are used.
    #[inline]
    pub fn detect() -> Option<Self> {
        (Avx512::detect().is_some() && Extension::Avx512Bf16.is_used()).then_some(Self(()))
    }
}

impl AmxBf16 {
    /// Returns a value if these instructions are used.
    #[inline]
    pub fn detect() -> Option<Self> {
        Extension::AmxBf16.is_used().then_some(Self(()))
    }
}

/// Returns true if the CPU has tiles, and bfloat16 products of them, and the system permits this process to use them.
pub(crate) fn has_permitted_amx_bf16() -> bool {
    has_amx_bf16() && permit_tiles()
}

fn has_amx_bf16() -> bool {
    const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
    // A pointer, because newer versions of Rust call the function safe, and older ones do not.
    let cpuid: unsafe fn(u32, u32) -> CpuidResult = x86::__cpuid_count;
    let leaf = 7;
    // SAFETY: every CPU with 64 bits has the instruction, and it only reads.
    unsafe { cpuid(0, 0).eax >= leaf && cpuid(leaf, 0).edx & BF16_AND_TILE == BF16_AND_TILE }
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

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
fn run_avx512_bf16<W: SimdWork<Avx512Bf16>>(work: W, simd: Avx512Bf16) -> W::Output {
    work.run(simd)
}

impl Avx512Bf16 {
    /// Returns the other instructions of AVX-512, which a CPU with bfloat16 products has.
    #[inline]
    pub fn avx512(self) -> Avx512 {
        Avx512(())
    }

    /// Runs the work in a function that is compiled for these instructions.
    pub fn run<W: SimdWork<Self>>(self, work: W) -> W::Output {
        // SAFETY: the CPU has the instructions, or there would be no `self`.
        unsafe { run_avx512_bf16(work, self) }
    }

    /// Returns `sum`, with the two products of a pair of `x` with the pair `w` added to each element. Subnormal numbers
    /// count as 0.
    #[inline(always)]
    pub fn add_products(self, w: [u8; 4], x: &[[u16; 2]; 16], sum: __m512) -> __m512 {
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
pub struct Bf16Weights<const R: usize>(pub [[u8; 64]; R]);

/// bfloat16 inputs: 16 pairs of columns, each with the pairs of 2 × 16 inputs.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Bf16Inputs(pub [[[[u16; 2]; 16]; 2]; 16]);

/// Sums in tiles: 32 rows of weights, 2 × 16 inputs.
pub type AmxSums = [[[f32; 16]; 2]; 32];

/// AMX tiles, configured on this thread.
pub struct AmxTiles {
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
    pub fn run<R>(self, work: impl FnOnce(&AmxTiles) -> R) -> R {
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
    #[inline]
    pub fn add_products(&self, w: &[Bf16Weights<32>], x: &[Bf16Inputs], first: bool, sums: &mut AmxSums) {
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

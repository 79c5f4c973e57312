//! Vector operations that are compiled for the instructions of the processor, and found out at run time.
//!
//! [`Simd`] has the operations on vectors, which each instruction set implements. [`run_f32`], [`run_f64`], [`run_nibbles`] and
//! [`vectorize`] run loops with the best one.
//!
//! ```
//! let mut numbers = [1.5_f32; 1000];
//! kernels::vectorize(|| numbers.iter_mut().for_each(|number| *number *= 2.0));
//! assert_eq!(numbers, [3.0; 1000]);
//! ```

#![expect(
    clippy::arithmetic_side_effects,
    reason = "it parses nothing: lengths are those of arrays, and floating-point numbers do not overflow"
)]
#![expect(
    clippy::inline_always,
    reason = "a function becomes vector instructions only as a part of the function that is compiled for them"
)]

mod dispatch;
mod extension;
mod narrow_float;
mod nibbles;
mod prefetch;
mod simd;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use dispatch::{
    Loops, run_f32, run_f64, run_nested, run_nibbles, set_portable_code, uses_portable_code, vectorize,
    with_portable_code,
};
pub use extension::{Extension, WITHOUT};
pub use narrow_float::{decode_q8_block, from_bf16, from_f16, to_bf16, to_f16};
pub use nibbles::{
    CodeRun, EncodedNumber, NIBBLES, NibbleKernel, NibbleLookup, NibbleTable, RUN_BYTES, RUNS,
};
pub use prefetch::prefetch;
pub use simd::{Bf16, F16, F32, F64, Instructions, Load, LoadBlock, Portable, Simd, SimdWork};
#[cfg(target_arch = "x86_64")]
pub use x86::{AmxBf16, AmxSums, AmxTiles, Avx2, Avx512, Avx512Bf16, Bf16Inputs, Bf16Weights};

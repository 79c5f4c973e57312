//! Vector loops, other than the products with weights, which are compiled once for each instruction set.

use std::marker::PhantomData;

use super::Kernel;
use super::simd::{Portable, Simd, SimdWork};
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx2, Avx512};

/// Vector loops over numbers of type `T`.
pub(crate) trait Loops<T> {
    /// Runs the loops with vectors of `N` numbers. Implementations and the functions they call are `#[inline(always)]`,
    /// so that they become part of a function for the CPU's instructions.
    fn run<S: Simd<T, N>, const N: usize>(self, simd: S);
}

/// Runs loops over f32 numbers with the CPU's instructions.
pub(crate) fn run_f32(loops: impl Loops<f32>) {
    run::<_, 16, _>(loops);
}

/// Runs loops over f64 numbers with the CPU's instructions.
pub(crate) fn run_f64(loops: impl Loops<f64>) {
    run::<_, 8, _>(loops);
}

#[cfg(target_arch = "x86_64")]
fn run<T, const N: usize, L>(loops: L)
where
    L: Loops<T>,
    Portable: Simd<T, N>,
    Avx2: Simd<T, N>,
    Avx512: Simd<T, N>,
{
    let work = LoopsWork(loops, PhantomData);
    match Kernel::best() {
        Kernel::Portable => Simd::<T, N>::run(Portable, work),
        Kernel::Avx2 => match Avx2::detect() {
            Some(simd) => Simd::<T, N>::run(simd, work),
            None => Simd::<T, N>::run(Portable, work),
        },
        Kernel::Avx512 | Kernel::Avx512Bf16 | Kernel::AmxBf16 => match Avx512::detect() {
            Some(simd) => Simd::<T, N>::run(simd, work),
            None => Simd::<T, N>::run(Portable, work),
        },
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn run<T, const N: usize, L>(loops: L)
where
    L: Loops<T>,
    Portable: Simd<T, N>,
{
    Simd::<T, N>::run(Portable, LoopsWork(loops, PhantomData));
}

/// Runs loops nested in other loops as a function of their own, which is compiled once for all its callers.
pub(crate) fn run_nested<T, const N: usize, S: Simd<T, N>>(simd: S, loops: impl Loops<T>) {
    simd.run(LoopsWork(loops, PhantomData));
}

/// Adapter from [`Loops`] to [`SimdWork`].
struct LoopsWork<T, const N: usize, L>(L, PhantomData<T>);

impl<T, const N: usize, S: Simd<T, N>, L: Loops<T>> SimdWork<S> for LoopsWork<T, N, L> {
    type Output = ();

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is to be compiled for other instructions")]
    fn run(self, simd: S) {
        self.0.run::<S, N>(simd);
    }
}

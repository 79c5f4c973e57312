//! Choice of the instruction set for loops that are compiled once for each of them.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::nibbles::{NibbleKernel, NibbleLookup};
use crate::simd::{Instructions, Portable, Simd, SimdWork};
#[cfg(target_arch = "x86_64")]
use crate::x86::{Avx2, Avx512, Ssse3};

thread_local! {
    /// True while this thread runs only portable code.
    static IS_PORTABLE: Cell<bool> = const { Cell::new(false) };
}

/// Runs work on this thread with portable code alone, whose results are the same on every processor.
pub fn with_portable_code<R>(work: impl FnOnce() -> R) -> R {
    /// Guard that ends it, also after a panic.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            set_portable_code(self.0);
        }
    }
    let _before = Before(uses_portable_code());
    set_portable_code(true);
    work()
}

/// Sets whether this thread runs only portable code, such as a thread that works for another one.
pub fn set_portable_code(is_portable: bool) {
    IS_PORTABLE.set(is_portable);
}

/// Returns true if this thread runs only portable code.
pub fn uses_portable_code() -> bool {
    IS_PORTABLE.get()
}

/// Vector loops over numbers of type `T`.
pub trait Loops<T> {
    /// Runs the loops with vectors of `N` numbers. Implementations and the functions they call are `#[inline(always)]`,
    /// so that they become part of a function for the CPU's instructions.
    fn run<S: Simd<T, N>, const N: usize>(self, simd: S);
}

/// Runs loops over f32 numbers with the CPU's instructions.
pub fn run_f32(loops: impl Loops<f32>) {
    run(LoopsWork::<f32, 16, _>(loops, PhantomData));
}

/// Runs loops over f64 numbers with the CPU's instructions.
pub fn run_f64(loops: impl Loops<f64>) {
    run(LoopsWork::<f64, 8, _>(loops, PhantomData));
}

/// Runs look-ups of codes of four bits with AVX2 or SSSE3 if the CPU has it.
// Not with AVX-512: the compiler copies the found numbers with vectors of 64 bytes there, which wait until the two vectors of
// 32 bytes that were stored are in the cache.
pub fn run_nibbles(kernel: impl NibbleKernel) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = Avx2::detect() {
        return simd.run(NibbleWork(kernel));
    } else if let Some(simd) = Ssse3::detect() {
        return simd.run(NibbleWork(kernel));
    }
    Portable.run(NibbleWork(kernel));
}

/// Calls a closure as a part of a function that the compiler makes of the CPU's vector instructions, as far as it can. The
/// functions that the closure calls are to be `#[inline(always)]`.
pub fn vectorize<R>(loops: impl FnOnce() -> R) -> R {
    run(ClosureWork(loops))
}

/// Runs loops nested in other loops as a function of their own, which is compiled once for all its callers.
pub fn run_nested<T, const N: usize, S: Simd<T, N>>(simd: S, loops: impl Loops<T>) {
    simd.run(LoopsWork(loops, PhantomData));
}

#[cfg(target_arch = "x86_64")]
fn run<R, W>(work: W) -> R
where
    W: SimdWork<Portable, Output = R> + SimdWork<Avx2, Output = R> + SimdWork<Avx512, Output = R>,
{
    match (Avx512::detect(), Avx2::detect()) {
        _ if uses_portable_code() => Portable.run(work),
        (Some(simd), _) => simd.run(work),
        (_, Some(simd)) => simd.run(work),
        _ => Portable.run(work),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn run<W: SimdWork<Portable>>(work: W) -> W::Output {
    Portable.run(work)
}

/// Adapter from [`Loops`] to [`SimdWork`].
struct LoopsWork<T, const N: usize, L>(L, PhantomData<T>);

impl<T, const N: usize, S: Simd<T, N>, L: Loops<T>> SimdWork<S> for LoopsWork<T, N, L> {
    type Output = ();

    #[inline(always)]
    fn run(self, simd: S) {
        self.0.run::<S, N>(simd);
    }
}

/// Adapter from [`NibbleKernel`] to [`SimdWork`].
struct NibbleWork<K>(K);

impl<S: NibbleLookup, K: NibbleKernel> SimdWork<S> for NibbleWork<K> {
    type Output = ();

    #[inline(always)]
    fn run(self, simd: S) {
        self.0.run(simd);
    }
}

/// Adapter from a closure to [`SimdWork`].
struct ClosureWork<F>(F);

impl<S, R, F: FnOnce() -> R> SimdWork<S> for ClosureWork<F> {
    type Output = R;

    #[inline(always)]
    fn run(self, _: S) -> R {
        (self.0)()
    }
}

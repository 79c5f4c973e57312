//! Number types of a forward pass: f32, or f64 if the weights are.

use std::fmt::Debug;
use std::ops::{AddAssign, Div, Mul, MulAssign, Neg, Sub};

use kernels::Loops;

use crate::Result;
use crate::kernel::{self, KernelNumber, Pool, Product};
use crate::memory::zeros;

/// Floating-point number with the functions of a forward pass.
pub(crate) trait Real:
    KernelNumber
    + Debug
    + PartialOrd
    + AddAssign
    + Div<Output = Self>
    + Mul<Output = Self>
    + MulAssign
    + Neg<Output = Self>
    + Sub<Output = Self>
{
    const ONE: Self;
    const NEG_INFINITY: Self;

    fn from_f64(number: f64) -> Self;
    fn from_f32(number: f32) -> Self;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    fn sqrt(self) -> Self;
    /// Returns e to the power of the number, within two units in the last place. Loops over it become vector
    /// instructions in f32.
    fn exp(self) -> Self;
    /// Returns the hyperbolic tangent, within a few units in the last place. Loops over it become vector instructions
    /// in f32.
    fn tanh(self) -> Self;
    fn erf(self) -> Self;
    /// Computes products as one batch of work for the threads.
    fn linear(pool: &Pool, products: Vec<Product<'_, Self>>);
    /// Runs loops with the vector instructions of the CPU.
    fn run(loops: impl Loops<Self>);
    /// Fills `out` with the numbers that `write` computes, rounded to f32.
    ///
    /// # Errors
    /// When a buffer for the unrounded numbers does not fit in memory.
    fn into_f32(out: &mut [f32], write: impl FnOnce(&mut [Self])) -> Result<()>;
}

impl Real for f32 {
    const ONE: Self = 1.0;
    const NEG_INFINITY: Self = Self::NEG_INFINITY;

    #[expect(clippy::cast_possible_truncation, reason = "it is rounded")]
    fn from_f64(number: f64) -> Self {
        number as Self
    }

    fn from_f32(number: f32) -> Self {
        number
    }

    fn to_f32(self) -> f32 {
        self
    }

    fn to_f64(self) -> f64 {
        self.into()
    }

    fn sqrt(self) -> Self {
        Self::sqrt(self)
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a call in a loop keeps it from being made of vector instructions"
    )]
    fn exp(self) -> Self {
        exp(self)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn tanh(self) -> Self {
        tanh(self)
    }

    fn erf(self) -> Self {
        libm::erff(self)
    }

    fn linear(pool: &Pool, products: Vec<Product<'_, Self>>) {
        kernel::linear(pool, products);
    }

    fn run(loops: impl Loops<Self>) {
        kernels::run_f32(loops);
    }

    fn into_f32(out: &mut [f32], write: impl FnOnce(&mut [Self])) -> Result<()> {
        write(out);
        Ok(())
    }
}

impl Real for f64 {
    const ONE: Self = 1.0;
    const NEG_INFINITY: Self = Self::NEG_INFINITY;

    fn from_f64(number: f64) -> Self {
        number
    }

    fn from_f32(number: f32) -> Self {
        number.into()
    }

    #[expect(clippy::cast_possible_truncation, reason = "it is rounded")]
    fn to_f32(self) -> f32 {
        self as f32
    }

    fn to_f64(self) -> f64 {
        self
    }

    fn sqrt(self) -> Self {
        Self::sqrt(self)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as in f32")]
    fn exp(self) -> Self {
        libm::exp(self)
    }

    fn tanh(self) -> Self {
        libm::tanh(self)
    }

    fn erf(self) -> Self {
        libm::erf(self)
    }

    fn linear(pool: &Pool, products: Vec<Product<'_, Self>>) {
        kernel::linear_f64(pool, products);
    }

    fn run(loops: impl Loops<Self>) {
        kernels::run_f64(loops);
    }

    fn into_f32(out: &mut [f32], write: impl FnOnce(&mut [Self])) -> Result<()> {
        let mut wide = zeros(out.len())?;
        write(&mut wide);
        out.iter_mut().zip(wide).for_each(|(out, wide)| *out = wide.to_f32());
        Ok(())
    }
}

/// Computes e^x without branches or calls, so that a loop over it becomes vector instructions. Results close to the
/// smallest normal number, and below it, are 0.
///
/// Facts: `expf` of the Cephes library: x = n ln 2 + r with |r| ≤ ln 2 / 2, and a polynomial for e^r.
#[inline(always)]
#[expect(clippy::excessive_precision, reason = "the constants of the source")]
fn exp(x: f32) -> f32 {
    const LOWEST: f32 = -86.9;
    const HIGHEST: f32 = 88.722_84;
    /// Addend that rounds a small number to an integer, which is then in the lowest bits.
    const ROUNDS: f32 = 12_582_912.0;
    const ONE: u32 = 0x3f80_0000;
    const MANTISSA: u32 = 23;
    // Comparisons instead of `clamp`, because NaN stays NaN.
    let x = if x > HIGHEST { f32::INFINITY } else { x };
    let bounded = if x > HIGHEST { HIGHEST } else { x };
    let bounded = if bounded < LOWEST { LOWEST } else { bounded };
    let shifted = bounded * std::f32::consts::LOG2_E + ROUNDS;
    let n = shifted - ROUNDS;
    let r = bounded - n * 0.693_359_375;
    let r = r + n * 2.121_944_4e-4;
    let p = 1.987_569_15e-4;
    let p = p * r + 1.398_199_950_7e-3;
    let p = p * r + 8.333_451_907_3e-3;
    let p = p * r + 4.166_579_589_4e-2;
    let p = p * r + 1.666_666_545_9e-1;
    let p = p * r + 5.000_000_120_1e-1;
    let p = p * (r * r) + r + 1.0;
    // Half of 2^n, because n is 128 for the largest results.
    let half = f32::from_bits((shifted.to_bits() << MANTISSA).wrapping_add(ONE).wrapping_sub(1 << MANTISSA));
    let result = p * half * 2.0;
    if x < LOWEST {
        0.0
    } else if x > HIGHEST {
        x
    } else {
        result
    }
}

/// Computes the hyperbolic tangent without branches or calls.
///
/// Facts: `tanhf` of the Cephes library: a polynomial for small numbers, and powers of e for larger ones.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as of `exp`")]
#[expect(clippy::excessive_precision, reason = "the constants of the source")]
fn tanh(x: f32) -> f32 {
    let z = x * x;
    let p = -5.704_988_727_45e-3;
    let p = p * z + 2.063_908_879_54e-2;
    let p = p * z - 5.373_971_555_31e-2;
    let p = p * z + 1.333_144_220_36e-1;
    let p = p * z - 3.333_328_194_22e-1;
    let small = p * z * x + x;
    let magnitude = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
    let large = if x < 0.0 { -magnitude } else { magnitude };
    if x.abs() < 0.625 { small } else { large }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_e_are_within_two_units_in_the_last_place() {
        let (mut x, mut worst) = (-86.9_f32, 0.0_f64);
        while x < 88.7 {
            let exact = f64::from(x).exp();
            worst = worst.max(((f64::from(exp(x)) - exact) / exact).abs());
            x += 0.003_7;
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "{worst}");
        assert_eq!((exp(0.0), exp(f32::NEG_INFINITY), exp(-100.0)), (1.0, 0.0, 0.0));
        assert_eq!((exp(89.0), exp(f32::INFINITY)), (f32::INFINITY, f32::INFINITY));
        // At the bounds: the largest number may have an infinite power, and the smallest one has a power that is not 0.
        assert!(exp(88.722_84) > 3.4e38 && exp(-86.9) > 0.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn hyperbolic_tangents_are_within_two_units_in_the_last_place() {
        let (mut x, mut worst) = (-12.0_f32, 0.0_f64);
        while x < 12.0 {
            let exact = f64::from(x).tanh();
            worst = worst.max(((f64::from(tanh(x)) - exact) / exact).abs());
            x += 0.000_37;
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "{worst}");
        assert_eq!((tanh(0.0), tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)), (0.0, 1.0, -1.0));
        assert_eq!((tanh(50.0), tanh(-50.0)), (1.0, -1.0));
        assert!(tanh(f32::NAN).is_nan());
    }
}

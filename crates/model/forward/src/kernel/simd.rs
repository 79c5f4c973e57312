//! Vector operations of products, and their implementation for any CPU, with arrays.
//!
//! Facts: IEEE 754-2019 for float16; bfloat16 is the upper half of a float32, and PyTorch rounds to it to nearest even
//! (`c10/util/BFloat16.h`).

#![expect(
    clippy::inline_always,
    reason = "a method becomes instructions only as a part of the function that is compiled for them"
)]
#![expect(clippy::indexing_slicing, reason = "arrays, whose sizes are types")]

/// Work on vectors, which [`Simd::run`] compiles for the instructions of `S`.
pub(crate) trait SimdWork<S> {
    type Output;

    /// Runs the work. Implementations are `#[inline(always)]`, so that they become part of a function for these
    /// instructions.
    fn run(self, simd: S) -> Self::Output;
}

/// Operations on vectors of `N` numbers.
pub(crate) trait Simd<T, const N: usize>: Copy + Send + Sync + 'static {
    /// Vector of `N` numbers.
    type Vector: Copy;

    fn run<W: SimdWork<Self>>(self, work: W) -> W::Output;
    /// Returns a vector of equal elements.
    fn splat(self, value: T) -> Self::Vector;
    fn load(self, array: &[T; N]) -> Self::Vector;
    fn store(self, vector: Self::Vector) -> [T; N];
    /// Returns `a * b + c`, rounded once if the CPU can.
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    fn transpose(self, matrix: &mut [[T; N]; N]);
}

/// Conversion of `N` weights of dtype `D`, `B` bytes, to a vector.
pub(super) trait Load<D, T, const N: usize, const B: usize>: Simd<T, N> {
    fn load_weights(self, bytes: &[u8; B]) -> Self::Vector;
}

/// Marker for the dtype float64.
#[derive(Clone, Copy)]
pub(super) struct F64;
/// Marker for the dtype float32.
#[derive(Clone, Copy)]
pub(super) struct F32;
/// Marker for the dtype bfloat16.
#[derive(Clone, Copy)]
pub(super) struct Bf16;
/// Marker for the dtype float16.
#[derive(Clone, Copy)]
pub(super) struct F16;

/// Portable instruction set of every CPU; the compiler makes vectors of the arrays as far as it can.
#[derive(Clone, Copy)]
pub(super) struct Portable;

macro_rules! portable {
    ($float:ty, $n:literal) => {
        impl Simd<$float, $n> for Portable {
            type Vector = [$float; $n];

            #[inline(never)]
            fn run<W: SimdWork<Self>>(self, work: W) -> W::Output {
                work.run(self)
            }

            #[inline(always)]
            fn splat(self, value: $float) -> Self::Vector {
                [value; $n]
            }

            #[inline(always)]
            fn load(self, array: &[$float; $n]) -> Self::Vector {
                *array
            }

            #[inline(always)]
            fn store(self, vector: Self::Vector) -> [$float; $n] {
                vector
            }

            #[inline(always)]
            fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
                std::array::from_fn(|i| a[i] * b[i] + c[i])
            }

            #[inline(always)]
            fn transpose(self, matrix: &mut [[$float; $n]; $n]) {
                transpose(matrix);
            }
        }
    };
}
portable!(f32, 16);
portable!(f64, 8);

/// Exchanges rows and columns of a matrix.
#[inline(always)]
pub(super) fn transpose<T: Copy, const N: usize>(matrix: &mut [[T; N]; N]) {
    let before = *matrix;
    for (i, row) in matrix.iter_mut().enumerate() {
        *row = std::array::from_fn(|j| before[j][i]);
    }
}

/// Reads `B / S` numbers of `S` bytes each.
#[inline(always)]
fn read_elements<T, const S: usize, const N: usize, const B: usize>(
    bytes: &[u8; B],
    read: impl Fn([u8; S]) -> T,
) -> [T; N] {
    let (elements, _) = bytes.as_chunks::<S>();
    std::array::from_fn(|i| read(elements[i]))
}

impl Load<F64, f64, 8, 64> for Portable {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 64]) -> [f64; 8] {
        read_elements(bytes, f64::from_le_bytes)
    }
}

impl Load<F32, f32, 16, 64> for Portable {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 64]) -> [f32; 16] {
        read_elements(bytes, f32::from_le_bytes)
    }
}

impl Load<Bf16, f32, 16, 32> for Portable {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 32]) -> [f32; 16] {
        read_elements(bytes, from_bf16)
    }
}

impl Load<F16, f32, 16, 32> for Portable {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 32]) -> [f32; 16] {
        read_elements(bytes, from_f16)
    }
}

impl Load<F32, f64, 8, 32> for Portable {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 32]) -> [f64; 8] {
        read_elements(bytes, |bytes| f64::from(f32::from_le_bytes(bytes)))
    }
}

impl Load<Bf16, f64, 8, 16> for Portable {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 16]) -> [f64; 8] {
        read_elements(bytes, |bytes| f64::from(from_bf16(bytes)))
    }
}

impl Load<F16, f64, 8, 16> for Portable {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 16]) -> [f64; 8] {
        read_elements(bytes, |bytes| f64::from(from_f16(bytes)))
    }
}

/// Converts a bfloat16 to the equal f32.
#[inline(always)]
pub(super) fn from_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// Converts a float16 to the equal f32.
#[inline(always)]
pub(super) fn from_f16(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let (sign, magnitude) = ((bits & 0x8000) << 16, bits & 0x7fff);
    let not_finite = f32::from_bits(sign | 0x7f80_0000 | ((magnitude & 0x3ff) << 13));
    // The biases of the exponents differ by 112. The product is exact, also for subnormal numbers.
    let finite = f32::from_bits(sign | (magnitude << 13)) * f32::from_bits(0x7780_0000);
    if magnitude >= 0x7c00 { not_finite } else { finite }
}

/// Rounds a number to the nearest bfloat16, from halfway to the even one.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff).wrapping_add((bits >> 16) & 1);
    // The payload of a NaN in the lower half would be lost, and the rest could be an infinity.
    let kept = if value.is_nan() { bits | 0x40_0000 } else { rounded };
    (kept >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float16_keeps_what_is_not_finite() {
        let number = |bits: u16| from_f16(bits.to_le_bytes());
        assert!(number(0x7e00).is_nan() && number(0xfc01).is_nan());
        assert!(number(0x7c00) > f32::MAX && number(0xfc00) < f32::MIN);
    }
}

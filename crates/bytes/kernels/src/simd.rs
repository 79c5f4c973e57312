//! Vector operations, and their implementation for any CPU, with arrays.

#![expect(clippy::indexing_slicing, reason = "arrays, whose sizes are types")]

use crate::narrow_float::{from_bf16, from_f16, split_block};

/// Work on vectors, which [`Instructions::run`] compiles for the instructions of `S`.
pub trait SimdWork<S> {
    /// Result of the work.
    type Output;

    /// Runs the work. Implementations are `#[inline(always)]`, so that they become part of a function for these
    /// instructions.
    fn run(self, simd: S) -> Self::Output;
}

/// Instruction set.
pub trait Instructions: Copy + Send + Sync + 'static {
    /// Number of rows whose sums fit in the registers if a row has two vectors, with some registers left for the factors.
    const TILE_ROWS: usize;
    /// True if [`Simd::mul_add`] rounds once.
    const IS_FUSED: bool;

    /// Runs the work in a function that is compiled for these instructions.
    fn run<W: SimdWork<Self>>(self, work: W) -> W::Output;
}

/// Operations on vectors of `N` numbers.
pub trait Simd<T, const N: usize>: Instructions {
    /// Vector of `N` numbers.
    type Vector: Copy;

    /// Returns a vector of equal elements.
    fn splat(self, value: T) -> Self::Vector;
    /// Returns the vector of the elements of an array.
    fn load(self, array: &[T; N]) -> Self::Vector;
    /// Returns the elements of a vector.
    fn store(self, vector: Self::Vector) -> [T; N];
    /// Returns `a * b + c`, rounded once if the CPU can.
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// Exchanges the rows and columns of a matrix.
    fn transpose(self, matrix: &mut [[T; N]; N]);
}

/// Conversion of `N` weights of dtype `D`, `B` bytes, to a vector.
pub trait Load<D, T, const N: usize, const B: usize>: Simd<T, N> {
    /// Returns the vector of the numbers that are encoded in `bytes`, little-endian.
    fn load_weights(self, bytes: &[u8; B]) -> Self::Vector;
}

/// Conversion of the codes of a block of `Q8_0`: a float16 scale, and then 32 codes of eight bits.
pub trait LoadBlock: Simd<f32, 16> {
    /// Returns the scale as all elements of a vector, and the codes.
    fn load_block(self, block: &[u8; 34]) -> (Self::Vector, [Self::Vector; 2]);
}

/// Marker for the dtype float64.
#[derive(Clone, Copy)]
pub struct F64;
/// Marker for the dtype float32.
#[derive(Clone, Copy)]
pub struct F32;
/// Marker for the dtype bfloat16.
#[derive(Clone, Copy)]
pub struct Bf16;
/// Marker for the dtype float16.
#[derive(Clone, Copy)]
pub struct F16;

/// Portable instruction set of every CPU; the compiler makes vectors of the arrays as far as it can.
#[derive(Clone, Copy)]
pub struct Portable;

impl Instructions for Portable {
    const TILE_ROWS: usize = 1;
    const IS_FUSED: bool = false;

    #[inline(never)]
    fn run<W: SimdWork<Self>>(self, work: W) -> W::Output {
        work.run(self)
    }
}

macro_rules! portable {
    ($float:ty, $n:literal) => {
        impl Simd<$float, $n> for Portable {
            type Vector = [$float; $n];

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
pub(crate) fn transpose<T: Copy, const N: usize>(matrix: &mut [[T; N]; N]) {
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
        read_elements(bytes, |bits| from_bf16(u16::from_le_bytes(bits)))
    }
}

impl Load<F16, f32, 16, 32> for Portable {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 32]) -> [f32; 16] {
        read_elements(bytes, |bits| from_f16(u16::from_le_bytes(bits)))
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
        read_elements(bytes, |bits| from_bf16(u16::from_le_bytes(bits)).into())
    }
}

impl Load<F16, f64, 8, 16> for Portable {
    #[inline(always)]
    fn load_weights(self, bytes: &[u8; 16]) -> [f64; 8] {
        read_elements(bytes, |bits| from_f16(u16::from_le_bytes(bits)).into())
    }
}

impl LoadBlock for Portable {
    #[inline(always)]
    fn load_block(self, block: &[u8; 34]) -> ([f32; 16], [[f32; 16]; 2]) {
        let (scale, codes) = split_block(block);
        let half = |half: usize| std::array::from_fn(|i| codes[half * 16 + i].cast_signed().into());
        ([from_f16(scale); 16], [half(0), half(1)])
    }
}

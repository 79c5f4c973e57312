//! Conversion of numbers from one dtype to another.
//!
//! Facts: `Tensor.to(dtype)` of PyTorch 2.15 on a CPU, which is C++'s `static_cast` by way of float32 if one of the
//! dtypes is a float of 16 or 8 bits (`c10/util/TypeCast.h`). The conversion of a float that is out of the integer's
//! range, which C++ leaves undefined, is refused here.

#![expect(
    clippy::inline_always,
    reason = "a loop is only compiled for the vectors of the processor within its caller"
)]

use crate::Dtype;
use crate::small_float::{
    BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E4M3FNUZ, FLOAT8_E5M2, FLOAT8_E5M2FNUZ, FLOAT16, SmallFloat, decode_e8m0,
    encode_e8m0,
};

/// Numbers decoded at a time, few enough to stay in the L1 cache.
const BLOCK: usize = 512;

/// Conversion of numbers of one dtype into another.
///
/// ```
/// use tensor::{DtypeConversion, Dtype};
///
/// assert!(DtypeConversion::new(Dtype::Float32, Dtype::BFloat16).is_some());
/// assert!(DtypeConversion::new(Dtype::Complex64, Dtype::Float32).is_none(), "the imaginary parts would be lost");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DtypeConversion {
    from: Dtype,
    to: Dtype,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComponentClass {
    Float,
    Integer,
    Bool,
    Complex,
    /// Packed numbers, quantized numbers, and bits that are not numbers.
    Other,
}

impl DtypeConversion {
    /// Returns the conversion; `None` if a dtype is not one of plain numbers, or only one of the two is complex.
    pub fn new(from: Dtype, to: Dtype) -> Option<Self> {
        let is_one = match (component_class(from), component_class(to)) {
            (ComponentClass::Other, _) | (_, ComponentClass::Other) => false,
            (from, to) => (from == ComponentClass::Complex) == (to == ComponentClass::Complex),
        };
        is_one.then_some(Self { from, to })
    }

    /// Returns the dtype before the conversion.
    pub fn from(self) -> Dtype {
        self.from
    }

    /// Returns the dtype of the result.
    pub fn to(self) -> Dtype {
        self.to
    }

    /// Returns true if a number out of the target's range has no result: C++ and with it PyTorch leave undefined which
    /// integer a float becomes.
    pub fn requires_range(self) -> bool {
        component_class(self.from) == ComponentClass::Float
            && component_class(self.to) == ComponentClass::Integer
    }

    /// Converts components, little-endian. Returns true if all of them are in the target's range. Components out of
    /// range become infinite or NaN, become the largest number of a dtype without infinity, or wrap around.
    pub fn convert(self, bytes: &[u8], out: &mut [u8]) -> bool {
        match component_dtype(self.from) {
            Dtype::Float64 => self.convert_through::<f64, 8>(bytes, out, f64::from_le_bytes),
            Dtype::Float32 => self.convert_through::<f32, 4>(bytes, out, f32::from_le_bytes),
            Dtype::Float16 => {
                self.convert_through(bytes, out, |code| FLOAT16.decode(u16::from_le_bytes(code).into()))
            }
            Dtype::BFloat16 => self.convert_through(bytes, out, |code| {
                f32::from_bits(u32::from(u16::from_le_bytes(code)) << 16)
            }),
            Dtype::Float8E4M3Fn => {
                self.convert_through(bytes, out, |[code]| FLOAT8_E4M3FN.decode(code.into()))
            }
            Dtype::Float8E4M3FnUz => {
                self.convert_through(bytes, out, |[code]| FLOAT8_E4M3FNUZ.decode(code.into()))
            }
            Dtype::Float8E5M2 => self.convert_through(bytes, out, |[code]| FLOAT8_E5M2.decode(code.into())),
            Dtype::Float8E5M2FnUz => {
                self.convert_through(bytes, out, |[code]| FLOAT8_E5M2FNUZ.decode(code.into()))
            }
            Dtype::Float8E8M0FnU => self.convert_through(bytes, out, |[code]| decode_e8m0(code)),
            Dtype::Int64 => self.convert_through::<i64, 8>(bytes, out, i64::from_le_bytes),
            Dtype::Int32 => self.convert_through::<i32, 4>(bytes, out, i32::from_le_bytes),
            Dtype::Int16 => self.convert_through(bytes, out, |n| i32::from(i16::from_le_bytes(n))),
            Dtype::Int8 => self.convert_through(bytes, out, |n| i32::from(i8::from_le_bytes(n))),
            Dtype::UInt64 => self.convert_through::<u64, 8>(bytes, out, u64::from_le_bytes),
            Dtype::UInt32 => self.convert_through(bytes, out, |n| i64::from(u32::from_le_bytes(n))),
            Dtype::UInt16 => self.convert_through(bytes, out, |n| i32::from(u16::from_le_bytes(n))),
            Dtype::UInt8 => self.convert_through(bytes, out, |[n]| i32::from(n)),
            Dtype::Bool => self.convert_through(bytes, out, |[n]| i32::from(n != 0)),
            // `new` refuses all other dtypes.
            _ => false,
        }
    }

    /// Formats a float before the conversion, for messages.
    pub(crate) fn format_number(self, bytes: &[u8]) -> String {
        let mut double = [0; 8];
        let to_double = Self { from: self.from, to: Dtype::Float64 };
        to_double.convert(bytes, &mut double);
        format!("{:?}", f64::from_le_bytes(double))
    }

    /// Decodes blocks of numbers with `decode`, and encodes them as the target dtype.
    fn convert_through<N: DecodedNumber, const SIZE: usize>(
        self,
        bytes: &[u8],
        out: &mut [u8],
        decode: impl Fn([u8; SIZE]) -> N,
    ) -> bool {
        let size = usize::try_from(self.to.component_size()).unwrap_or(1);
        let mut fits = true;
        let blocks = bytes.as_chunks::<SIZE>().0.chunks(BLOCK);
        for (codes, out) in blocks.zip(out.chunks_mut(BLOCK.saturating_mul(size))) {
            let mut numbers = [N::default(); BLOCK];
            for (number, code) in numbers.iter_mut().zip(codes) {
                *number = decode(*code);
            }
            fits &=
                encode_numbers(numbers.get(..codes.len()).unwrap_or_default(), component_dtype(self.to), out);
        }
        fits
    }
}

impl Dtype {
    /// Decodes numbers of a real dtype, little-endian, into float32; 64-bit numbers are rounded. Returns `None` if the
    /// dtype is not one of plain real numbers.
    pub fn decode_f32(self, bytes: &[u8]) -> Option<Vec<f32>> {
        let conversion = DtypeConversion::new(self, Self::Float32)?;
        let size = usize::try_from(self.size()).ok()?;
        let mut floats = vec![0; bytes.len().checked_div(size)?.checked_mul(4)?];
        conversion.convert(bytes, &mut floats);
        Some(floats.as_chunks().0.iter().map(|float| f32::from_le_bytes(*float)).collect())
    }

    /// Encodes numbers as this dtype, little-endian, rounded as by `Tensor.to(dtype)`. Numbers out of range become
    /// infinite, the largest number, or wrap around. `out` has the size of the numbers.
    pub fn encode_f32(self, numbers: &[f32], out: &mut [u8]) {
        match component_dtype(self) {
            Dtype::Float16 => kernels::vectorize(|| encode_wide(FLOAT16, numbers, out)),
            Dtype::BFloat16 => kernels::vectorize(|| encode_wide(BFLOAT16, numbers, out)),
            to => encode_numbers(numbers, to, out),
        };
    }

    /// Returns true if the elements are real floating-point numbers, as `torch.dtype.is_floating_point` says.
    pub fn is_floating_point(self) -> bool {
        component_class(self) == ComponentClass::Float || self == Self::Float4E2M1FnX2
    }
}

fn component_class(dtype: Dtype) -> ComponentClass {
    match dtype {
        Dtype::Float64
        | Dtype::Float32
        | Dtype::Float16
        | Dtype::BFloat16
        | Dtype::Float8E4M3Fn
        | Dtype::Float8E4M3FnUz
        | Dtype::Float8E5M2
        | Dtype::Float8E5M2FnUz
        | Dtype::Float8E8M0FnU => ComponentClass::Float,
        Dtype::Int64
        | Dtype::Int32
        | Dtype::Int16
        | Dtype::Int8
        | Dtype::UInt64
        | Dtype::UInt32
        | Dtype::UInt16
        | Dtype::UInt8 => ComponentClass::Integer,
        Dtype::Bool => ComponentClass::Bool,
        Dtype::Complex128 | Dtype::Complex64 | Dtype::Complex32 | Dtype::BComplex32 => {
            ComponentClass::Complex
        }
        Dtype::Float4E2M1FnX2
        | Dtype::Bits16
        | Dtype::Bits8
        | Dtype::Bits4X2
        | Dtype::Bits2X4
        | Dtype::Bits1X8
        | Dtype::QInt8
        | Dtype::QUInt8
        | Dtype::QInt32
        | Dtype::QUInt4X2
        | Dtype::QUInt2X4 => ComponentClass::Other,
    }
}

/// Returns the dtype of the real and the imaginary part; any other dtype is its own component.
fn component_dtype(dtype: Dtype) -> Dtype {
    match dtype {
        Dtype::Complex128 => Dtype::Float64,
        Dtype::Complex64 => Dtype::Float32,
        Dtype::Complex32 => Dtype::Float16,
        Dtype::BComplex32 => Dtype::BFloat16,
        dtype => dtype,
    }
}

fn encode_numbers<N: DecodedNumber>(numbers: &[N], to: Dtype, out: &mut [u8]) -> bool {
    let small = |code: u32, fits| {
        let [low, ..] = code.to_le_bytes();
        ([low], fits)
    };
    match to {
        Dtype::Float64 => encode_each(numbers, out, |n| (n.to_f64().to_le_bytes(), true)),
        Dtype::Float32 => encode_each(numbers, out, |n| {
            let number = n.to_f32();
            (number.to_le_bytes(), !number.is_infinite() || !n.is_finite())
        }),
        Dtype::Float16 => encode_wide(FLOAT16, numbers, out),
        Dtype::BFloat16 => encode_wide(BFLOAT16, numbers, out),
        Dtype::Float8E4M3Fn => encode_each(numbers, out, |n| {
            let (code, fits) = FLOAT8_E4M3FN.encode(n.to_f32());
            small(code, fits)
        }),
        Dtype::Float8E4M3FnUz => encode_each(numbers, out, |n| {
            let (code, fits) = FLOAT8_E4M3FNUZ.encode(n.to_f32());
            small(code, fits)
        }),
        Dtype::Float8E5M2 => encode_each(numbers, out, |n| {
            let (code, fits) = FLOAT8_E5M2.encode(n.to_f32());
            small(code, fits && n.stays_finite())
        }),
        Dtype::Float8E5M2FnUz => encode_each(numbers, out, |n| {
            let (code, fits) = FLOAT8_E5M2FNUZ.encode(n.to_f32());
            small(code, fits)
        }),
        Dtype::Float8E8M0FnU => encode_each(numbers, out, |n| {
            let (code, fits) = encode_e8m0(n.to_f32());
            ([code], fits)
        }),
        Dtype::Int64 => encode_integers::<N, 8>(numbers, out, i64::MIN.into(), i64::MAX.into()),
        Dtype::Int32 => encode_integers::<N, 4>(numbers, out, i32::MIN.into(), i32::MAX.into()),
        Dtype::Int16 => encode_integers::<N, 2>(numbers, out, i16::MIN.into(), i16::MAX.into()),
        Dtype::Int8 => encode_integers::<N, 1>(numbers, out, i8::MIN.into(), i8::MAX.into()),
        Dtype::UInt64 => encode_integers::<N, 8>(numbers, out, 0, u64::MAX.into()),
        Dtype::UInt32 => encode_integers::<N, 4>(numbers, out, 0, u32::MAX.into()),
        Dtype::UInt16 => encode_integers::<N, 2>(numbers, out, 0, u16::MAX.into()),
        Dtype::UInt8 => encode_integers::<N, 1>(numbers, out, 0, u8::MAX.into()),
        Dtype::Bool => encode_each(numbers, out, |n| ([u8::from(n != N::default())], true)),
        // `DtypeConversion::new` refuses all other dtypes.
        _ => false,
    }
}

/// Encodes numbers as a format of 16 bits; returns true if all fit.
#[inline(always)]
fn encode_wide<N: DecodedNumber>(format: SmallFloat, numbers: &[N], out: &mut [u8]) -> bool {
    encode_each(numbers, out, |number| {
        let (code, fits) = format.encode(number.to_f32());
        let [low, high, ..] = code.to_le_bytes();
        ([low, high], fits && number.stays_finite())
    })
}

/// Encodes each number with `encode`; returns true if all fit.
#[inline(always)]
fn encode_each<N: DecodedNumber, const SIZE: usize>(
    numbers: &[N],
    out: &mut [u8],
    encode: impl Fn(N) -> ([u8; SIZE], bool),
) -> bool {
    let mut all = true;
    for (out, number) in out.as_chunks_mut::<SIZE>().0.iter_mut().zip(numbers) {
        let (code, fits) = encode(*number);
        *out = code;
        all &= fits;
    }
    all
}

/// Encodes the lowest bytes of each integer in two's complement; returns true if all fit.
fn encode_integers<N: DecodedNumber, const SIZE: usize>(
    numbers: &[N],
    out: &mut [u8],
    min: i128,
    max: i128,
) -> bool {
    encode_each(numbers, out, |number| {
        let integer = number.to_integer();
        let bytes = integer.unwrap_or_default().to_le_bytes();
        let low = bytes.first_chunk().copied().unwrap_or([0; SIZE]);
        (low, integer.is_some_and(|integer| (min..=max).contains(&integer)))
    })
}

/// Number type to which the numbers of a dtype are decoded.
trait DecodedNumber: Copy + Default + PartialEq {
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    /// Returns the number without its fraction; numbers outside 65 bits stay outside, and NaN is `None`.
    fn to_integer(self) -> Option<i128>;
    fn is_finite(self) -> bool;
    /// Returns false if a finite number becomes an infinity as an f32.
    fn stays_finite(self) -> bool {
        self.to_f32().is_finite() || !self.is_finite()
    }
}

impl DecodedNumber for f32 {
    fn to_f32(self) -> f32 {
        self
    }

    fn to_f64(self) -> f64 {
        self.into()
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the fraction is dropped, and larger numbers stay large"
    )]
    fn to_integer(self) -> Option<i128> {
        (!self.is_nan()).then_some(self as i128)
    }

    fn is_finite(self) -> bool {
        self.is_finite()
    }
}

impl DecodedNumber for f64 {
    #[expect(clippy::cast_possible_truncation, reason = "it is rounded to the nearest number")]
    fn to_f32(self) -> f32 {
        self as f32
    }

    fn to_f64(self) -> f64 {
        self
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the fraction is dropped, and larger numbers stay large"
    )]
    fn to_integer(self) -> Option<i128> {
        (!self.is_nan()).then_some(self as i128)
    }

    fn is_finite(self) -> bool {
        self.is_finite()
    }
}

/// Implements [`DecodedNumber`] for integers, each with its conversion to f64.
macro_rules! integer {
    ($($integer:ty: $to_f64:expr),*) => {$(
        #[expect(clippy::cast_precision_loss, reason = "it is rounded to the nearest number")]
        impl DecodedNumber for $integer {
            fn to_f32(self) -> f32 {
                self as f32
            }

            fn to_f64(self) -> f64 {
                $to_f64(self)
            }

            fn to_integer(self) -> Option<i128> {
                Some(self.into())
            }

            fn is_finite(self) -> bool {
                true
            }
        }
    )*};
}
integer!(i32: f64::from, i64: |n| n as f64, u64: |n| n as f64);

#[cfg(test)]
mod tests {
    use super::*;

    fn converted<const N: usize>(from: Dtype, to: Dtype, numbers: &[[u8; N]]) -> (Vec<u8>, bool) {
        let conversion = DtypeConversion::new(from, to).expect("both are numbers");
        let size = usize::try_from(to.component_size()).expect("it is small");
        let mut out = vec![0xaa; numbers.len().saturating_mul(size)];
        let fits = conversion.convert(numbers.as_flattened(), &mut out);
        (out, fits)
    }

    fn from_f64(to: Dtype, numbers: &[f64]) -> (Vec<u8>, bool) {
        converted(Dtype::Float64, to, &numbers.iter().map(|n| n.to_le_bytes()).collect::<Vec<_>>())
    }

    #[test]
    fn doubles_are_rounded_twice_as_pytorch_does() {
        // Just above halfway: rounded to float32 first, it is halfway.
        let number = 1.0 + f64::from(2.0_f32.powi(-8)) + f64::from(2.0_f32.powi(-40));
        assert_eq!(from_f64(Dtype::BFloat16, &[number]), (0x3f80_u16.to_le_bytes().to_vec(), true));
        assert_eq!(from_f64(Dtype::Float16, &[65_519.999_999]), (0x7c00_u16.to_le_bytes().to_vec(), false));
    }

    #[test]
    fn numbers_out_of_range_are_reported() {
        for to in [Dtype::Float32, Dtype::Float16, Dtype::BFloat16, Dtype::Float8E5M2, Dtype::Float8E8M0FnU] {
            assert!(!from_f64(to, &[1.0, 1e300, 2.0]).1, "{to}");
            assert!(from_f64(to, &[1.0, f64::NAN]).1, "{to}");
        }
        assert_eq!(from_f64(Dtype::Float32, &[f64::INFINITY]), (f32::INFINITY.to_le_bytes().to_vec(), true));
        let wrapped = converted(Dtype::Int16, Dtype::Int8, &[300_i16, -1, -129].map(i16::to_le_bytes));
        assert_eq!(wrapped, (vec![44, 255, 127], false));
        let wrapped = converted(Dtype::UInt64, Dtype::Int64, &[u64::MAX.to_le_bytes()]);
        assert_eq!(wrapped, (vec![255; 8], false));
    }

    #[test]
    fn floats_become_integers_without_their_fractions() {
        assert_eq!(from_f64(Dtype::Int8, &[2.9, -2.9, 127.9, -128.9]), (vec![2, 254, 127, 128], true));
        assert_eq!(from_f64(Dtype::UInt8, &[-0.9, 255.9]), (vec![0, 255], true));
        for (to, number) in [
            (Dtype::Int8, 128.0),
            (Dtype::UInt8, -1.0),
            (Dtype::Int64, 9_223_372_036_854_775_808.0),
            (Dtype::UInt64, 18_446_744_073_709_551_616.0),
            (Dtype::Int32, f64::NAN),
            (Dtype::Int32, f64::INFINITY),
            (Dtype::UInt64, f64::NEG_INFINITY),
        ] {
            assert!(!from_f64(to, &[0.0, number]).1, "{to} {number}");
        }
        assert_eq!(from_f64(Dtype::Bool, &[0.0, -0.0, 0.5, f64::NAN]), (vec![0, 0, 1, 1], true));
    }

    #[test]
    fn any_number_of_numbers_is_converted() {
        for len in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7] {
            let numbers: Vec<[u8; 4]> = (0_u16..).map(|n| f32::from(n).to_le_bytes()).take(len).collect();
            let (out, fits) = converted(Dtype::Float32, Dtype::Float64, &numbers);
            let numbers = (0_u16..).map(|n| f64::from(n).to_le_bytes()).take(len);
            assert_eq!((out, fits), (numbers.flatten().collect(), true));
        }
    }

    #[test]
    fn dtypes_that_are_not_numbers_are_refused() {
        let castable = Dtype::all().filter(|dtype| DtypeConversion::new(*dtype, *dtype).is_some());
        assert_eq!(castable.count(), 22);
        for (from, to) in Dtype::all().flat_map(|from| Dtype::all().map(move |to| (from, to))) {
            let Some(conversion) = DtypeConversion::new(from, to) else { continue };
            let size = |dtype: Dtype| usize::try_from(dtype.size()).expect("it is small");
            let mut out = vec![0xaa; size(to)];
            // The dtype has no zero.
            if from == Dtype::Float8E8M0FnU {
                continue;
            }
            assert!(conversion.convert(&vec![0; size(from)], &mut out), "{from} {to}");
            assert!(out.iter().all(|byte| *byte == 0), "{from} {to}");
        }
        assert!(Dtype::Float8E5M2.is_floating_point() && !Dtype::Complex64.is_floating_point());
    }
}

//! Products for any CPU.

use tensor::Dtype;

use super::{Matrix, Pool};

/// A number that products are computed in.
pub(crate) trait Number: Copy + Send + Sync + Default {
    /// The elements of little-endian bytes, widened or rounded.
    fn read(dtype: Dtype, bytes: &[u8], out: &mut Vec<Self>);
    /// `self + a * b`.
    fn add_product(self, a: Self, b: Self) -> Self;
    /// `self + other`.
    fn plus(self, other: Self) -> Self;
}

/// `y[m, rows] = x[m, cols] · Wᵀ + bias`.
pub(super) fn linear<T: Number>(pool: &Pool, w: &Matrix, x: &[T], m: usize, bias: Option<&[T]>, y: &mut [T]) {
    if m == 0 || w.rows() == 0 {
        return;
    }
    let row_bytes = w.bytes().len().checked_div(w.rows()).unwrap_or(0);
    pool.chunks(y, w.rows(), |number, y| {
        let start = number.saturating_mul(w.cols());
        let x = x.get(start..start.saturating_add(w.cols())).unwrap_or_default();
        let mut row = Vec::with_capacity(w.cols());
        for (index, y) in y.iter_mut().enumerate() {
            row.clear();
            let start = index.saturating_mul(row_bytes);
            let bytes = w.bytes().get(start..start.saturating_add(row_bytes)).unwrap_or_default();
            T::read(w.dtype(), bytes, &mut row);
            let sum = row.iter().zip(x).fold(T::default(), |sum, (w, x)| sum.add_product(*w, *x));
            *y = bias.and_then(|bias| bias.get(index)).map_or(sum, |bias| sum.plus(*bias));
        }
    });
}

impl Number for f32 {
    #[expect(clippy::cast_possible_truncation, reason = "f64 weights are rounded to the nearest f32")]
    fn read(dtype: Dtype, bytes: &[u8], out: &mut Vec<Self>) {
        match dtype {
            Dtype::Float64 => out.extend(bytes.as_chunks().0.iter().map(|e| f64::from_le_bytes(*e) as f32)),
            Dtype::Float32 => out.extend(bytes.as_chunks().0.iter().map(|e| f32::from_le_bytes(*e))),
            Dtype::BFloat16 => out.extend(bytes.as_chunks().0.iter().map(|e| from_bf16(*e))),
            Dtype::Float16 => out.extend(bytes.as_chunks().0.iter().map(|e| from_f16(*e))),
            _ => {}
        }
    }

    fn add_product(self, a: Self, b: Self) -> Self {
        self + a * b
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl Number for f64 {
    fn read(dtype: Dtype, bytes: &[u8], out: &mut Vec<Self>) {
        if dtype == Dtype::Float64 {
            out.extend(bytes.as_chunks().0.iter().map(|e| f64::from_le_bytes(*e)));
        } else {
            let mut narrow = Vec::with_capacity(out.capacity());
            f32::read(dtype, bytes, &mut narrow);
            out.extend(narrow.into_iter().map(f64::from));
        }
    }

    fn add_product(self, a: Self, b: Self) -> Self {
        self + a * b
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }
}

/// The f32 that is equal to a bfloat16.
fn from_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// The f32 that is equal to a float16.
fn from_f16(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let (sign, magnitude) = ((bits & 0x8000) << 16, bits & 0x7fff);
    if magnitude >= 0x7c00 {
        return f32::from_bits(sign | 0x7f80_0000 | (magnitude & 0x3ff) << 13);
    }
    // The exponent's bias differs by 112, which a multiplication adds; it is exact for subnormal numbers, too.
    f32::from_bits(sign | magnitude << 13) * f32::from_bits(0x7780_0000)
}

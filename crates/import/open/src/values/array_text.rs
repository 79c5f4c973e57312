//! Elements of a tensor as NumPy prints an array.
//!
//! Facts: `_formatArray`, `IntegerFormat` and `ComplexFloatingFormat` in `numpy/_core/arrayprint.py` of NumPy 2.3, with the
//! default options: 75 columns, a summary of three items at each end above 1,000 elements.

use byte_source::Blob;
use tensor::{Dtype, Tensor};

use super::float_text::{self, FloatFormat, FloatWidth};
use crate::{Problem, Result};

const LINE_WIDTH: usize = 75;
/// Number of elements above which only the ends of each dimension are printed.
const SUMMARY_ABOVE: u64 = 1000;
/// Items printed at each end of a dimension in a summary.
const EDGE_ITEMS: u64 = 3;
/// Largest number of dimensions, which is NumPy's.
const DIMENSIONS_MAX: usize = 64;
/// Largest number of elements that are printed: a summary of many short dimensions has all of them.
const ELEMENTS_MAX: u64 = 1 << 20;

/// Way in which NumPy shows the elements of a dtype.
#[derive(Clone, Copy)]
pub(crate) enum ArrayDtype {
    Float(FloatWidth),
    Complex(FloatWidth),
    Integer,
    Bool,
}

/// Returns NumPy's dtype for a dtype of PyTorch, as it is written in a `.npy` file, its text form, and the dtype of PyTorch
/// with these bytes. A float that NumPy lacks becomes the next wider one, which has all of its values.
fn numpy_dtype(dtype: Dtype) -> Option<(&'static str, ArrayDtype, Dtype)> {
    use ArrayDtype::{Bool, Complex, Float, Integer};
    use FloatWidth::{Double, Half, Single};
    Some(match dtype {
        Dtype::Float64 => ("<f8", Float(Double), dtype),
        Dtype::Float32 => ("<f4", Float(Single), dtype),
        Dtype::Float16 => ("<f2", Float(Half), dtype),
        Dtype::BFloat16
        | Dtype::Float8E4M3Fn
        | Dtype::Float8E4M3FnUz
        | Dtype::Float8E5M2
        | Dtype::Float8E5M2FnUz
        | Dtype::Float8E8M0FnU => ("<f4", Float(Single), Dtype::Float32),
        Dtype::Complex128 => ("<c16", Complex(Double), dtype),
        Dtype::Complex64 => ("<c8", Complex(Single), dtype),
        Dtype::Complex32 | Dtype::BComplex32 => ("<c8", Complex(Single), Dtype::Complex64),
        Dtype::Int64 => ("<i8", Integer, dtype),
        Dtype::Int32 | Dtype::QInt32 => ("<i4", Integer, Dtype::Int32),
        Dtype::Int16 => ("<i2", Integer, dtype),
        Dtype::Int8 | Dtype::QInt8 => ("|i1", Integer, Dtype::Int8),
        Dtype::UInt64 => ("<u8", Integer, dtype),
        Dtype::UInt32 => ("<u4", Integer, dtype),
        Dtype::UInt16 | Dtype::Bits16 => ("<u2", Integer, Dtype::UInt16),
        Dtype::UInt8
        | Dtype::QUInt8
        | Dtype::Bits8
        | Dtype::Bits4X2
        | Dtype::Bits2X4
        | Dtype::Bits1X8
        | Dtype::Float4E2M1FnX2
        | Dtype::QUInt4X2
        | Dtype::QUInt2X4 => ("|u1", Integer, Dtype::UInt8),
        Dtype::Bool => ("|b1", Bool, dtype),
        _ => return None,
    })
}

/// Returns the tensor with elements that NumPy has, their name in a `.npy` file, and their text form.
pub(crate) fn numpy_tensor(tensor: &Tensor) -> Result<(&'static str, ArrayDtype, Tensor), Problem> {
    let dtype = tensor.dtype();
    let (name, form, target) = numpy_dtype(dtype).ok_or(Problem::NotNumbers(dtype))?;
    let cast = if target.size() == dtype.size() {
        tensor.with_storage(target, tensor.storage_offset(), tensor.storage().clone()).ok()
    } else {
        tensor.cast(target)
    };
    let cast = cast.ok_or(Problem::NotNumbers(dtype))?;
    if tensor.shape().len() > DIMENSIONS_MAX {
        return Err(Problem::Dimensions { found: tensor.shape().len(), limit: DIMENSIONS_MAX });
    }
    Ok((name, form, cast))
}

/// Returns the text that `print` shows for the tensor as a NumPy array.
///
/// # Errors
/// When the tensor cannot be read, is too large to be printed, or has more dimensions than NumPy allows.
pub fn array_text(tensor: &Tensor) -> Result<String> {
    let (_, form, tensor) = numpy_tensor(tensor)?;
    let shape = tensor.shape();
    if tensor.numel() == 0 {
        return Ok("[]".to_owned());
    }
    let is_summary = tensor.numel() > SUMMARY_ABOVE;
    let dims: Vec<PrintedDim> = shape.iter().map(|size| PrintedDim::new(*size, is_summary)).collect();
    let printed = dims.iter().fold(1_u64, |product, dim| product.saturating_mul(dim.printed()));
    if printed > ELEMENTS_MAX {
        return Err(Problem::TooManyElements { found: printed, limit: ELEMENTS_MAX }.into());
    }
    let bytes = read_printed(&tensor, &dims)?;
    let words = element_texts(&bytes, tensor.dtype(), form, shape.is_empty());
    if shape.is_empty() {
        return Ok(words.concat());
    }
    let mut layout = ArrayLayout { dims: &dims, words: words.into_iter(), out: String::new() };
    layout.rows(0);
    Ok(layout.out)
}

/// Items of a dimension that are printed: all, or the first and the last ones.
struct PrintedDim {
    size: u64,
    is_cut: bool,
}

impl PrintedDim {
    fn new(size: u64, is_summary: bool) -> Self {
        Self { size, is_cut: is_summary && size > EDGE_ITEMS.saturating_mul(2) }
    }

    fn printed(&self) -> u64 {
        if self.is_cut { EDGE_ITEMS.saturating_mul(2) } else { self.size }
    }

    /// Returns the runs of printed items, each with its first index and its length.
    fn runs(&self) -> Vec<(u64, u64)> {
        if self.is_cut {
            vec![(0, EDGE_ITEMS), (self.size.saturating_sub(EDGE_ITEMS), EDGE_ITEMS)]
        } else {
            vec![(0, self.size)]
        }
    }

    fn index(&self, printed: u64) -> u64 {
        if self.is_cut && printed >= EDGE_ITEMS {
            self.size.saturating_sub(EDGE_ITEMS.saturating_mul(2)).saturating_add(printed)
        } else {
            printed
        }
    }
}

/// Reads the printed elements in C order.
fn read_printed(tensor: &Tensor, dims: &[PrintedDim]) -> Result<Vec<u8>> {
    let mut bytes: Vec<u8> = Vec::new();
    if dims.iter().all(|dim| !dim.is_cut) {
        tensor.gathered().write_to(&mut bytes)?;
        return Ok(bytes);
    }
    let (Some((last, outer)), Some(stride)) = (dims.split_last(), tensor.stride().last()) else {
        return Ok(bytes);
    };
    let rows = outer.iter().fold(1_u64, |product, dim| product.saturating_mul(dim.printed()));
    for row in 0..rows {
        let (mut rest, mut offset) = (row, tensor.storage_offset());
        for (dim, stride) in outer.iter().zip(tensor.stride()).rev() {
            let index = dim.index(rest.checked_rem(dim.printed()).unwrap_or(0));
            rest = rest.checked_div(dim.printed()).unwrap_or(0);
            offset = offset.saturating_add(index.saturating_mul(*stride));
        }
        for (first, len) in last.runs() {
            let start = offset.saturating_add(first.saturating_mul(*stride));
            let run = Tensor::new(tensor.dtype(), vec![len], vec![*stride], start, tensor.storage().clone());
            let run = run.map_err(|_| byte_source::Error::from(std::io::ErrorKind::UnexpectedEof))?;
            run.gathered().write_to(&mut bytes)?;
        }
    }
    Ok(bytes)
}

/// Returns the text of each element, padded to the common width unless the element `is_scalar`.
fn element_texts(bytes: &[u8], dtype: Dtype, form: ArrayDtype, is_scalar: bool) -> Vec<String> {
    match form {
        ArrayDtype::Bool => {
            let text = |byte: &u8| match (*byte != 0, is_scalar) {
                (false, _) => "False",
                (true, true) => "True",
                (true, false) => " True",
            };
            bytes.iter().map(|byte| text(byte).to_owned()).collect()
        }
        ArrayDtype::Integer => {
            let texts: Vec<String> = integers(bytes, dtype).iter().map(i128::to_string).collect();
            let width = texts.iter().map(String::len).max().unwrap_or(0);
            texts.into_iter().map(|text| format!("{text:>width$}")).collect()
        }
        ArrayDtype::Float(width) => {
            let numbers = floats(bytes, dtype);
            if is_scalar {
                return numbers.into_iter().map(|number| float_text::scalar(number, width)).collect();
            }
            let format = FloatFormat::new(&numbers, width, false);
            numbers.into_iter().map(|number| format.format(number)).collect()
        }
        ArrayDtype::Complex(width) => {
            let numbers = floats(bytes, dtype);
            let pairs = numbers.as_chunks::<2>().0;
            if is_scalar {
                return pairs.iter().map(|pair| complex_scalar(*pair, width)).collect();
            }
            let reals: Vec<f64> = pairs.iter().map(|[re, _]| *re).collect();
            let imaginary: Vec<f64> = pairs.iter().map(|[_, im]| *im).collect();
            let reals_format = FloatFormat::new(&reals, width, false);
            let imaginary_format = FloatFormat::new(&imaginary, width, true);
            let text = |[re, im]: &[f64; 2]| {
                let im = imaginary_format.format(*im);
                let digits = im.trim_end();
                let padding = im.get(digits.len()..).unwrap_or_default();
                format!("{}{digits}j{padding}", reals_format.format(*re))
            };
            pairs.iter().map(text).collect()
        }
    }
}

/// Formats a complex number as `str` of a NumPy scalar does: `(1+2j)`, `2j`.
fn complex_scalar([re, im]: [f64; 2], width: FloatWidth) -> String {
    let part = |number: f64| {
        let text = float_text::scalar(number, width);
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    };
    if re == 0.0 && re.is_sign_positive() {
        return format!("{}j", part(im));
    }
    let sign = if im.is_sign_negative() && !im.is_nan() { "" } else { "+" };
    format!("({}{sign}{}j)", part(re), part(im))
}

/// Decodes little-endian integers.
fn integers(bytes: &[u8], dtype: Dtype) -> Vec<i128> {
    match dtype {
        Dtype::Int64 => bytes.as_chunks().0.iter().map(|n| i64::from_le_bytes(*n).into()).collect(),
        Dtype::Int32 => bytes.as_chunks().0.iter().map(|n| i32::from_le_bytes(*n).into()).collect(),
        Dtype::Int16 => bytes.as_chunks().0.iter().map(|n| i16::from_le_bytes(*n).into()).collect(),
        Dtype::Int8 => bytes.as_chunks().0.iter().map(|n| i8::from_le_bytes(*n).into()).collect(),
        Dtype::UInt64 => bytes.as_chunks().0.iter().map(|n| u64::from_le_bytes(*n).into()).collect(),
        Dtype::UInt32 => bytes.as_chunks().0.iter().map(|n| u32::from_le_bytes(*n).into()).collect(),
        Dtype::UInt16 => bytes.as_chunks().0.iter().map(|n| u16::from_le_bytes(*n).into()).collect(),
        _ => bytes.iter().map(|n| (*n).into()).collect(),
    }
}

/// Decodes little-endian floats, or both parts of complex numbers.
fn floats(bytes: &[u8], dtype: Dtype) -> Vec<f64> {
    match dtype {
        Dtype::Float64 | Dtype::Complex128 => {
            bytes.as_chunks().0.iter().map(|n| f64::from_le_bytes(*n)).collect()
        }
        Dtype::Float16 => bytes.as_chunks().0.iter().map(|n| half(u16::from_le_bytes(*n))).collect(),
        _ => bytes.as_chunks().0.iter().map(|n| f32::from_le_bytes(*n).into()).collect(),
    }
}

/// Decodes a float16.
pub(crate) fn half(code: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 10 & 0x1f), f64::from(code & 0x3ff));
    let magnitude = match exponent {
        0 => mantissa * 2_f64.powi(-24),
        0x1f if mantissa == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (1024.0 + mantissa) * 2_f64.powi(exponent.saturating_sub(25)),
    };
    if code & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// Places the texts of elements in nested brackets.
struct ArrayLayout<'d> {
    dims: &'d [PrintedDim],
    words: std::vec::IntoIter<String>,
    out: String,
}

impl ArrayLayout<'_> {
    /// Writes the items of dimension `axis`, at most [`DIMENSIONS_MAX`] levels deep.
    fn rows(&mut self, axis: usize) {
        let Some(dim) = self.dims.get(axis) else { return };
        let axes_left = self.dims.len().saturating_sub(axis);
        if axes_left == 1 {
            return self.last_axis(axis);
        }
        let separator = "\n".repeat(axes_left.saturating_sub(1));
        let indent = " ".repeat(axis.saturating_add(1));
        self.out.push('[');
        for printed in 0..dim.printed() {
            if printed > 0 {
                self.out.push_str(&separator);
                self.out.push_str(&indent);
            }
            if dim.is_cut && printed == EDGE_ITEMS {
                self.out.push_str("...");
                self.out.push_str(&separator);
                self.out.push_str(&indent);
            }
            self.rows(axis.saturating_add(1));
        }
        self.out.push(']');
    }

    /// Writes the elements of the last dimension, in lines of at most [`LINE_WIDTH`] columns.
    fn last_axis(&mut self, axis: usize) {
        let Some(dim) = self.dims.get(axis) else { return };
        let indent = " ".repeat(axis.saturating_add(1));
        // Each dimension closes a bracket at the end of the line.
        let width = LINE_WIDTH.saturating_sub(axis).saturating_sub(1);
        let (mut line, mut text) = (indent.clone(), String::new());
        let extend = |line: &mut String, text: &mut String, word: &str| {
            let is_too_long = line.chars().count().saturating_add(word.chars().count()) > width;
            if is_too_long && line.len() > indent.len() {
                text.push_str(line.trim_end());
                text.push('\n');
                line.clone_from(&indent);
            }
            line.push_str(word);
        };
        for printed in 0..dim.printed() {
            if dim.is_cut && printed == EDGE_ITEMS {
                extend(&mut line, &mut text, "...");
                line.push(' ');
            }
            extend(&mut line, &mut text, &self.words.next().unwrap_or_default());
            if printed.saturating_add(1) < dim.printed() {
                line.push(' ');
            }
        }
        text.push_str(&line);
        self.out.push('[');
        self.out.push_str(text.get(indent.len()..).unwrap_or_default());
        self.out.push(']');
    }
}

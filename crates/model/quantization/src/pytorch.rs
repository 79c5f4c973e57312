//! PyTorch's own quantized tensors: integers with a scale and a zero point for each tensor, or for each index of a dimension.
//!
//! Facts: `torch.Tensor.dequantize` of PyTorch 2.0 and 2.15 on a CPU, `dequantize_tensor_*` in
//! `aten/src/ATen/native/quantized/cpu/kernels/QuantizedOpKernels.cpp`. The product is rounded once:
//!
//! - for a tensor, the difference of the integers is rounded to float32, and multiplied by the scale in float32;
//! - for a dimension, both integers are rounded to float32 before they are subtracted, and multiplied by the scale in float64;
//! - with zero points of floats, all is computed in float32.

use std::io;
use std::sync::Arc;

use tensor::{CompoundKind, CompoundTensor, Dtype, Inputs, Tensors};

use crate::dequantized::{Area, Kernel, Loaded, Matrices};
use crate::operand::{ByteRows, Operand};
use crate::packed::{CodeOrder, unpack};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Adds all quantized tensors.
///
/// # Errors
/// When the scheme of a tensor is another one, or its parts have other shapes.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let tensors = survey.tensors;
    tensors.compounds().iter().try_for_each(|compound| add(survey, compound))
}

pub(crate) fn is_present(tensors: &Tensors) -> bool {
    tensors.compounds().iter().any(|compound| matches!(compound.kind, CompoundKind::Quantized { .. }))
}

fn add(survey: &mut Survey<'_>, compound: &CompoundTensor) -> Result<()> {
    let CompoundKind::Quantized { scheme, axis } = &compound.kind else { return Ok(()) };
    let content = |problem: String| Problem::Content { tensor: compound.name.clone(), problem };
    let stored = match compound.dtype {
        Dtype::QInt8 => StoredIntegers::Signed,
        Dtype::QUInt8 => StoredIntegers::Unsigned { bits: 8 },
        Dtype::QInt32 => StoredIntegers::Wide,
        Dtype::QUInt4X2 => StoredIntegers::Unsigned { bits: 4 },
        Dtype::QUInt2X4 => StoredIntegers::Unsigned { bits: 2 },
        dtype => return Err(content(format!("its dtype is {dtype}, expected a quantized one")).into()),
    };
    let arithmetic = match (scheme.as_str(), axis) {
        ("per_tensor_affine", None) => Arithmetic::Integers,
        ("per_channel_affine", Some(_)) => Arithmetic::Doubles,
        ("per_channel_affine_float_qparams", Some(_)) => Arithmetic::Floats,
        _ => {
            let expected = "per_tensor_affine, per_channel_affine or per_channel_affine_float_qparams";
            return Err(content(format!("its scheme is {scheme}, expected {expected}")).into());
        }
    };
    let (channels, along, matrices) =
        layout(&compound.shape, *axis).ok_or_else(|| content("it has no elements".to_owned()))?;
    let part = |part: &str| format!("{}.{part}", compound.name);
    let mut draft = Draft::new(&compound.name);
    let operand = survey.operand(&mut draft, &part("int_repr"))?;
    for name in ["scale", "zero_point"] {
        let tensor = survey.companion(&compound.name, &part(name))?;
        if tensor.numel() != channels {
            let (found, expected) = (tensor.shape().to_vec(), format!("[{channels}]"));
            return Err(Problem::Shape { tensor: part(name), found, expected }.into());
        }
    }
    let scales = survey.operand(&mut draft, &part("scale"))?;
    let zeros = survey.operand(&mut draft, &part("zero_point"))?;
    let kernel = AffineIntegers {
        operand,
        stored,
        scales,
        zeros,
        along,
        arithmetic,
        rows: matrices.rows,
        cols: matrices.cols,
    };
    let recognised = Recognised {
        scheme: format!("{}, {scheme}", compound.dtype),
        shape: compound.shape.clone(),
        library_dtype: Dtype::Float32,
        default_dtype: Dtype::Float32,
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

/// Integers in the bytes of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredIntegers {
    /// int8.
    Signed,
    /// Unsigned integers of eight bits or fewer; the first one in the lowest bits.
    Unsigned { bits: u32 },
    /// int32.
    Wide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    All,
    Row,
    Column,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Integers,
    Doubles,
    Floats,
}

/// Returns the number of channels, what they are in the matrices, and the matrices; `None` if there are no elements.
fn layout(shape: &[u64], axis: Option<u64>) -> Option<(u64, Channel, Matrices)> {
    let elements = Matrices::from_shape(shape)?.elements;
    let matrices = |rows, cols| Matrices { rows, cols, elements };
    let Some(axis) = axis else { return (elements > 0).then_some((1, Channel::All, matrices(1, elements))) };
    let axis = usize::try_from(axis).ok()?;
    let channels = *shape.get(axis)?;
    let inner: u64 = shape.iter().skip(axis.saturating_add(1)).product();
    let outer = elements.checked_div(channels)?.checked_div(inner)?;
    if outer == 0 {
        return None;
    }
    Some(if inner == 1 {
        (channels, Channel::Column, matrices(outer, channels))
    } else {
        (channels, Channel::Row, matrices(channels, inner))
    })
}

/// Kernel that computes `(integer − zero point) · scale`.
#[derive(Debug)]
struct AffineIntegers {
    operand: Operand,
    stored: StoredIntegers,
    scales: Operand,
    zeros: Operand,
    along: Channel,
    arithmetic: Arithmetic,
    rows: u64,
    cols: u64,
}

impl AffineIntegers {
    /// Reads the integers of a part of a row, counted through all matrices.
    fn read(&self, inputs: &mut Inputs<'_>, row: u64, area: &Area) -> byte_source::Result<Vec<i32>> {
        let first = row.saturating_mul(self.cols);
        let (start, end) = (first.saturating_add(area.cols.start), first.saturating_add(area.cols.end));
        let bits = match self.stored {
            StoredIntegers::Signed => 8,
            StoredIntegers::Unsigned { bits } => u64::from(bits),
            StoredIntegers::Wide => 32,
        };
        let byte = start.saturating_mul(bits) / 8;
        let len = end.saturating_mul(bits).div_ceil(8).saturating_sub(byte);
        let bytes = self.operand.read_rows(inputs, &ByteRows { start: byte, rows: 1, pitch: len, len })?;
        Ok(match self.stored {
            StoredIntegers::Signed => bytes.iter().map(|byte| i32::from(byte.cast_signed())).collect(),
            StoredIntegers::Unsigned { bits: 8 } => bytes.iter().map(|byte| i32::from(*byte)).collect(),
            StoredIntegers::Unsigned { bits } => {
                let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                let before =
                    within((start.saturating_mul(bits.into()) % 8).checked_div(bits.into()).unwrap_or(0));
                let count = before.saturating_add(within(end.saturating_sub(start)));
                let codes = unpack(&bytes, bits, CodeOrder::LowFirst, count);
                codes.into_iter().skip(before).map(i32::from).collect()
            }
            StoredIntegers::Wide => {
                bytes.as_chunks().0.iter().map(|word| i32::from_le_bytes(*word)).collect()
            }
        })
    }
}

impl Kernel for AffineIntegers {
    fn col_granule(&self) -> u64 {
        1
    }

    fn load(&self, inputs: &mut Inputs<'_>, area: &Area) -> byte_source::Result<Loaded> {
        let before = area.matrix.saturating_mul(self.rows);
        let mut integers = Vec::new();
        for row in area.rows.clone() {
            integers.append(&mut self.read(inputs, row.saturating_add(before), area)?);
        }
        let channels = match self.along {
            Channel::All => 0..1,
            Channel::Row => area.rows.clone(),
            Channel::Column => area.cols.clone(),
        };
        let scales = self.scales.read_doubles(inputs, channels.clone())?;
        let zeros = self.zeros.read_doubles(inputs, channels)?;
        if scales.len() != zeros.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Loaded { integers, channels: scales.into_iter().zip(zeros).collect(), ..Loaded::default() })
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "the numbers are rounded as PyTorch rounds them"
    )]
    fn decode(&self, loaded: &Loaded, _area: &Area, row: usize, out: &mut [f32]) {
        let integers = loaded.integers.get(row.saturating_mul(out.len())..).unwrap_or_default();
        let channels = match self.along {
            Channel::All => &loaded.channels,
            Channel::Row => loaded.channels.get(row..=row).unwrap_or_default(),
            Channel::Column => loaded.channels.as_slice(),
        };
        let number = |integer: &i32, (scale, zero): (f64, f64)| match self.arithmetic {
            Arithmetic::Integers => integer.wrapping_sub(zero as i32) as f32 * scale as f32,
            Arithmetic::Doubles => (f64::from(*integer as f32 - zero as f32) * scale) as f32,
            Arithmetic::Floats => (*integer as f32 - zero as f32) * scale as f32,
        };
        if let [channel] = channels {
            out.iter_mut().zip(integers).for_each(|(out, integer)| *out = number(integer, *channel));
        } else {
            let of_columns = out.iter_mut().zip(integers).zip(channels);
            of_columns.for_each(|((out, integer), channel)| *out = number(integer, *channel));
        }
    }
}

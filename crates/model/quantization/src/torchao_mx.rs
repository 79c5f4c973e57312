//! torchao's microscaling formats: FP8, FP6 and FP4 with a power of two or an FP8 scale for each block of a row.
//!
//! Facts: `MXTensor` and `NVFP4Tensor` of torchao 0.18.0, pickled or by `flatten_tensor_state_dict`. FP4 has two codes in a byte,
//! the low one first; FP6 has a byte for each code. The scales are in rows, or in the tiles of `to_blocked`, which pads them to
//! whole tiles of 128 rows and 4 columns. `NVFP4Tensor` multiplies its scale of the tensor, or of each matrix, with those of blocks first.

use std::sync::Arc;

use tensor::Dtype;

use crate::block_scaled::{BlockScaled, BlockShape, CodeRows};
use crate::code_values::{E2M1, dtype_values, float6_values, nibble_values};
use crate::codes::is_float8;
use crate::dequantized::Matrices;
use crate::packed::CodeOrder;
use crate::scales::{GlobalScale, ScaleEncoding, ScaleGrid, tiled_len};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Microscaled tensor: its stored parts, and what is known of it.
pub(crate) struct Microscaled<'a> {
    pub(crate) name: String,
    pub(crate) codes: String,
    pub(crate) scale: String,
    pub(crate) scale_of_scales: String,
    /// Block of a row that has a scale.
    pub(crate) block: u64,
    /// Element type as Python prints it, if it is known.
    pub(crate) element: Option<&'a str>,
    pub(crate) dtype: Option<Dtype>,
}

/// Returns true if a scale belongs to a microscaled tensor with these codes.
pub(crate) fn is_microscaled(codes: Dtype, scale: Dtype) -> bool {
    scale == Dtype::Float8E8M0FnU || (scale == Dtype::Float8E4M3Fn && !is_float8(codes))
}

/// Adds a microscaled tensor.
///
/// # Errors
/// When a companion is missing or has another shape or dtype than the format.
pub(crate) fn add(survey: &mut Survey<'_>, parts: &Microscaled<'_>) -> Result<()> {
    let mut draft = Draft::new(&parts.name);
    let codes = survey.companion(&parts.name, &parts.codes)?;
    let scale = survey.companion(&parts.name, &parts.scale)?;
    let wrong_shape = |tensor: &str, found: &[u64], expected: String| Problem::Shape {
        tensor: tensor.to_owned(),
        found: found.to_vec(),
        expected,
    };
    let stored = Matrices::from_shape(codes.shape()).filter(|it| it.elements > 0 && codes.shape().len() >= 2);
    let stored = stored.ok_or_else(|| {
        wrong_shape(&parts.codes, codes.shape(), "two dimensions or more, with elements".to_owned())
    })?;
    let format = Format::of(parts, codes.dtype(), stored.cols, scale)?;
    let mut shape = codes.shape().to_vec();
    if let Some(cols) = shape.last_mut().filter(|_| format.bits == 4) {
        *cols = cols.saturating_mul(2);
    }
    let matrices =
        Matrices::from_shape(&shape).filter(|it| it.cols.is_multiple_of(parts.block)).ok_or_else(|| {
            wrong_shape(&parts.codes, codes.shape(), format!("rows that blocks of {} divide", parts.block))
        })?;
    let cols = matrices.cols.checked_div(parts.block).unwrap_or(0);
    let mut in_rows = shape.clone();
    if let Some(last) = in_rows.last_mut() {
        *last = cols;
    }
    let count: u64 = shape.iter().rev().skip(2).product();
    let all_rows = matrices.elements.checked_div(matrices.cols).unwrap_or(0);
    let is_tiled = scale.shape() != in_rows;
    if is_tiled && (Some(scale.numel()) != tiled_len(all_rows, cols) || !scale.is_contiguous()) {
        let expected = format!("{in_rows:?}, or whole tiles of 128 rows and 4 columns of it");
        return Err(wrong_shape(&parts.scale, scale.shape(), expected).into());
    }
    let global = match survey.get(&parts.scale_of_scales) {
        Some(found) if found.dtype() == Dtype::Float32 && [1, count].contains(&found.numel()) => {
            let per_matrix = found.numel() > 1;
            let operand = survey.operand(&mut draft, &parts.scale_of_scales)?;
            Some(GlobalScale { operand, per_matrix, divides: false, unit: 1.0, rounding: Dtype::Float32 })
        }
        Some(found) => {
            let expected = "one float32, or one for each matrix".to_owned();
            return Err(wrong_shape(&parts.scale_of_scales, found.shape(), expected).into());
        }
        None => None,
    };
    let operand = survey.operand(&mut draft, &parts.codes)?;
    let scales = ScaleGrid::plain(survey.operand(&mut draft, &parts.scale)?, (matrices.rows, cols));
    let encoding = if is_tiled { ScaleEncoding::Tiled } else { ScaleEncoding::Numbers };
    let kernel = BlockScaled {
        codes: CodeRows {
            operand,
            bits: format.bits,
            order: CodeOrder::LowFirst,
            pitch: stored.cols,
            values: format.values,
        },
        scales: ScaleGrid { encoding, global, ..scales },
        zeros: None,
        block: BlockShape { rows: 1, cols: parts.block },
        matrices,
        groups: None,
        factor: 1.0,
    };
    let recognised = Recognised {
        scheme: format!("torchao, {}, a scale for each {} columns", format.name, parts.block),
        shape,
        library_dtype: parts.dtype.unwrap_or(Dtype::Float32),
        default_dtype: parts.dtype.unwrap_or(Dtype::BFloat16),
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

struct Format {
    name: &'static str,
    bits: u32,
    values: Box<[f32; 256]>,
}

impl Format {
    /// Returns the format of codes: FP8 by their dtype, FP4 and FP6 by the number of scales in a row of `stored` bytes.
    fn of(parts: &Microscaled<'_>, dtype: Dtype, stored: u64, scale: &tensor::Tensor) -> Result<Self> {
        let is_mx = scale.dtype() == Dtype::Float8E8M0FnU;
        if is_float8(dtype) {
            return Ok(Self { name: "MXFP8", bits: 8, values: dtype_values(dtype) });
        }
        if !matches!(dtype, Dtype::UInt8 | Dtype::Float4E2M1FnX2) {
            let expected = "float8, or uint8 for FP6 and FP4".to_owned();
            return Err(Problem::Dtype { tensor: parts.codes.clone(), found: dtype, expected }.into());
        }
        let content =
            |problem: &str| Problem::Content { tensor: parts.codes.clone(), problem: problem.to_owned() };
        let float6 = |name, exponent| Self { name, bits: 8, values: float6_values(exponent) };
        match parts.element {
            Some(element) if element.contains("fp6_e2m3") => return Ok(float6("MXFP6 E2M3", 2)),
            Some(element) if element.contains("fp6_e3m2") => return Ok(float6("MXFP6 E3M2", 3)),
            // Of FP6, a row of scales has one for each block of bytes, of FP4 twice as many; tiles are filled up to 4.
            None if is_mx && scale.shape().last() == stored.checked_div(parts.block).as_ref() => {
                return Err(content(
                    "torchao: the bytes may be FP6 of either kind, which a safetensors file does not tell",
                )
                .into());
            }
            _ => {}
        }
        let name = if is_mx { "MXFP4" } else { "NVFP4" };
        Ok(Self { name, bits: 4, values: nibble_values(&E2M1) })
    }
}

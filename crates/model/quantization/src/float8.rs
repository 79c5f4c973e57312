//! FP8 weights with a scale for each block, channel or tensor, and their relatives: MXFP8, and experts in FP4.
//!
//! Facts: `Fp8Dequantize` and `_dequantize_fp8_weight` in `integrations/finegrained_fp8.py` of `transformers` 5.23. Numbers
//! and scales are multiplied as float32. A block is `weight_block_size` of the configuration where the grid of scales has
//! one scale for each such block, whether or not the blocks divide the shape; another grid has to divide the shape.

use std::sync::Arc;

use tensor::{Dtype, Tensor, Tensors};

use crate::block_scaled::{BlockScaled, BlockShape, CodeRows};
use crate::code_values::{E2M1, E2M1_POSITIVE_ZERO, dtype_values, nibble_values};
use crate::codes::{is_float8, is_marker};
use crate::dequantized::Matrices;
use crate::packed::CodeOrder;
use crate::scales::{GlobalScale, ScaleGrid};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Suffixes of the scales, after the name of the tensor of codes.
const SCALE_SUFFIXES: &[&str] = &["_scale_inv", "_scale"];
/// Suffixes of the scales of DeepSeek's own files and of others, in place of `.weight`.
const OWN_SCALES: &[&str] = &[".scale", ".scale_weight"];
/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] =
    &["_scale_inv", ".weight_scale", "_proj_scale", ".scale_weight", ".comfy_quant"];

/// Adds all tensors that have scales.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    recognise_as(survey, Dialect::Transformers)
}

/// Conventions of a method that stores FP8 and FP4 in rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Transformers,
    /// Pairs of FP4 are uint8, code 8 is a positive zero, and `weight_scale_2` multiplies the scales.
    ModelOpt,
}

/// Adds all tensors that have scales, in the conventions of a method.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn recognise_as(survey: &mut Survey<'_>, dialect: Dialect) -> Result<()> {
    let names: Vec<String> = survey.tensors.names().map(str::to_owned).collect();
    for name in &names {
        let Some(tensor) = survey.get(name).filter(|tensor| has_codes(tensor, dialect)) else { continue };
        if survey.is_used(name) {
            continue;
        }
        if is_marker(name) {
            survey.mark(name);
            continue;
        }
        match scale_name(survey.tensors, name) {
            Some(scale) => add(survey, name, &scale, dialect)?,
            // Scales may be FP8 themselves. One without codes is reported as unused.
            None if is_float8(tensor.dtype()) && !COMPANIONS.iter().any(|suffix| name.ends_with(suffix))
                || dialect == Dialect::Transformers && name.ends_with(".weight") =>
            {
                let suffix = if dialect == Dialect::ModelOpt { "scale" } else { "scale_inv" };
                return survey.companion(name, &format!("{name}_{suffix}")).map(|_| ());
            }
            None => {}
        }
    }
    Ok(())
}

/// Returns the name of the scales of a tensor of codes, if it has any.
fn scale_name(tensors: &Tensors, name: &str) -> Option<String> {
    let scales = SCALE_SUFFIXES.iter().map(|suffix| format!("{name}{suffix}"));
    let module = name.strip_suffix(".weight");
    let own =
        module.into_iter().flat_map(|module| OWN_SCALES.iter().map(move |own| format!("{module}{own}")));
    scales.chain(own).find(|scale| tensors.contains(scale))
}

/// Returns true if a list of tensors has FP8 weights with scales, and not those of ModelOpt.
pub(crate) fn is_present(tensors: &Tensors) -> bool {
    let mut weights = tensors.iter().filter(|(_, tensor)| is_float8(tensor.dtype()));
    weights.any(|(name, _)| scale_name(tensors, name).is_some()) && !has_global_scales(tensors)
}

/// Returns true if a list of tensors has scales of scales with ModelOpt's names.
pub(crate) fn has_global_scales(tensors: &Tensors) -> bool {
    tensors.names().any(|name| name.ends_with(".weight_scale_2"))
}

/// Returns true for FP8, and for matrices of bytes, which may hold pairs of FP4.
fn has_codes(tensor: &Tensor, dialect: Dialect) -> bool {
    let is_pairs = match dialect {
        Dialect::Transformers => matches!(tensor.dtype(), Dtype::Int8 | Dtype::Float4E2M1FnX2),
        Dialect::ModelOpt => matches!(tensor.dtype(), Dtype::UInt8 | Dtype::Float4E2M1FnX2),
    };
    is_float8(tensor.dtype()) || (is_pairs && tensor.shape().len() >= 2)
}

fn add(survey: &mut Survey<'_>, name: &str, scale_name: &str, dialect: Dialect) -> Result<()> {
    let mut draft = Draft::new(name);
    let codes = survey.companion(name, name)?;
    let scale = survey.companion(name, scale_name)?;
    if !scale.dtype().is_floating_point() && scale.dtype() != Dtype::UInt8 {
        return Err(Problem::Dtype {
            tensor: scale_name.to_owned(),
            found: scale.dtype(),
            expected: "a floating-point dtype, or uint8 for exponents".to_owned(),
        }
        .into());
    }
    let mut shape = codes.shape().to_vec();
    let is_pairs = !is_float8(codes.dtype());
    if let Some(cols) = shape.last_mut().filter(|_| is_pairs) {
        *cols = cols.saturating_mul(2);
    }
    let matrices = Matrices::from_shape(&shape).filter(|matrices| matrices.elements > 0);
    let wrong_shape = |expected: &str| Problem::Shape {
        tensor: name.to_owned(),
        found: codes.shape().to_vec(),
        expected: expected.to_owned(),
    };
    let matrices = matrices.ok_or_else(|| wrong_shape("at least one element"))?;
    // FP4 next to FP8 has groups of its own.
    let configured = block_size(survey).filter(|_| !is_pairs && scale.shape().len() >= 2);
    let grid = Grid::find(survey, &shape, matrices, scale);
    let grid = grid.filter(|grid| configured.is_none_or(|block| grid.block == block));
    let grid = grid.ok_or_else(|| Problem::Shape {
        tensor: scale_name.to_owned(),
        found: scale.shape().to_vec(),
        expected: expected_grid(configured, &shape),
    })?;
    let operand = survey.operand(&mut draft, name)?;
    let scales = survey.operand(&mut draft, scale_name)?;
    let scale_dtype = scale.dtype();
    let global = match dialect {
        Dialect::ModelOpt => global_scale(survey, &mut draft, name, is_pairs, &grid)?,
        Dialect::Transformers => None,
    };
    let table = if dialect == Dialect::ModelOpt { &E2M1_POSITIVE_ZERO } else { &E2M1 };
    let is_nvfp4 = global.is_some();
    let kernel = BlockScaled {
        codes: CodeRows {
            operand,
            bits: if is_pairs { 4 } else { 8 },
            order: CodeOrder::LowFirst,
            pitch: if is_pairs { matrices.cols / 2 } else { matrices.cols },
            values: if is_pairs { nibble_values(table) } else { dtype_values(codes.dtype()) },
        },
        scales: ScaleGrid {
            is_shared: grid.is_shared,
            global,
            ..ScaleGrid::numbers(scales, (grid.rows, grid.cols))
        },
        zeros: None,
        block: grid.block,
        matrices,
        groups: None,
        factor: 1.0,
    };
    let format = match (is_pairs, is_nvfp4) {
        (true, true) => "NVFP4",
        (true, false) => "FP4",
        _ => "FP8",
    };
    let recognised = Recognised {
        scheme: format!("{format}, {}", grid.describe(matrices)),
        shape,
        library_dtype: Dtype::Float32,
        default_dtype: if scale_dtype.size() >= 2 { scale_dtype } else { Dtype::BFloat16 },
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

/// Returns the scale of the scales of ModelOpt, which FP4 has.
fn global_scale(
    survey: &Survey<'_>,
    draft: &mut Draft,
    name: &str,
    is_required: bool,
    grid: &Grid,
) -> Result<Option<GlobalScale>> {
    let global_name = format!("{name}_scale_2");
    let Some(global) = survey.get(&global_name) else {
        return if is_required { survey.companion(name, &global_name).map(|_| None) } else { Ok(None) };
    };
    let per_matrix = global.numel() > 1;
    let matrices = survey.get(name).map_or(0, |codes| codes.shape().iter().rev().skip(2).product());
    if global.dtype() != Dtype::Float32 || (per_matrix && (global.numel() != matrices || grid.is_shared)) {
        let (found, expected) = (global.shape().to_vec(), "one float32, or one for each matrix".to_owned());
        return Err(Problem::Shape { tensor: global_name, found, expected }.into());
    }
    let operand = survey.operand(draft, &global_name)?;
    Ok(Some(GlobalScale { operand, per_matrix, divides: false, unit: 1.0, rounding: Dtype::Float32 }))
}

/// Grid of scales of each matrix, and the block of each scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) rows: u64,
    pub(crate) cols: u64,
    pub(crate) block: BlockShape,
    /// True if all matrices have the same scales.
    pub(crate) is_shared: bool,
}

impl Grid {
    /// Finds the grid of a tensor of scales; `None` if it does not fit the shape of the numbers.
    fn find(survey: &Survey<'_>, shape: &[u64], matrices: Matrices, scale: &Tensor) -> Option<Self> {
        let count: u64 = shape.iter().rev().skip(2).product();
        let is_channel = scale.shape().len() == 1 && shape.len() == 2 && scale.shape() == [matrices.rows];
        let per_matrix = scale.shape().len() == 1 && shape.len() > 2 && scale.shape() == [count];
        let (rows, cols, grids) = match scale.shape() {
            _ if scale.numel() == 1 => (1, 1, 1),
            _ if is_channel => (matrices.rows, 1, 1),
            _ if per_matrix => (1, 1, count),
            [before @ .., rows, cols] => (*rows, *cols, before.iter().product()),
            _ => return None,
        };
        if (grids != 1 && grids != count) || rows == 0 || cols == 0 {
            return None;
        }
        let is_shared = grids == 1;
        if let Some(block) = block_size(survey)
            && matrices.rows.div_ceil(block.rows) == rows
            && matrices.cols.div_ceil(block.cols) == cols
        {
            return Some(Self { rows, cols, block, is_shared });
        }
        let divides = matrices.rows.is_multiple_of(rows) && matrices.cols.is_multiple_of(cols);
        let block =
            BlockShape { rows: matrices.rows.checked_div(rows)?, cols: matrices.cols.checked_div(cols)? };
        divides.then_some(Self { rows, cols, block, is_shared })
    }

    pub(crate) fn describe(&self, matrices: Matrices) -> String {
        match (self.block.rows >= matrices.rows, self.block.cols >= matrices.cols) {
            (true, true) => "a scale for each tensor".to_owned(),
            (false, true) if self.block.rows == 1 => "a scale for each channel".to_owned(),
            (_, false) if self.block.rows == 1 => {
                format!("groups of {}", self.block.cols)
            }
            _ => format!("blocks of {} × {}", self.block.rows, self.block.cols),
        }
    }
}

fn block_size(survey: &Survey<'_>) -> Option<BlockShape> {
    let [rows, cols] = survey.config.members.get("weight_block_size")?.as_array()?.as_slice() else {
        return None;
    };
    let block = BlockShape { rows: rows.as_u64()?, cols: cols.as_u64()? };
    (block.rows > 0 && block.cols > 0).then_some(block)
}

fn expected_grid(configured: Option<BlockShape>, shape: &[u64]) -> String {
    match configured {
        Some(BlockShape { rows, cols }) => {
            format!("one scale for each block of {rows} × {cols} of {shape:?}")
        }
        None => format!("a grid that divides {shape:?}"),
    }
}

//! torchao: integers and FP8 with a scale, and perhaps a zero point, for each block, as pickled subclasses of tensors or as their
//! parts in safetensors.
//!
//! `MXTensor` and `NVFP4Tensor` are in `torchao_mx`, `NF4Tensor` in `torchao_nf4`.
//!
//! Facts: `Int8Tensor`, `IntxUnpackedToInt8Tensor` and `Float8Tensor` of torchao 0.18.0, `AffineQuantizedTensor` with the layouts
//! `PlainLayout`, `QDQLayout` and `Float8Layout` of 0.15.0, and `flatten_tensor_state_dict`, which stores the part `qdata` of
//! `NAME.weight` as `NAME._weight_qdata`. FP8 is multiplied in float32; integers are multiplied in the dtype of the scales,
//! and the result is rounded to that of the tensor.

use std::sync::Arc;

use tensor::{CompoundKind, CompoundTensor, Dtype, Tensor, Tensors};

use crate::block_scaled::{BlockScaled, BlockShape, CodeRows};
use crate::code_values::dtype_values;
use crate::codes::is_float8;
use crate::dequantized::Matrices;
use crate::float8::Grid;
use crate::packed::CodeOrder;
use crate::scales::ScaleGrid;
use crate::survey::{Draft, Recognised, Survey};
use crate::torchao_mx::{Microscaled, is_microscaled};
use crate::{Problem, Result, torchao_mx, torchao_nf4};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[
    "._weight_qdata",
    "._weight_scale",
    "._weight_zero_point",
    "._weight_act_pre_scale",
    "._weight_per_tensor_scale",
];
/// Suffixes of the scales of activations in safetensors.
const ACTIVATIONS: &[&str] =
    &["._weight_act_quant_scale", "._weight_act_quant_zero_point", "._weight_act_per_tensor_scale"];
/// Classes whose tensors have one code in a byte, with the names of the codes and of the start of all names.
const CLASSES: &[(&str, &str, &str)] = &[
    ("Int8Tensor", "", "qdata"),
    ("IntxUnpackedToInt8Tensor", "", "qdata"),
    ("Float8Tensor", "", "qdata"),
    ("PlainAQTTensorImpl", "tensor_impl.", "int_data"),
    ("QDQTensorImpl", "tensor_impl.", "int_data"),
    ("Float8AQTTensorImpl", "tensor_impl.", "float8_data"),
];

/// Adds all tensors of torchao's classes.
///
/// # Errors
/// When a class or layout is not known, or a companion is missing or has another shape or dtype than the scheme.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let compounds: Vec<CompoundTensor> = survey.tensors.compounds().to_vec();
    compounds.iter().try_for_each(|compound| add_subclass(survey, compound))?;
    for module in survey.stems("._weight_qdata") {
        add_parts(survey, &module)?;
    }
    for suffix in ACTIVATIONS {
        for module in survey.stems(suffix) {
            if survey.is_used(&format!("{module}._weight_qdata")) {
                survey.mark(&format!("{module}{suffix}"));
            }
        }
    }
    Ok(())
}

/// Returns true if a list has tensors of torchao's classes or their parts.
pub(crate) fn is_present(tensors: &Tensors) -> bool {
    tensors.names().any(|name| name.ends_with("._weight_qdata"))
        || tensors.compounds().iter().any(|compound| {
            matches!(&compound.kind, CompoundKind::Subclass { class, .. } if class.starts_with("torchao."))
        })
}

struct SubclassParts {
    name: String,
    codes: String,
    scale: String,
    zero: String,
    block: Option<Vec<u64>>,
    /// Dtype of the tensor, if it is known.
    dtype: Option<Dtype>,
}

fn add_subclass(survey: &mut Survey<'_>, compound: &CompoundTensor) -> Result<()> {
    let CompoundKind::Subclass { class, attributes, .. } = &compound.kind else { return Ok(()) };
    if !class.starts_with("torchao.") {
        return Ok(());
    }
    let attribute =
        |key: &str| attributes.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    // A tensor with quantized activations wraps the one of the weights.
    let mut outer = String::new();
    let mut inner = class.as_str();
    while inner.ends_with("LinearActivationQuantizedTensor") && outer.len() < 200 {
        outer.push_str("original_weight_tensor.");
        inner = attribute(outer.trim_end_matches('.')).unwrap_or_default();
    }
    let layout = if inner.ends_with("AffineQuantizedTensor") {
        attribute(&format!("{outer}tensor_impl")).unwrap_or_default()
    } else {
        inner
    };
    let short = layout.rsplit('.').next().unwrap_or(layout);
    let unknown = |problem: String| Problem::Content { tensor: compound.name.clone(), problem };
    let number =
        |key: &str| attribute(&format!("{outer}{key}")).and_then(|it| it.parse().ok()).filter(|it| *it > 0);
    let part = |part: &str| format!("{}.{outer}{part}", compound.name);
    match short {
        "MXTensor" | "NVFP4Tensor" => {
            let block =
                number("block_size").ok_or_else(|| unknown("torchao: `block_size` is missing".to_owned()))?;
            survey.mark(&part("act_per_tensor_scale"));
            let parts = Microscaled {
                name: compound.name.clone(),
                codes: part("qdata"),
                scale: part("scale"),
                scale_of_scales: part("per_tensor_scale"),
                block,
                element: attribute(&format!("{outer}elem_dtype")),
                dtype: Some(compound.dtype),
            };
            return torchao_mx::add(survey, &parts);
        }
        "NF4Tensor" => {
            let blocks = number("block_size").zip(number("scaler_block_size"));
            let (block, scale_block) =
                blocks.ok_or_else(|| unknown("torchao: `block_size` is missing".to_owned()))?;
            return torchao_nf4::add(
                survey,
                &compound.name,
                block,
                scale_block,
                &compound.shape,
                compound.dtype,
            );
        }
        _ => {}
    }
    let row = CLASSES.iter().find(|row| row.0 == short).ok_or_else(|| {
        let known = CLASSES.iter().map(|row| row.0).chain(["MXTensor", "NVFP4Tensor", "NF4Tensor"]);
        let known: Vec<&str> = known.collect();
        unknown(format!(
            "torchao: its layout is `{}`, expected one of {}",
            layout.escape_debug(),
            known.join(", ")
        ))
    })?;
    let domain = attribute(&format!("{outer}zero_point_domain")).unwrap_or("INT");
    if domain.contains("FLOAT") || domain.contains('3') {
        return Err(unknown("torchao: its zero points are floats, expected integers".to_owned()).into());
    }
    let part = |part: &str| format!("{}.{outer}{}{part}", compound.name, row.1);
    let pre_scale = part("act_pre_scale");
    if survey.get(&pre_scale).is_some() {
        return Err(survey.unused(&pre_scale));
    }
    let parts = SubclassParts {
        name: compound.name.clone(),
        codes: part(row.2),
        scale: part("scale"),
        zero: part("zero_point"),
        block: attribute(&format!("{outer}block_size")).and_then(parse_sizes),
        dtype: Some(compound.dtype),
    };
    add(survey, &parts, &compound.shape)
}

fn add_parts(survey: &mut Survey<'_>, module: &str) -> Result<()> {
    let part = |part: &str| format!("{module}._weight_{part}");
    let codes = survey.get(&part("qdata")).map_or(Dtype::Int8, Tensor::dtype);
    if let Some(scale) = survey.get(&part("scale")).filter(|scale| is_microscaled(codes, scale.dtype())) {
        let parts = Microscaled {
            name: format!("{module}.weight"),
            codes: part("qdata"),
            scale: part("scale"),
            scale_of_scales: part("per_tensor_scale"),
            block: if scale.dtype() == Dtype::Float8E8M0FnU { 32 } else { 16 },
            element: None,
            dtype: None,
        };
        return torchao_mx::add(survey, &parts);
    }
    let shape = survey.get(&part("qdata")).map(|codes| codes.shape().to_vec()).unwrap_or_default();
    let parts = SubclassParts {
        name: format!("{module}.weight"),
        codes: part("qdata"),
        scale: part("scale"),
        zero: part("zero_point"),
        block: None,
        dtype: None,
    };
    add(survey, &parts, &shape)
}

/// Reads a list or tuple of sizes as Python prints it.
fn parse_sizes(text: &str) -> Option<Vec<u64>> {
    let inner = text.strip_prefix("torch.Size(").and_then(|it| it.strip_suffix(')')).unwrap_or(text);
    let inner = inner.trim_matches(|it| matches!(it, '(' | ')' | '[' | ']'));
    inner.split(',').map(str::trim).filter(|it| !it.is_empty()).map(|it| it.parse().ok()).collect()
}

fn add(survey: &mut Survey<'_>, parts: &SubclassParts, shape: &[u64]) -> Result<()> {
    let mut draft = Draft::new(&parts.name);
    let codes = survey.companion(&parts.name, &parts.codes)?;
    let is_float = is_float8(codes.dtype());
    if !is_float && !matches!(codes.dtype(), Dtype::Int8 | Dtype::UInt8) {
        let expected = "int8, uint8 or float8".to_owned();
        return Err(Problem::Dtype { tensor: parts.codes.clone(), found: codes.dtype(), expected }.into());
    }
    if codes.dtype() == Dtype::UInt8 && parts.dtype.is_none() {
        let problem = "torchao: its codes are uint8, as in `Int4Tensor`, which torchao computes on a GPU only, expected int8 or \
                       float8"
            .to_owned();
        return Err(Problem::Content { tensor: parts.codes.clone(), problem }.into());
    }
    let matrices = Matrices::from_shape(shape).filter(|it| it.elements > 0 && codes.shape() == shape);
    let matrices = matrices.ok_or_else(|| Problem::Shape {
        tensor: parts.codes.clone(),
        found: codes.shape().to_vec(),
        expected: format!("{shape:?}, with at least one element"),
    })?;
    let scale = survey.companion(&parts.name, &parts.scale)?;
    if !scale.dtype().is_floating_point() {
        let expected = "a floating-point dtype".to_owned();
        return Err(Problem::Dtype { tensor: parts.scale.clone(), found: scale.dtype(), expected }.into());
    }
    let grid = grid(shape, matrices, parts.block.as_deref(), scale).ok_or_else(|| Problem::Shape {
        tensor: parts.scale.clone(),
        found: scale.shape().to_vec(),
        expected: match &parts.block {
            Some(block) => format!("one scale for each block of {block:?} of {shape:?}"),
            None => format!("a grid that divides {shape:?}"),
        },
    })?;
    let scale_dtype = scale.dtype();
    let plain = |operand| ScaleGrid {
        is_shared: grid.is_shared,
        ..ScaleGrid::plain(operand, (grid.rows, grid.cols))
    };
    let operand = survey.operand(&mut draft, &parts.codes)?;
    let scales = plain(survey.operand(&mut draft, &parts.scale)?);
    let zeros = match survey.get(&parts.zero) {
        Some(zeros) if zeros.numel() == scale.numel() => {
            Some(plain(survey.operand(&mut draft, &parts.zero)?)).filter(|_| !is_float)
        }
        Some(zeros) => {
            let expected = format!("{:?}, as the scales", scale.shape());
            return Err(Problem::Shape {
                tensor: parts.zero.clone(),
                found: zeros.shape().to_vec(),
                expected,
            }
            .into());
        }
        None => None,
    };
    let kernel = BlockScaled {
        codes: CodeRows {
            operand,
            bits: 8,
            order: CodeOrder::LowFirst,
            pitch: matrices.cols,
            values: dtype_values(codes.dtype()),
        },
        scales,
        zeros,
        block: grid.block,
        matrices,
        groups: None,
        factor: 1.0,
    };
    let guess = if is_float { Dtype::Float32 } else { scale_dtype };
    let recognised = Recognised {
        scheme: format!("torchao, {}, {}", if is_float { "FP8" } else { "INT8" }, grid.describe(matrices)),
        shape: shape.to_vec(),
        library_dtype: parts.dtype.unwrap_or(guess),
        default_dtype: parts.dtype.unwrap_or(if is_float { Dtype::BFloat16 } else { scale_dtype }),
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

/// Returns the grid of scales: by the block if the tensor has one, else by the shape of the scales.
fn grid(shape: &[u64], matrices: Matrices, block: Option<&[u64]>, scale: &Tensor) -> Option<Grid> {
    let count: u64 = shape.iter().rev().skip(2).product();
    let (rows, cols) = match (block, scale.shape()) {
        _ if scale.numel() == 1 => (1, 1),
        (Some([before @ .., high, wide]), _) if before.iter().all(|size| *size == 1) => {
            (matrices.rows.checked_div(*high)?, matrices.cols.checked_div(*wide)?)
        }
        (None, [rows]) => (*rows, 1),
        (None, [.., rows, cols]) => (*rows, *cols),
        _ => return None,
    };
    let of_all = rows.checked_mul(cols)?.checked_mul(count)?;
    let is_whole =
        rows > 0 && cols > 0 && matrices.rows.is_multiple_of(rows) && matrices.cols.is_multiple_of(cols);
    let is_single = scale.numel() == 1;
    let block = BlockShape { rows: matrices.rows.checked_div(rows)?, cols: matrices.cols.checked_div(cols)? };
    (is_whole && (is_single || of_all == scale.numel())).then_some(Grid {
        rows,
        cols,
        block,
        is_shared: is_single,
    })
}

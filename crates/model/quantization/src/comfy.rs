//! Files of ComfyUI: FP8, MXFP8, NVFP4 and INT8, each layer with its own description.
//!
//! Facts: the layouts of comfy-kitchen 0.2.40 with float32 as the dtype. A description is JSON in the tensor `comfy_quant` of the layer, or
//! in the header of the file, `_quantization_metadata`, under the layer's name. In older files, a tensor `scaled_fp8` marks all below its
//! prefix. The even column of a pair of NVFP4 is the high half of its byte, and scales of blocks are in tiles.

use std::collections::BTreeMap;
use std::sync::Arc;

use byte_source::Blob;
use serde_json::Value;
use tensor::{Dtype, Tensor, Tensors};

use crate::block_scaled::{BlockScaled, BlockShape, CodeRows};
use crate::code_values::{E2M1, dtype_values, nibble_values};
use crate::codes::{is_float8, is_marker};
use crate::dequantized::Matrices;
use crate::gptq::check;
use crate::packed::CodeOrder;
use crate::scales::{GlobalScale, ScaleEncoding, ScaleGrid, tiled_len};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Suffix of the description of a layer.
const DESCRIPTION: &str = ".comfy_quant";
/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &[DESCRIPTION, ".weight_scale", ".weight_scale_2", ".scale_weight"];
/// Largest description, in bytes.
const DESCRIPTION_MAX: u64 = 1 << 16;

/// Returns true if a description or a marker of the older spelling is among the tensors.
pub(crate) fn is_present(tensors: &Tensors) -> bool {
    tensors.names().any(|name| name.ends_with(DESCRIPTION) || is_marker(name))
}

/// A format of ComfyUI.
#[derive(Clone, Copy)]
enum Format {
    /// FP8 or INT8, with a scale for the tensor or for each row.
    Bytes(Dtype),
    Mxfp8,
    Nvfp4,
}

/// Adds the layers that a description or the older spelling names.
///
/// # Errors
/// When a format is not known or rotated, two descriptions disagree, or a companion is missing or has another shape or dtype.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let mut layers: BTreeMap<String, Value> = BTreeMap::new();
    if let Some(described) = survey.config.members.get("layers").and_then(Value::as_object) {
        layers.extend(described.iter().map(|(module, layer)| (module.clone(), layer.clone())));
    }
    for module in survey.stems(DESCRIPTION) {
        let name = format!("{module}{DESCRIPTION}");
        let layer = read_description(survey, &name)?;
        survey.mark(&name);
        let other = layers.insert(module, layer.clone());
        if other.is_some_and(|other| other.get("format") != layer.get("format")) {
            let problem = "the header of the file describes another format".to_owned();
            return Err(Problem::Content { tensor: name, problem }.into());
        }
    }
    for (module, layer) in &layers {
        let format = format_of(survey, module, layer)?;
        add(survey, module, format)?;
    }
    for module in survey.stems(".scale_weight").into_iter().chain(survey.stems(".weight_scale")) {
        let codes = survey.get(&format!("{module}.weight")).filter(|codes| is_float8(codes.dtype()));
        if let Some(codes) = codes.filter(|_| !layers.contains_key(&module)) {
            add(survey, &module, Format::Bytes(codes.dtype()))?;
        }
    }
    let markers: Vec<&str> = survey.tensors.names().filter(|name| is_marker(name)).collect();
    for name in markers {
        survey.mark(name);
    }
    Ok(())
}

fn read_description(survey: &Survey<'_>, name: &str) -> Result<Value> {
    let tensor = survey.companion(name, name)?;
    let problem = |problem: String| Problem::Content { tensor: name.to_owned(), problem };
    if tensor.dtype() != Dtype::UInt8 || tensor.numel() > DESCRIPTION_MAX {
        return Err(problem("it is not a short text in bytes".to_owned()).into());
    }
    let mut bytes: Vec<u8> = Vec::new();
    tensor.gathered().write_to(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes).map_err(|error| problem(format!("it is not JSON: {error}")))?)
}

fn format_of(survey: &Survey<'_>, module: &str, layer: &Value) -> Result<Format> {
    let unsupported = |key: &str, found: String, expected: &str| {
        let (method, key, expected) =
            (survey.config.method.clone(), format!("{module}: {key}"), expected.to_owned());
        Problem::Unsupported { method, key, found, expected }
    };
    if let Some(rotation) = layer.get("convrot").filter(|it| !matches!(it, Value::Bool(false) | Value::Null))
    {
        return Err(unsupported("convrot", rotation.to_string(), "weights that are not rotated").into());
    }
    match layer.get("format").and_then(Value::as_str) {
        Some("float8_e4m3fn") => Ok(Format::Bytes(Dtype::Float8E4M3Fn)),
        Some("float8_e5m2") => Ok(Format::Bytes(Dtype::Float8E5M2)),
        Some("int8_tensorwise") => Ok(Format::Bytes(Dtype::Int8)),
        Some("mxfp8") => Ok(Format::Mxfp8),
        Some("nvfp4") => Ok(Format::Nvfp4),
        format => {
            let found = format.map_or_else(|| "missing".to_owned(), |it| format!("`{}`", it.escape_debug()));
            let known = "float8_e4m3fn, float8_e5m2, int8_tensorwise, mxfp8 or nvfp4";
            Err(unsupported("format", found, known).into())
        }
    }
}

/// Returns a tensor of bytes as one of another dtype of a byte; any other tensor as it is.
fn viewed(tensor: &Tensor, dtype: Dtype) -> Result<Tensor> {
    if tensor.dtype() != Dtype::UInt8 {
        return Ok(tensor.clone());
    }
    Ok(tensor.with_storage(dtype, tensor.storage_offset(), tensor.storage().clone())?)
}

fn add(survey: &mut Survey<'_>, module: &str, format: Format) -> Result<()> {
    let weight = format!("{module}.weight");
    let names = [format!("{weight}_scale"), format!("{module}.scale_weight")];
    let [newer, _] = &names;
    let scale_name = names.iter().find(|name| survey.get(name).is_some()).unwrap_or(newer);
    let (codes, scale) = (survey.companion(&weight, &weight)?, survey.companion(&weight, scale_name)?);
    let wrong = |expected: &str| Problem::Shape {
        tensor: weight.clone(),
        found: codes.shape().to_vec(),
        expected: expected.to_owned(),
    };
    let is_pairs = matches!(format, Format::Nvfp4);
    let [rows, stored_cols] = *codes.shape() else { return Err(wrong("two dimensions").into()) };
    let cols = stored_cols
        .checked_mul(if is_pairs { 2 } else { 1 })
        .ok_or_else(|| wrong("a size that fits 63 bits"))?;
    let matrices = Matrices::from_shape(&[rows, cols]).filter(|it| it.elements > 0);
    let matrices = matrices.ok_or_else(|| wrong("at least one element"))?;
    let (code_dtype, group, scale_dtype) = match format {
        Format::Bytes(dtype) => (dtype, cols, scale.dtype()),
        Format::Mxfp8 => (Dtype::Float8E4M3Fn, 32, Dtype::Float8E8M0FnU),
        Format::Nvfp4 => (Dtype::UInt8, 16, Dtype::Float8E4M3Fn),
    };
    let typed = viewed(codes, code_dtype)?;
    check(&typed, &weight, code_dtype, codes.shape())?;
    let scale = &viewed(scale, scale_dtype)?;
    let mut draft = Draft::new(&weight);
    draft.stored =
        [&weight, scale_name].into_iter().filter_map(|name| survey.tensors.position(name)).collect();
    let operand = draft.operand(&weight, &typed)?;
    let (mut scales, block) = if let Format::Bytes(_) = format {
        if !scale.dtype().is_floating_point() {
            let expected = "a floating-point dtype".to_owned();
            return Err(Problem::Dtype { tensor: scale_name.clone(), found: scale.dtype(), expected }.into());
        }
        let scales = draft.factors((scale_name, scale), (rows, 1))?;
        let block = BlockShape { rows: if scales.rows == 1 { rows } else { 1 }, cols };
        (scales, block)
    } else {
        let blocks = cols.checked_div(group).filter(|_| cols.is_multiple_of(group));
        let blocks = blocks.ok_or_else(|| wrong(&format!("rows of groups of {group}")))?;
        check(scale, scale_name, scale_dtype, scale.shape())?;
        if tiled_len(rows, blocks) != Some(scale.numel()) {
            let found = scale.shape().to_vec();
            let expected = format!("tiles of 128 × 4 for a grid of [{rows}, {blocks}]");
            return Err(Problem::Shape { tensor: scale_name.clone(), found, expected }.into());
        }
        let grid = ScaleGrid::plain(draft.operand(scale_name, scale)?, (rows, blocks));
        (ScaleGrid { encoding: ScaleEncoding::Tiled, ..grid }, BlockShape { rows: 1, cols: group })
    };
    if is_pairs {
        let name = format!("{weight}_scale_2");
        let global = survey.companion(&weight, &name)?;
        if global.numel() != 1 || global.dtype() != Dtype::Float32 {
            let (found, expected) = (global.shape().to_vec(), "one float32".to_owned());
            return Err(Problem::Shape { tensor: name, found, expected }.into());
        }
        let operand = survey.operand(&mut draft, &name)?;
        let (rounding, unit) = (Dtype::Float32, 1.0);
        scales.global = Some(GlobalScale { operand, per_matrix: false, divides: false, unit, rounding });
    }
    let values = if is_pairs { nibble_values(&E2M1) } else { dtype_values(code_dtype) };
    let (bits, pitch) = (if is_pairs { 4 } else { 8 }, stored_cols);
    let codes = CodeRows { operand, bits, order: CodeOrder::HighFirst, pitch, values };
    let kernel = BlockScaled { codes, scales, zeros: None, block, matrices, groups: None, factor: 1.0 };
    let of = if block.rows == 1 { "channel" } else { "tensor" };
    let scheme = match format {
        Format::Bytes(Dtype::Int8) => format!("INT8, a scale for each {of}"),
        Format::Bytes(_) => format!("FP8, a scale for each {of}"),
        Format::Mxfp8 => format!("MXFP8, groups of {group}"),
        Format::Nvfp4 => format!("NVFP4, groups of {group}"),
    };
    let recognised = Recognised {
        scheme,
        shape: vec![rows, cols],
        library_dtype: Dtype::Float32,
        default_dtype: Dtype::BFloat16,
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

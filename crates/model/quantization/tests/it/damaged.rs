//! Each model with each of its stored parts missing, of another dtype or of another shape.

use quantization::{QuantizationDocuments, recognise};
use tensor::{Dtype, Tensor, Tensors};
use test_support::zeros;

use crate::models::{documents, models, quantized, stored};

/// Ends of parts that describe no weight, or that a model may lack: nothing tells that one was there.
const OPTIONAL: &[&str] = &[
    ".input_scale",
    ".output_scale",
    ".scale_input",
    ".activation_scale",
    ".k_scale",
    ".g_idx",
    ".weight_g_idx",
    ".weight_format",
    ".bias",
    "scaled_fp8",
    ".global_scale",
    "._weight_zero_point",
    "._weight_per_tensor_scale",
    "fp8.comfy_quant",
    "own.weight",
    "block_sparse_moe.switch_mlp.up_proj.weight",
];
/// Parts of HQQ's layers that change the numbers; the others have defaults.
const HQQ: &[&str] = &[".W_q", ".scale", ".zero", ".shape"];
/// Starts of the names of models with a scale for each tensor or column or in tiles, so that there may be another row.
const ANY_ROWS: &[&str] = &[
    "auto_round_awq",
    "bitnet_multiplies",
    "comfy",
    "ct_float_block",
    "ct_float_tensor",
    "ct_int_tensor",
    "fp8_ragged",
    "fp8_tensor",
    "modelopt_fp8",
    "torchao_small",
];

/// Damages a model, and returns what is wrong with the answer.
fn judge(
    documents: &QuantizationDocuments,
    tensors: &Tensors,
    name: &str,
    other: Option<&Tensor>,
) -> Option<String> {
    let what = other.map_or_else(|| "missing".to_owned(), |it| format!("{} {:?}", it.dtype(), it.shape()));
    let damaged = tensors.iter().filter_map(|(known, tensor)| {
        let tensor = if known == name { other?.clone() } else { tensor.clone() };
        Some((known.to_owned(), tensor))
    });
    let damaged: Tensors = damaged.collect();
    let (module, _) = name.split_once(".weight").or_else(|| name.rsplit_once('.')).unwrap_or((name, ""));
    match recognise(documents, &damaged) {
        Ok(_) => Some(format!("{name}: {what} is taken")),
        Err(error) if error.to_string().contains(module) => None,
        Err(error) => Some(format!("{name}: {what}: {error}")),
    }
}

#[test]
fn each_damaged_part_is_named() {
    let mut wrong = Vec::new();
    for path in models() {
        let documents = documents(&path);
        let (model, tensors) = quantized(&path);
        if !tensors.compounds().is_empty() {
            continue;
        }
        let tensors: Tensors = stored(&path);
        let (numbers, _) = model.dequantize(&tensors, |it| it.default_dtype).expect("names");
        let is_part = |name: &str, tensor: &Tensor| {
            numbers.get(name).is_none_or(|it| it.dtype() != tensor.dtype() || it.shape() != tensor.shape())
        };
        for (name, tensor) in tensors.iter().filter(|(name, tensor)| is_part(name, tensor)) {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let ends = |list: &[&str]| list.iter().any(|end| name.ends_with(end));
            if ends(OPTIONAL) || file.starts_with("hqq") && !ends(HQQ) {
                continue;
            }
            let mut longer = tensor.shape().to_vec();
            longer.iter_mut().take(1).for_each(|size| *size += 1);
            let missing = judge(&documents, &tensors, name, None);
            let typed = judge(&documents, &tensors, name, Some(&zeros(Dtype::Complex64, tensor.shape())));
            let shaped = judge(&documents, &tensors, name, Some(&zeros(tensor.dtype(), &longer)));
            let has_any_rows =
                ANY_ROWS.iter().any(|start| file.starts_with(start)) && ends(&["weight", "_qdata"]);
            let found = [missing, typed, shaped.filter(|_| !longer.is_empty() && !has_any_rows)];
            wrong.extend(found.into_iter().flatten().map(|text| format!("{file} {text}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

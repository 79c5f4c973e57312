//! Finds tensors of codes, whose numbers need a companion such as a scale.

use std::cell::OnceCell;

use tensor::{Dtype, Tensors};

/// Suffixes of companions, after the name of the tensor of codes.
const OF_TENSOR: &[&str] = &["_scale_inv", "_scale", "_scales", ".absmax"];
/// Suffixes of companions in the module of the codes.
const OF_MODULE: &[&str] = &[
    ".weight_scale_inv",
    ".weight_scale",
    ".weight_scale_2",
    ".scale_weight",
    ".scales",
    ".SCB",
    ".comfy_quant",
    ".input_scale",
    ".scale_input",
];
/// Suffix of a companion in the module, which other modules use for weights of their own.
const SCALE: &str = ".scale";
/// Name of a tensor that marks a file of FP8 codes.
pub(crate) const SCALED_FP8: &str = "scaled_fp8";

/// Search for the companions of codes among the tensors of a model.
#[derive(Debug)]
pub struct Codes<'t> {
    tensors: &'t Tensors,
    /// Name of the tensor that marks all FP8 as codes, once it was looked for.
    marker: OnceCell<Option<&'t str>>,
}

impl<'t> Codes<'t> {
    /// Creates a search among `tensors`.
    pub fn new(tensors: &'t Tensors) -> Self {
        Self { tensors, marker: OnceCell::new() }
    }

    /// Returns the name of a tensor without which the elements of the tensor `name` are not the numbers of a weight; `None` if they
    /// are numbers, as far as the names tell.
    pub fn companion(&self, name: &str, dtype: Dtype) -> Option<String> {
        let is_float8 = is_float8(dtype);
        let is_code =
            matches!(dtype, Dtype::Int8 | Dtype::UInt8 | Dtype::Int32 | Dtype::Float4E2M1FnX2) || is_float8;
        if !is_code {
            return None;
        }
        let (module, leaf) = name.rsplit_once('.').unwrap_or(("", name));
        let own_scale = leaf == "weight" && !module.is_empty();
        let of_tensor = OF_TENSOR.iter().map(|suffix| format!("{name}{suffix}"));
        let of_module = OF_MODULE.iter().chain(own_scale.then_some(&SCALE));
        let of_module = of_module.map(|suffix| format!("{module}{suffix}"));
        let found = of_tensor.chain(of_module).find(|it| it != name && self.tensors.contains(it));
        found.or_else(|| is_float8.then(|| self.marker().map(str::to_owned)).flatten())
    }

    fn marker(&self) -> Option<&'t str> {
        *self.marker.get_or_init(|| self.tensors.names().find(|name| is_marker(name)))
    }
}

pub(crate) fn is_float8(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Float8E4M3Fn | Dtype::Float8E4M3FnUz | Dtype::Float8E5M2 | Dtype::Float8E5M2FnUz)
}

/// Returns true for the name of a tensor that marks a file of FP8 codes.
pub(crate) fn is_marker(name: &str) -> bool {
    name.rsplit_once('.').map_or(name, |(_, leaf)| leaf) == SCALED_FP8
}

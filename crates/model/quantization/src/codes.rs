//! Finds tensors of codes, whose numbers need a companion such as a scale.

use std::cell::OnceCell;

use foldhash::{HashMap, HashMapExt};
use tensor::{Dtype, Tensors};

/// Suffix of a companion of codes that may lie in elements of any dtype: bitsandbytes' packed codes.
const MAXIMA: &str = ".absmax";
/// Name in its module of HQQ's packed codes, which may lie in elements of any dtype, and of their companion.
const PACKED: (&str, &str) = ("W_q", ".scale");
/// Suffixes of companions, after the name of the tensor of codes.
const OF_TENSOR: &[&str] = &["_scale_inv", "_scale", "_scales"];
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
    /// Names with `scal` in their last part, by the name before it, once they were looked for.
    scales: OnceCell<HashMap<&'t str, Vec<&'t str>>>,
}

impl<'t> Codes<'t> {
    /// Creates a search among `tensors`.
    pub fn new(tensors: &'t Tensors) -> Self {
        Self { tensors, marker: OnceCell::new(), scales: OnceCell::new() }
    }

    /// Returns the name of a tensor without which the elements of the tensor `name` are not the numbers of a weight; `None` if they
    /// are numbers, as far as the names tell.
    pub fn companion(&self, name: &str, dtype: Dtype) -> Option<String> {
        let (module, leaf) = name.rsplit_once('.').unwrap_or(("", name));
        let packed = (leaf == PACKED.0).then(|| format!("{module}{}", PACKED.1));
        let mut of_any_dtype = std::iter::once(format!("{name}{MAXIMA}")).chain(packed);
        if let Some(companion) = of_any_dtype.find(|it| self.tensors.contains(it)) {
            return Some(companion);
        }
        if !is_code(dtype) {
            return None;
        }
        let found = self.companions(name, dtype).next();
        if !is_float8(dtype) {
            return found;
        }
        let other = || self.scale_of(name, module, leaf).or_else(|| self.marker());
        found.or_else(|| other().map(str::to_owned))
    }

    /// Returns the names of the scales and other companions of a tensor of codes, as far as their names are known.
    pub fn companions<'n>(&'n self, name: &'n str, dtype: Dtype) -> impl Iterator<Item = String> + 'n {
        let (module, leaf) = name.rsplit_once('.').unwrap_or(("", name));
        let own_scale = leaf == "weight" && !module.is_empty();
        let of_tensor = OF_TENSOR.iter().map(move |suffix| format!("{name}{suffix}"));
        let of_module = OF_MODULE.iter().chain(own_scale.then_some(&SCALE));
        let all = of_tensor.chain(of_module.map(move |suffix| format!("{module}{suffix}")));
        all.filter(move |it| is_code(dtype) && it != name && self.tensors.contains(it))
    }

    /// Returns the name of a scale that is not in the lists: `weight.scale`, or `qscale_weight` and `weight_descale` next to `weight`.
    fn scale_of(&self, name: &str, module: &str, leaf: &str) -> Option<&'t str> {
        let scales = self.scales.get_or_init(|| {
            let mut scales: HashMap<&str, Vec<&str>> = HashMap::new();
            for name in self.tensors.names() {
                let (parent, last) = name.rsplit_once('.').unwrap_or(("", name));
                if last.contains("scal") {
                    scales.entry(parent).or_default().push(name);
                }
            }
            scales
        });
        let of_leaf = |it: &&str| {
            let last = it.rsplit_once('.').map_or(*it, |(_, last)| last);
            *it != name && last.contains(leaf)
        };
        let below = scales.get(name).and_then(|names| names.first().copied());
        below.or_else(|| scales.get(module)?.iter().copied().find(of_leaf))
    }

    fn marker(&self) -> Option<&'t str> {
        *self.marker.get_or_init(|| self.tensors.names().find(|name| is_marker(name)))
    }
}

/// Returns true for a dtype whose elements may be codes.
fn is_code(dtype: Dtype) -> bool {
    let is_whole = matches!(dtype, Dtype::Int8 | Dtype::UInt8 | Dtype::Int32 | Dtype::UInt32);
    is_whole || dtype == Dtype::Float4E2M1FnX2 || is_float8(dtype)
}

pub(crate) fn is_float8(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Float8E4M3Fn | Dtype::Float8E4M3FnUz | Dtype::Float8E5M2 | Dtype::Float8E5M2FnUz)
}

/// Returns true for the name of a tensor that marks a file of FP8 codes.
pub(crate) fn is_marker(name: &str) -> bool {
    name.rsplit_once('.').map_or(name, |(_, leaf)| leaf) == SCALED_FP8
}

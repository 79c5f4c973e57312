//! The numbers of Apertus' activation, which are tensors of each layer in `transformers`, and lists of all layers in llama.cpp.
//!
//! Facts: `ApertusModel` in llama.cpp's converter, and `XIELUActivation` of `transformers`.

use byte_source::Result;
use gguf_format::{GgufArray, GgufValue};
use tensor::{Dtype, Storage, Tensor};

use crate::Problem;
use crate::config::GgufConfig;
use crate::from_gguf::GgufKeys;
use crate::keys::Keys;
use crate::rope::numbers;

/// Key, name in a layer, and shape of each number.
const NUMBERS: &[(&str, &str, &[u64])] = &[
    ("xielu.alpha_n", "mlp.act_fn.alpha_n", &[1]),
    ("xielu.alpha_p", "mlp.act_fn.alpha_p", &[1]),
    ("xielu.beta", "mlp.act_fn.beta", &[]),
    ("xielu.eps", "mlp.act_fn.eps", &[]),
];

/// Returns true for a number of the activation.
pub(crate) fn is_number(name: &str) -> bool {
    NUMBERS.iter().any(|(_, module, _)| name.strip_suffix(module).is_some_and(|start| start.ends_with('.')))
}

/// Sets the lists, if the architecture has them.
///
/// # Errors
/// When a number is missing, or cannot be read.
pub(crate) fn set_keys(keys: &mut Keys, config: &GgufConfig, tensors: &[(String, Tensor)]) -> Result<()> {
    if config.architecture.name != "apertus" {
        return Ok(());
    }
    for (key, module, _) in NUMBERS {
        let mut list = Vec::new();
        for layer in 0..config.layers()? {
            let name = format!("model.layers.{layer}.{module}");
            let found = tensors.iter().find(|(known, _)| *known == name).map(|(_, tensor)| numbers(tensor));
            match found.transpose()?.as_deref() {
                Some([number]) => list.push(*number),
                _ => return Err(Problem::Activation { tensor: name }.into()),
            }
        }
        keys.set(key, GgufValue::Array(GgufArray::from_float32(list)));
    }
    Ok(())
}

/// Returns the numbers of a layer, with their names in it.
///
/// # Errors
/// When a list has none for the layer.
pub(crate) fn numbers_of(keys: &GgufKeys, layer: &str) -> Result<Vec<(&'static str, Tensor)>> {
    let number = |key: &str| {
        let GgufValue::Array(list) = keys.get(key)? else { return None };
        let GgufValue::Float32(number) = list.iter().nth(layer.parse().ok()?)? else { return None };
        Some(number)
    };
    let tensor = |(key, module, shape): &(&'static str, &'static str, &'static [u64])| {
        let number = number(key).ok_or_else(|| Problem::Activation { tensor: (*key).to_owned() })?;
        let storage = Storage::owned(number.to_le_bytes().to_vec());
        Ok((*module, Tensor::new(Dtype::Float32, shape.to_vec(), vec![1; shape.len()], 0, storage)?))
    };
    NUMBERS.iter().map(tensor).collect()
}

//! The numbers of Apertus' activation, which are tensors of each layer in `transformers`, and lists of all layers in llama.cpp.
//!
//! Facts: `ApertusModel` in llama.cpp's converter, and `XIELUActivation` of `transformers`.

use byte_source::Result;
use gguf_format::{GgufArray, GgufValue};
use tensor::{Dtype, Storage, Tensor};

use crate::Problem;
use crate::config::GgufConfig;
use crate::keys::{GgufKeys, Keys, LAYERS_MAX};
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

/// The lists of a file.
#[derive(Debug, Default)]
pub(crate) struct Lists(Vec<Vec<f32>>);

impl Lists {
    /// Reads the lists of an architecture that has them.
    pub(crate) fn read(keys: &GgufKeys) -> Self {
        let number = |value| if let GgufValue::Float32(number) = value { Some(number) } else { None };
        let read = |(key, ..): &(&str, &str, &[u64])| match keys.get(*key) {
            Some(GgufValue::Array(list)) => list.iter().take(LAYERS_MAX).map_while(number).collect(),
            _ => Vec::new(),
        };
        Self(NUMBERS.iter().map(read).collect())
    }

    /// Returns the numbers of a layer, with their names in it.
    ///
    /// # Errors
    /// When a list has none for the layer.
    pub(crate) fn of_layer(&self, layer: &str) -> Result<Vec<(&'static str, Tensor)>> {
        let place = layer.parse().unwrap_or(usize::MAX);
        let tensor = |(list, (key, module, shape)): (&Vec<f32>, &(&str, &'static str, &[u64]))| {
            let number = list.get(place).ok_or_else(|| Problem::Activation { tensor: (*key).to_owned() })?;
            let storage = Storage::owned(number.to_le_bytes().to_vec());
            Ok((*module, Tensor::new(Dtype::Float32, shape.to_vec(), vec![1; shape.len()], 0, storage)?))
        };
        self.0.iter().zip(NUMBERS).map(tensor).collect()
    }
}

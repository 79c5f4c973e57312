//! Sharding of a model: the assignment of tensors to files, and the index of the files.
//!
//! Facts: `split_state_dict_into_shards_factory` in `huggingface_hub` 1.0, and `save_pretrained` in `transformers` 5.23,
//! which adds `total_parameters`; `SAFETENSORS_WEIGHTS_NAME` in `diffusers` 0.42.

use std::collections::BTreeMap;

use serde::Serialize;

/// File name of a model in one file.
pub const SINGLE_MODEL_FILE: &str = "model.safetensors";
/// File name of the index of a model in several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// Splits tensors of these sizes into files of at most `max` bytes. Returns the positions of the tensors of each file.
///
/// Tensors fill a file in their order until the next tensor would exceed the limit. A tensor that exceeds the limit alone
/// gets its own file, which precedes the file that is being filled.
///
/// ```
/// assert_eq!(safetensors_format::split_into_shards(&[3, 9, 3, 3], 6), [vec![1], vec![0, 2], vec![3]]);
/// ```
pub fn split_into_shards(sizes: &[u64], max: u64) -> Vec<Vec<usize>> {
    let (mut files, mut current, mut filled) = (Vec::new(), Vec::new(), 0_u64);
    for (position, size) in sizes.iter().enumerate() {
        if *size > max {
            files.push(vec![position]);
            continue;
        }
        if filled.saturating_add(*size) > max {
            files.push(std::mem::take(&mut current));
            filled = 0;
        }
        current.push(position);
        filled = filled.saturating_add(*size);
    }
    if !current.is_empty() || files.is_empty() {
        files.push(current);
    }
    files
}

/// Library that finds the files of a model in its folder by their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelLibrary {
    #[default]
    Transformers,
    Diffusers,
}

impl ModelLibrary {
    fn stem(self) -> &'static str {
        match self {
            Self::Transformers => "model",
            Self::Diffusers => "diffusion_pytorch_model",
        }
    }

    /// Returns the name of file `number`, counted from 0, of `count`.
    pub fn file_name(self, number: usize, count: usize) -> String {
        let stem = self.stem();
        match count {
            1 => format!("{stem}.safetensors"),
            _ => format!("{stem}-{:05}-of-{count:05}.safetensors", number.saturating_add(1)),
        }
    }

    /// Returns the name of the index of a model in several files.
    pub fn index_name(self) -> String {
        format!("{}.safetensors.index.json", self.stem())
    }
}

/// Returns true if `name` is the file name of a model, of one of its shards, or of its index.
pub fn is_model_file(name: &str) -> bool {
    [ModelLibrary::Transformers, ModelLibrary::Diffusers].into_iter().any(|library| {
        let rest = name.strip_prefix(library.stem()).unwrap_or_default();
        let is_part = rest.starts_with('-') && rest.contains("-of-") && rest.ends_with(".safetensors");
        matches!(rest, ".safetensors" | ".safetensors.index.json") || is_part
    })
}

/// Index of a model in several files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShardIndex {
    /// Totals over all files.
    pub metadata: ShardTotals,
    /// File name of each tensor.
    pub weight_map: BTreeMap<String, String>,
}

/// Totals over all files of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShardTotals {
    /// Number of elements of all tensors.
    pub total_parameters: u64,
    /// Length in bytes of all tensors.
    pub total_size: u64,
}

impl ShardIndex {
    /// Returns the JSON text of the index.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("texts and numbers are JSON");
        format!("{text}\n")
    }
}

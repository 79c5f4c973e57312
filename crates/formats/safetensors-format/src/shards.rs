//! A model in several files: which tensor goes into which, and the index that lists them.
//!
//! Facts: `split_state_dict_into_shards_factory` in `huggingface_hub` 1.0, and `save_pretrained` in `transformers` 5.23,
//! which adds `total_parameters`.

use std::collections::BTreeMap;

use serde::Serialize;

/// The name of a model in one file.
pub const MODEL: &str = "model.safetensors";
/// The name of the index of a model in several files.
pub const INDEX: &str = "model.safetensors.index.json";

/// Splits tensors of these sizes into files of at most `max` bytes: for each file, the positions of its tensors.
///
/// Tensors fill a file in their order until the next one would exceed the limit. One that exceeds it alone gets a file of
/// its own, which comes before the one that is being filled.
///
/// ```
/// assert_eq!(safetensors_format::split(&[3, 9, 3, 3], 6), [vec![1], vec![0, 2], vec![3]]);
/// ```
pub fn split(sizes: &[u64], max: u64) -> Vec<Vec<usize>> {
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

/// The name of file `number`, counted from 0, of `count`.
pub fn file_name(number: usize, count: usize) -> String {
    match count {
        1 => MODEL.to_owned(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", number.saturating_add(1)),
    }
}

/// Whether a file of this name in a folder is taken for the model, a part of it, or its index.
pub fn is_of_model(name: &str) -> bool {
    let is_part = name.starts_with("model-") && name.contains("-of-") && name.ends_with(".safetensors");
    name == MODEL || name == INDEX || is_part
}

/// The index of a model in several files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Index {
    /// Sums over all files.
    pub metadata: IndexMetadata,
    /// For each tensor, the name of its file.
    pub weight_map: BTreeMap<String, String>,
}

/// What an index says about all files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndexMetadata {
    /// Elements of all tensors.
    pub total_parameters: u64,
    /// Bytes of all tensors.
    pub total_size: u64,
}

impl Index {
    /// The document's text.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("texts and numbers are JSON");
        format!("{text}\n")
    }
}

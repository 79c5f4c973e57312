//! Merges Meta's model-parallel shards.
//!
//! Facts: `ColumnParallelLinear`, `RowParallelLinear` and `VocabParallelEmbedding` in fairscale, as Meta's
//! `llama-models` uses them. No data is copied: a split tensor becomes a view of its parts.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use byte_source::Observer;
use pickle_vm::PickleLimits;
use serde::Deserialize;
use tensor::{Budget, Tensor, ViewId};

use super::equal_shards::{EqualShardGroups, without_repeats};
use super::{MergedCheckpoint, Shard, empty_set_error};
use crate::{Checkpoint, CheckpointItem, Error, ItemContent, Problem, Result};

/// The sizes of a model in `params.json`, in elements. Missing sizes are inferred from the shapes.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ModelSizes {
    dim: Option<u64>,
    n_heads: Option<u64>,
    n_kv_heads: Option<u64>,
    head_dim: Option<u64>,
}

impl ModelSizes {
    /// Reads the text of a `params.json`.
    ///
    /// # Errors
    /// When the text is not JSON, or a size is not a non-negative integer.
    pub fn from_json(text: &str) -> Result<Self> {
        let wrong = |error: serde_json::Error| Problem::Document {
            file: "params.json".to_owned(),
            reason: error.to_string(),
        };
        Ok(serde_json::from_str(text).map_err(wrong)?)
    }

    fn head_dim(&self, dim: u64) -> Option<u64> {
        self.head_dim.or_else(|| dim.checked_div(self.n_heads?))
    }

    /// Returns the total width of the query heads, in elements.
    fn query_width(&self, dim: u64) -> Option<u64> {
        match self.head_dim {
            None => Some(dim),
            Some(head_dim) => self.n_heads?.checked_mul(head_dim),
        }
    }

    /// Returns the total width of the key heads, in elements.
    fn key_value_width(&self, dim: u64) -> Option<u64> {
        self.n_kv_heads.or(self.n_heads)?.checked_mul(self.head_dim(dim)?)
    }
}

/// The way in which a tensor was split over the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TensorSplit {
    /// Split along dimension 0, the layer's outputs.
    Rows,
    /// Split along dimension 1, the layer's inputs.
    Columns,
    /// Split along dimension 0; if there are fewer heads than shards, each head has several copies.
    KeyValue,
    /// Split along dimension 1 in Llama 1 and 2, and along dimension 0 in Llama 3.
    Embeddings,
    /// Copied to each shard.
    Copies,
}

impl TensorSplit {
    fn from_name(tensor: &str) -> Option<Self> {
        if tensor == "freqs_cis" {
            return Some(Self::Copies);
        }
        let (module, kind) = tensor.rsplit_once('.')?;
        let module = module.rsplit_once('.').map_or(module, |(_, last)| last);
        match (module, kind) {
            ("wq" | "w1" | "w3" | "output", "weight" | "bias") => Some(Self::Rows),
            ("wk" | "wv", "weight" | "bias") => Some(Self::KeyValue),
            ("wo" | "w2", "weight") => Some(Self::Columns),
            ("tok_embeddings", "weight") => Some(Self::Embeddings),
            // Rotary frequencies; the first LLaMA has them in each layer, too.
            ("rope", "freqs")
            | ("wo" | "w2", "bias")
            | ("norm" | "attention_norm" | "ffn_norm" | "q_norm" | "k_norm", "weight") => Some(Self::Copies),
            _ => None,
        }
    }
}

/// Merges the checkpoint that Meta's code split over `shards`, given in the order of their numbers.
///
/// # Errors
/// When there are too few or too many shards, the shards contradict each other or `sizes`, one is a copy of another, or
/// a tensor is not one of LLaMA's.
pub fn merge_model_parallel(
    shards: Vec<Shard>,
    sizes: &ModelSizes,
    observer: &dyn Observer,
) -> Result<MergedCheckpoint> {
    let mut merge = ShardMerge::new(&shards, sizes, observer)?;
    let mut equal = EqualShardGroups::new(shards.len());
    let mut joined: HashMap<(usize, Vec<ViewId>), Tensor> = HashMap::new();
    let mut tensors = Vec::with_capacity(merge.first.checkpoint.items.len());
    for item in &merge.first.checkpoint.items {
        let (name, ItemContent::Tensor(first)) = (&item.name, &item.content) else {
            tensors.push(item.clone());
            continue;
        };
        let parts = merge.matching_parts(name, first)?;
        let (dim, parts) = merge.dim_and_parts(name, parts)?;
        let tensor = match parts.as_slice() {
            [one] => one.clone(),
            parts => {
                // Tensors with the same parts in each shard share the result.
                let key = (dim, parts.iter().map(Tensor::view_id).collect());
                if let Some(known) = joined.get(&key) {
                    known.clone()
                } else {
                    merge.spend(name, parts)?;
                    // If there are fewer heads than shards, equal parts are not evidence of a copied file.
                    if parts.len() == shards.len() {
                        equal
                            .compare_parts(name, parts, observer)
                            .map_err(|reason| reason.in_tensor(name))?;
                    }
                    let tensor = Tensor::concat(dim, parts);
                    let tensor = tensor.map_err(|reason| Error::from(reason).in_tensor(name))?;
                    joined.insert(key, tensor.clone());
                    tensor
                }
            }
        };
        tensors.push(CheckpointItem { content: ItemContent::Tensor(tensor), ..item.clone() });
    }
    if let Some((first, second, tensor)) = equal.equal_pair() {
        let file = |shard: usize| shards.get(shard).map(|shard| shard.file.clone()).unwrap_or_default();
        let (file, other, tensor) = (file(second), file(first), tensor.to_owned());
        return Err(Problem::EqualShards { file, other, tensor }.into());
    }
    let mut shards = shards.into_iter();
    let mut merged = MergedCheckpoint::new(shards.next().ok_or_else(empty_set_error)?.checkpoint);
    merged.checkpoint.items = tensors;
    shards.for_each(|mut shard| {
        // The tensors were joined with those of the first shard.
        shard.checkpoint.items.retain(|item| matches!(item.content, ItemContent::Value(_)));
        merged.add(&shard.file, shard.checkpoint);
    });
    Ok(merged)
}

/// The shards of a merge and the data derived from them.
struct ShardMerge<'s> {
    observer: &'s dyn Observer,
    /// Bytes that may be read of parts that repeat their storages.
    budget: Budget,
    sizes: &'s ModelSizes,
    shards: &'s [Shard],
    first: &'s Shard,
    names: Vec<HashMap<&'s str, &'s Tensor>>,
    count: u64,
    /// Width of the model, in elements.
    dim: Option<u64>,
}

impl<'s> ShardMerge<'s> {
    /// Compares the tensor names across shards, and the number of shards with the shapes.
    fn new(shards: &'s [Shard], sizes: &'s ModelSizes, observer: &'s dyn Observer) -> Result<Self> {
        let first = shards.first().ok_or_else(empty_set_error)?;
        let names: Vec<HashMap<&str, &Tensor>> = shards
            .iter()
            .map(|shard| {
                let items = shard.checkpoint.items.iter();
                items.filter_map(|item| Some((item.name.as_str(), item.tensor()?))).collect()
            })
            .collect();
        for shard in shards {
            let is_new = |item: &&CheckpointItem| {
                let known = names.first().is_some_and(|names| names.contains_key(item.name.as_str()));
                item.tensor().is_some() && !known
            };
            if let Some(item) = shard.checkpoint.items.iter().find(is_new) {
                return Err(Problem::MissingTensor {
                    file: first.file.clone(),
                    tensor: item.name.clone(),
                    other: shard.file.clone(),
                }
                .into());
            }
        }
        let count = shards.len() as u64;
        let mut compounds = shards.iter().flat_map(|shard| shard.checkpoint.compounds());
        if let Some((name, _)) = compounds.next().filter(|_| count > 1) {
            return Err(Problem::UnknownSplit { tensor: name.to_owned(), shards: count }.into());
        }
        let norm = |name: &str| match names.first()?.get(name)?.shape() {
            [dim] => Some(*dim),
            _ => None,
        };
        let dim =
            sizes.dim.or_else(|| norm("norm.weight")).or_else(|| norm("layers.0.attention_norm.weight"));
        let stored =
            shards.iter().fold(0_u64, |sum, shard| sum.saturating_add(storage_bytes(&shard.checkpoint)));
        let budget = Budget::new(PickleLimits::default().repeat_budget(stored));
        let merge = Self { observer, budget, sizes, shards, first, names, count, dim };
        merge.compare_count()?;
        Ok(merge)
    }

    /// Compares the number of shards with the shape of the first layer's query projection.
    fn compare_count(&self) -> Result<()> {
        const TENSOR: &str = "layers.0.attention.wq.weight";
        let first = self.names.first().and_then(|names| names.get(TENSOR));
        let whole = self.dim.and_then(|dim| self.sizes.query_width(dim));
        let (Some(first), Some(whole)) = (first, whole) else { return Ok(()) };
        let parts = self.matching_parts(TENSOR, first)?;
        let Some(shards) = parts.first().and_then(|part| whole.checked_div(*part.shape().first()?)) else {
            return Ok(());
        };
        let tensor = TENSOR.to_owned();
        if shards > self.count {
            let file = with_shard_number(&self.first.file, self.count);
            return Err(Problem::MissingShard { file, tensor, shards, found: self.count }.into());
        }
        let extra = usize::try_from(shards).ok().and_then(|shards| self.shards.get(shards));
        match extra {
            Some(extra) => Err(Problem::ExtraShard { file: extra.file.clone(), tensor, shards }.into()),
            None => Ok(()),
        }
    }

    /// Returns the parts of a tensor, after checking that shapes and dtypes agree.
    fn matching_parts(&self, name: &str, first: &Tensor) -> Result<Vec<Tensor>> {
        let part = |(shard, names): (&Shard, &HashMap<&str, &Tensor>)| {
            let Some(part) = names.get(name) else {
                return Err(Problem::MissingTensor {
                    file: shard.file.clone(),
                    tensor: name.to_owned(),
                    other: self.first.file.clone(),
                }
                .into());
            };
            if part.shape() != first.shape() || part.dtype() != first.dtype() {
                let described = |tensor: &Tensor| format!("{} {:?}", tensor.dtype(), tensor.shape()).into();
                return Err(Problem::PartsDisagree {
                    tensor: name.to_owned(),
                    file: shard.file.clone(),
                    found: described(part),
                    other: self.first.file.clone(),
                    expected: described(first),
                }
                .into());
            }
            Ok((*part).clone())
        };
        self.shards.iter().zip(&self.names).map(part).collect()
    }

    /// Deducts the elements of `parts` from the budget. A merged tensor is written as a whole, and a part of a few
    /// bytes can be expanded to any size.
    fn spend(&mut self, name: &str, parts: &[Tensor]) -> Result<()> {
        match parts.iter().find(|part| !self.budget.spend(part)) {
            None => Ok(()),
            Some(part) => Err(Problem::Expanded {
                tensor: name.to_owned(),
                nbytes: part.nbytes(),
                stored: part.storage().len(),
            }
            .into()),
        }
    }

    /// Returns the dimension along which to join the parts, and the parts without redundant copies. A single part is
    /// the tensor itself.
    fn dim_and_parts(&mut self, name: &str, mut parts: Vec<Tensor>) -> Result<(usize, Vec<Tensor>)> {
        if self.count == 1 {
            return Ok((0, parts));
        }
        let split = TensorSplit::from_name(name)
            .ok_or_else(|| Problem::UnknownSplit { tensor: name.to_owned(), shards: self.count })?;
        let shape = parts.first().map_or_else(Vec::new, |part| part.shape().to_vec());
        let wrong = |reason: String| Problem::WrongSplit {
            tensor: name.to_owned(),
            shape: shape.clone(),
            shards: self.count,
            reason,
        };
        let dim = self.dim.ok_or_else(|| {
            wrong("the width of the model is unknown; put its params.json next to the shards".to_owned())
        })?;
        match (split, shape.as_slice()) {
            (TensorSplit::Copies, _) => {
                self.compare_copies(name, &parts, 0..parts.len())?;
                parts.truncate(1);
                Ok((0, parts))
            }
            (TensorSplit::Rows, &[_]) => Ok((0, parts)),
            (TensorSplit::Rows, &[_, columns]) if columns == dim => Ok((0, parts)),
            (TensorSplit::Columns, &[rows, _]) if rows == dim => Ok((1, parts)),
            (TensorSplit::KeyValue, &[rows, ref rest @ ..]) if rest.iter().all(|columns| *columns == dim) => {
                let all = rows.saturating_mul(self.count);
                let whole = self.sizes.key_value_width(dim).unwrap_or(all);
                let copies = all.checked_div(whole).filter(|copies| copies.checked_mul(whole) == Some(all));
                let copies = copies.filter(|copies| *copies > 0 && self.count.is_multiple_of(*copies));
                let Some(copies) = copies.and_then(|copies| usize::try_from(copies).ok()) else {
                    return Err(wrong(format!("params.json implies {whole} rows")).into());
                };
                for start in (0..parts.len()).step_by(copies) {
                    self.compare_copies(name, &parts, start..start.saturating_add(copies))?;
                }
                Ok((0, parts.into_iter().step_by(copies).collect()))
            }
            (TensorSplit::Embeddings, &[_, columns]) if columns == dim => Ok((0, parts)),
            (TensorSplit::Embeddings, &[_, columns]) if columns.checked_mul(self.count) == Some(dim) => {
                Ok((1, parts))
            }
            _ => Err(wrong(format!("this is not a part of a model of width {dim}")).into()),
        }
    }

    /// Compares the copies in the shards of `range` with the first of them.
    fn compare_copies(&mut self, name: &str, parts: &[Tensor], range: Range<usize>) -> Result<()> {
        let shards = self.shards.get(range.clone()).unwrap_or_default();
        let parts = without_repeats(parts.get(range).unwrap_or_default());
        self.spend(name, &parts)?;
        let (Some(first), Some(part)) = (shards.first(), parts.first()) else { return Ok(()) };
        for (shard, other) in shards.iter().zip(&parts).skip(1) {
            let tensor = name.to_owned();
            match part.has_elements_of(other, self.observer) {
                Ok(true) => {}
                Ok(false) => {
                    let (file, other) = (shard.file.clone(), first.file.clone());
                    return Err(Problem::CopiesDiffer { tensor, file, other }.into());
                }
                Err(reason) => return Err(reason.in_tensor(name)),
            }
        }
        Ok(())
    }
}

/// Returns the total length in bytes of the storages of a checkpoint's tensors.
fn storage_bytes(checkpoint: &Checkpoint) -> u64 {
    let mut seen = HashSet::new();
    let storages = checkpoint.tensors().map(|(_, tensor)| tensor.storage().clone());
    let storages = storages.filter(|storage| seen.insert(storage.id()));
    storages.fold(0, |sum, storage| sum.saturating_add(storage.len()))
}

/// Replaces the shard number in a name such as `consolidated.00.pth`.
fn with_shard_number(file: &str, number: u64) -> String {
    let mut parts: Vec<String> = file.split('.').map(str::to_owned).collect();
    let digits = |part: &&mut String| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(part) = parts.iter_mut().rev().find(digits) {
        *part = format!("{number:0width$}", width = part.len());
    }
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_determine_the_split() {
        assert_eq!(TensorSplit::from_name("layers.3.attention.wq.weight"), Some(TensorSplit::Rows));
        assert_eq!(TensorSplit::from_name("layers.3.feed_forward.w2.weight"), Some(TensorSplit::Columns));
        assert_eq!(TensorSplit::from_name("layers.3.ffn_norm.weight"), Some(TensorSplit::Copies));
        assert_eq!(TensorSplit::from_name("output.weight"), Some(TensorSplit::Rows));
        assert_eq!(TensorSplit::from_name("rope.freqs"), Some(TensorSplit::Copies));
        let of_layer = "layers.0.attention.inner_attention.rope.freqs";
        assert_eq!(TensorSplit::from_name(of_layer), Some(TensorSplit::Copies));
        assert_eq!(TensorSplit::from_name("vision.wx.weight"), None);
        assert_eq!(TensorSplit::from_name("weight"), None);
    }

    #[test]
    fn shards_are_numbered_in_two_digits() {
        assert_eq!(with_shard_number("consolidated.00.pth", 7), "consolidated.07.pth");
        assert_eq!(with_shard_number("consolidated.00.pth", 12), "consolidated.12.pth");
    }
}

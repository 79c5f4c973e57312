//! Tensors that share memory, for formats without storages.
//!
//! Facts: `save_model` in the Python package `safetensors` 0.8 (`safetensors/torch.py`): of several tensors with the same
//! memory, one is written, and the metadata has an entry `dropped name: kept name` for each of the others. Both names have the same
//! last part, by which a reader knows such an entry from other metadata.

use std::ops::Range;

use decoder::{LayoutOwner, Weight};
use foldhash::{HashMap, HashMapExt, HashSet};
use safetensors_format::last_part;
use serde::{Deserialize, Serialize};
use tensor::{StorageId, Tensors, ViewId};

/// Treatment of tensors that view exactly the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum TieHandling {
    /// Once, with the other names in the metadata; twice if the last parts of their names differ
    #[default]
    Drop,
    /// Once per name
    Duplicate,
}

/// Partition of tensors into written and dropped ones, by position.
#[derive(Debug, Default)]
pub(crate) struct TiePlan {
    /// Positions of the tensors to write, in order.
    pub(crate) kept: Vec<usize>,
    /// Position of each tensor that is not written, and of the tensor with the same memory.
    pub(crate) dropped: Vec<(usize, usize)>,
    /// Positions of written tensors that share elements with tensors of others, or lie between them.
    pub(crate) partial: Vec<usize>,
}

impl TiePlan {
    /// Finds tensors with the same memory. The first one is kept, except that the input embedding of a known architecture is
    /// preferred, and that `reserved`, a name with another meaning in the metadata, is always kept.
    pub(crate) fn find(tensors: &Tensors, ties: TieHandling, reserved: &str) -> Self {
        let mut groups: HashMap<(ViewId, &str), Vec<usize>> = HashMap::new();
        let mut spans: Vec<(StorageId, Range<u64>, ViewId)> = Vec::new();
        let shared = shared_storages(tensors);
        for (position, (name, tensor)) in tensors.iter().enumerate() {
            if tensor.numel() == 0 || !shared.contains(&tensor.storage().id()) {
                continue;
            }
            let view = tensor.view_id();
            spans.push((tensor.storage().id(), tensor.span(), view.clone()));
            groups.entry((view, last_part(name))).or_default().push(position);
        }
        let name = |position: usize| tensors.get_index(position).map_or("", |(name, _)| name);
        let mut dropped: Vec<(usize, usize)> = Vec::new();
        if ties == TieHandling::Drop {
            for group in groups.values() {
                let Some(first) = group.first().copied() else { continue };
                let find =
                    |is_wanted: &dyn Fn(&str) -> bool| group.iter().copied().find(|it| is_wanted(name(*it)));
                let kept = find(&|name| name == reserved).or_else(|| find(&is_embedding)).unwrap_or(first);
                dropped.extend(group.iter().filter(|it| **it != kept).map(|it| (*it, kept)));
            }
            dropped.sort_unstable();
        }
        let is_dropped = |position: &usize| dropped.binary_search_by_key(position, |(it, _)| *it).is_ok();
        let kept: Vec<usize> = (0..tensors.len()).filter(|position| !is_dropped(position)).collect();
        let overlapping = overlapping_views(spans);
        let is_partial = |position: &usize| {
            let tensor = tensors.get_index(*position).map(|(_, tensor)| tensor);
            tensor.is_some_and(|it| !overlapping.is_empty() && overlapping.contains(&it.view_id()))
        };
        let partial = kept.iter().copied().filter(is_partial).collect();
        Self { kept, dropped, partial }
    }
}

/// Returns the storages that several tensors view. Most of a million tensors have a storage of their own.
fn shared_storages(tensors: &Tensors) -> HashSet<StorageId> {
    let mut ids: Vec<StorageId> = tensors.iter().map(|(_, tensor)| tensor.storage().id()).collect();
    ids.sort_unstable();
    ids.windows(2)
        .filter_map(|pair| pair.first().filter(|first| pair.last() == Some(first)).copied())
        .collect()
}

/// Returns the views that reach into another one of their storage.
fn overlapping_views(mut spans: Vec<(StorageId, Range<u64>, ViewId)>) -> HashSet<ViewId> {
    spans.sort_unstable_by_key(|(storage, span, _)| (*storage, span.start));
    let mut overlapping = HashSet::default();
    // The view that ends last of those before.
    let mut last: Option<&(StorageId, Range<u64>, ViewId)> = None;
    for next in &spans {
        let (storage, span, view) = next;
        let before = last.filter(|(known, ..)| known == storage);
        if let Some((_, _, other)) =
            before.filter(|(_, before, other)| span.start < before.end && other != view)
        {
            overlapping.extend([other.clone(), view.clone()]);
        }
        if before.is_none_or(|(_, before, _)| span.end > before.end) {
            last = Some(next);
        }
    }
    overlapping
}

/// Returns true if the name is that of the input embedding of a known architecture.
fn is_embedding(name: &str) -> bool {
    [LayoutOwner::Meta, LayoutOwner::HuggingFace]
        .iter()
        .any(|owner| owner.llama_names().name(Weight::Embedding).as_deref() == Some(name))
}

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage, Tensor};

    use super::*;

    fn tensors(names: &[(&str, u64, &[u64], &[u64])]) -> Tensors {
        let storage = Storage::owned(vec![0; 64]);
        let tensor = |(name, offset, shape, stride): &(&str, u64, &[u64], &[u64])| {
            let tensor = Tensor::new(Dtype::Int16, shape.to_vec(), stride.to_vec(), *offset, storage.clone());
            ((*name).to_owned(), tensor.expect("inside its storage"))
        };
        names.iter().map(tensor).collect()
    }

    #[test]
    fn one_name_of_the_same_memory_is_kept() {
        let all = tensors(&[
            ("lm_head.weight", 0, &[2, 3], &[3, 1]),
            ("model.embed_tokens.weight", 0, &[2, 3], &[3, 1]),
            ("other.weight", 0, &[2, 3], &[3, 1]),
            ("other.bias", 0, &[2, 3], &[3, 1]),
        ]);
        let tied = TiePlan::find(&all, TieHandling::Drop, "format");
        assert_eq!((tied.kept, tied.dropped, tied.partial), (vec![1, 3], vec![(0, 1), (2, 1)], vec![]));
        let tied = TiePlan::find(&all, TieHandling::Duplicate, "format");
        assert_eq!((tied.kept, tied.dropped), (vec![0, 1, 2, 3], vec![]));
        let tied = TiePlan::find(&all, TieHandling::Drop, "other.weight");
        assert_eq!(tied.kept, [2, 3]);
    }

    #[test]
    fn other_views_of_the_memory_are_not_ties() {
        let all = tensors(&[
            ("whole", 0, &[4, 3], &[3, 1]),
            ("transposed", 0, &[3, 4], &[1, 3]),
            ("row", 3, &[3], &[1]),
            ("same.row", 3, &[1, 3], &[7, 1]),
            ("again.row", 3, &[1, 3], &[5, 1]),
            ("empty", 0, &[0, 3], &[3, 1]),
            ("also empty", 0, &[0, 3], &[3, 1]),
        ]);
        let tied = TiePlan::find(&all, TieHandling::Drop, "format");
        assert_eq!(tied.dropped, [(4, 3)]);
        assert_eq!(tied.partial, [0, 1, 2, 3]);
    }

    #[test]
    fn parts_that_lie_apart_are_not_partial() {
        let all = tensors(&[
            ("0.weight", 0, &[2, 3], &[3, 1]),
            ("1.weight", 6, &[2, 3], &[3, 1]),
            ("also 1.weight", 6, &[2, 3], &[3, 1]),
            ("2.weight", 12, &[2, 3], &[3, 1]),
            ("in 2.weight", 14, &[2], &[1]),
        ]);
        assert_eq!(TiePlan::find(&all, TieHandling::Drop, "format").partial, [3, 4]);
    }
}

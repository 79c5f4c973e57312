//! Lists the tensors of a model under their own names, without the attribute in which a converted module holds them again.
//!
//! Facts: `torchscript` gives a module the attribute `__tensors__`, or a name with more underscores, `__tensors___` and so
//! on, if a tensor has that name. In a weights module the attribute is a dict of all tensors by name; in a model it is a
//! dict of lists of its weights, which newer models hold a second time in the object `forward`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use tensor::{StorageId, Tensor, ViewId};
use torch_import::Checkpoint;

/// Shortest name of the attribute; more underscores may follow.
const INDEX_ATTRIBUTE: &str = "__tensors__";

/// Start of the names in the lists of the object that Python calls.
const ENTRY_INDEX: &str = "forward.__tensors__.";

/// Names and tensors, in the file's order.
type NamedTensors<'c> = Vec<(Cow<'c, str>, &'c Tensor)>;

/// Returns the tensors of `checkpoint`, each once under its own name. Tensors that share elements keep all of their names.
pub fn own_tensors(checkpoint: &Checkpoint) -> NamedTensors<'_> {
    without_copies(checkpoint.tensors().collect())
}

fn without_copies(mut tensors: NamedTensors<'_>) -> NamedTensors<'_> {
    let indexes = index_prefixes(&tensors);
    let dict = indexes.iter().find_map(|index| dict_copies(&tensors, index));
    let copies = dict.or_else(|| indexes.iter().find_map(|index| list_copies(&tensors, index)));
    if let Some(copies) = copies {
        tensors.retain(|(name, _)| !copies.contains(name.as_ref()));
        // A decoder holds its lists a second time, in the object that Python calls.
        if let Some(copies) = list_copies(&tensors, ENTRY_INDEX) {
            tensors.retain(|(name, _)| !copies.contains(name.as_ref()));
        }
    }
    tensors
}

/// Returns the possible names of the attribute, each followed by a dot, shortest first.
fn index_prefixes(tensors: &NamedTensors<'_>) -> Vec<String> {
    let first = tensors.iter().filter_map(|(name, _)| Some(name.split_once('.')?.0));
    let is_index = |name: &&str| {
        name.strip_prefix(INDEX_ATTRIBUTE).is_some_and(|end| end.bytes().all(|byte| byte == b'_'))
    };
    let names: HashSet<&str> = first.filter(is_index).collect();
    let mut names: Vec<String> = names.into_iter().map(|name| format!("{name}.")).collect();
    names.sort_by_key(String::len);
    names
}

/// Returns the names under `index` if they are a dict of all other tensors by name, each of them the same view.
fn dict_copies(tensors: &NamedTensors<'_>, index: &str) -> Option<HashSet<String>> {
    // In a flat module, own names may begin like `index`. A copy's name is longer than its original's, so the loop visits
    // originals first.
    let mut by_length: Vec<(&str, ViewId)> =
        tensors.iter().map(|(name, tensor)| (name.as_ref(), tensor.view_id())).collect();
    by_length.sort_by_key(|(name, _)| name.len());
    let mut own: HashMap<&str, ViewId> = HashMap::with_capacity(by_length.len());
    let mut copies = HashSet::new();
    for (name, view) in by_length {
        let original = name.strip_prefix(index).and_then(|original| own.get(original));
        if original == Some(&view) {
            copies.insert(name.to_owned());
        } else {
            own.insert(name, view);
        }
    }
    (own.len() == copies.len()).then_some(copies)
}

/// Returns the list items under `index` if each is another named tensor or a part of one.
fn list_copies(tensors: &NamedTensors<'_>, index: &str) -> Option<HashSet<String>> {
    let (copies, own): (Vec<_>, Vec<_>) = tensors.iter().partition(|(name, _)| name.starts_with(index));
    let own = TensorSpans::collect_spans(own.iter().map(|(_, tensor)| *tensor));
    let is_copy = |(name, tensor): &&(Cow<'_, str>, &Tensor)| {
        let member = name.strip_prefix(index).and_then(|rest| rest.split_once('.'));
        member.is_some_and(|(_, number)| number.parse::<u64>().is_ok()) && own.contains_span(tensor)
    };
    (!copies.is_empty() && copies.iter().all(is_copy))
        .then(|| copies.iter().map(|(name, _)| name.clone().into_owned()).collect())
}

/// Byte ranges of tensors by storage, sorted by start. Each end is the largest end of all ranges up to this one.
struct TensorSpans(HashMap<StorageId, Vec<(u64, u64)>>);

impl TensorSpans {
    fn collect_spans<'t>(tensors: impl Iterator<Item = &'t Tensor>) -> Self {
        let mut spans: HashMap<StorageId, Vec<(u64, u64)>> = HashMap::new();
        for tensor in tensors {
            let span = tensor.span();
            spans.entry(tensor.storage().id()).or_default().push((span.start, span.end));
        }
        for spans in spans.values_mut() {
            spans.sort_unstable();
            let mut farthest = 0;
            for (_, end) in spans {
                farthest = farthest.max(*end);
                *end = farthest;
            }
        }
        Self(spans)
    }

    /// Returns true if the bytes of `tensor` lie within one of these tensors.
    fn contains_span(&self, tensor: &Tensor) -> bool {
        let span = tensor.span();
        let Some(spans) = self.0.get(&tensor.storage().id()) else { return false };
        let before = spans.partition_point(|(start, _)| *start <= span.start);
        before.checked_sub(1).and_then(|last| spans.get(last)).is_some_and(|(_, end)| span.end <= *end)
    }
}

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage};

    use super::*;

    /// Returns the own names among `names`, each given with the number of its storage.
    fn own(names: &[(&str, usize)]) -> Vec<String> {
        let storages: Vec<Storage> = (0..9).map(|_| Storage::owned(vec![0])).collect();
        let tensor = |storage: usize| {
            Tensor::new(Dtype::UInt8, vec![1], vec![1], 0, storages[storage].clone()).expect("1 byte")
        };
        let held: Vec<(&str, Tensor)> =
            names.iter().map(|(name, storage)| (*name, tensor(*storage))).collect();
        let tensors = held.iter().map(|(name, tensor)| (Cow::Borrowed(*name), tensor)).collect();
        without_copies(tensors).into_iter().map(|(name, _)| name.into_owned()).collect()
    }

    #[test]
    fn copies_in_a_dict_are_not_listed() {
        assert_eq!(own(&[("w", 0), ("a.b", 1), ("__tensors__.w", 0), ("__tensors__.a.b", 1)]), ["w", "a.b"]);
        // Tied tensors keep both names.
        let tied = [("w", 0), ("v", 0), ("__tensors__.w", 0), ("__tensors__.v", 0)];
        assert_eq!(own(&tied), ["w", "v"]);
    }

    #[test]
    fn tensors_that_are_called_like_the_index_stay() {
        let nested =
            [("w", 0), ("__tensors__.w", 1), ("__tensors___.w", 0), ("__tensors___.__tensors__.w", 1)];
        assert_eq!(own(&nested), ["w", "__tensors__.w"]);
        let flat = [("__tensors__.v", 0), ("__tensors__.__tensors__.v", 0)];
        assert_eq!(own(&flat), ["__tensors__.v"]);
        let longer = [("__tensors___.w", 0), ("__tensors__.__tensors___.w", 0)];
        assert_eq!(own(&longer), ["__tensors___.w"]);
        let foreign = [("__tensors__.w", 0), ("w", 1)];
        assert_eq!(own(&foreign), ["__tensors__.w", "w"]);
    }

    #[test]
    fn copies_in_lists_are_not_listed() {
        let model = [("l.0.w", 0), ("l.1.w", 1), ("__tensors__.wq.0", 0), ("__tensors__.wq.1", 1)];
        assert_eq!(own(&model), ["l.0.w", "l.1.w"]);
        let foreign = [("l.0.w", 0), ("__tensors__.wq.0", 0), ("__tensors__.wq.1", 1)];
        assert_eq!(own(&foreign).len(), 3);
    }

    #[test]
    fn lists_may_hold_parts() {
        let storage = Storage::owned(vec![0; 8]);
        let part = |offset, len| {
            Tensor::new(Dtype::UInt8, vec![len], vec![1], offset, storage.clone()).expect("8 bytes")
        };
        let own = |items: [(u64, u64); 2]| {
            let held = [part(0, 4), part(4, 3), part(items[0].0, items[0].1), part(items[1].0, items[1].1)];
            let names = ["a", "b", "__tensors__.wq.0", "__tensors__.wk.0"];
            let tensors = names.into_iter().map(Cow::Borrowed).zip(&held).collect();
            without_copies(tensors).len()
        };
        assert_eq!(own([(0, 2), (2, 2)]), 2);
        assert_eq!(own([(5, 2), (0, 4)]), 2);
        // The second item spans two tensors; in the next case, the item reaches past the last tensor.
        assert_eq!(own([(0, 2), (3, 2)]), 4);
        assert_eq!(own([(4, 3), (6, 2)]), 4);
    }
}

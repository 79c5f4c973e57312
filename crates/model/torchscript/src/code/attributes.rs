//! Reader of the attributes of an archive's root module, and of the tensors that they hold.
//!
//! Facts: `state.rs` puts tensors into the tree of modules. Storage records are numbered in the order of the checkpoint's
//! tensors, and modules of the same class in the order of their names.

use std::collections::HashSet;

use bytes::Bytes;
use pickle_vm::{Heap, ObjectId, Pickle};
use tensor::{Tensor, Tensors};

use crate::module_tree::{HALF_CLASS, NAMESPACE};

/// Records of an archive besides its storages: names below the root folder and, for uncompressed records, bytes.
pub(super) type NamedRecords = [(String, Option<Bytes>)];

/// Name of the record that holds the pickled objects.
pub(super) const DATA_PKL: &str = "data.pkl";

pub(super) struct RootAttributes<'p> {
    heap: &'p Heap<'p>,
    /// Name of the root module's class.
    pub(super) class: String,
    values: Vec<(String, ObjectId)>,
}

impl<'p> RootAttributes<'p> {
    pub(super) fn from_pickle_root(pickle: &'p Pickle<'p>) -> Option<Self> {
        let heap = &pickle.heap;
        let root = heap.instance(pickle.root)?;
        let class = match heap.global(root.callable)? {
            (NAMESPACE, class) => class.to_owned(),
            _ => return None,
        };
        let &[state] = root.state() else { return None };
        let entries = heap.entries(state)?.iter();
        let named = entries.map(|(key, value)| Some((heap.text(*key)?.into_owned(), *value)));
        Some(Self { heap, class, values: named.collect::<Option<_>>()? })
    }

    /// Returns the module's own attribute `name` if it is a text. Its name may end in underscores, so that it differs from the
    /// names of tensors.
    pub(super) fn own_text(&self, name: &str) -> Option<String> {
        self.values.iter().find_map(|(attribute, value)| {
            let end = attribute.strip_prefix(name)?;
            let text = self.heap.text(*value).filter(|_| end.bytes().all(|byte| byte == b'_'))?;
            Some(text.into_owned())
        })
    }

    /// Returns the container in a `restore_type_tag` call, which gives it the type of its elements.
    fn tagged_container(&self, value: ObjectId) -> Option<ObjectId> {
        let call = self.heap.instance(value)?;
        let is_tag = self.heap.global(call.callable) == Some(("torch.jit._pickle", "restore_type_tag"));
        self.heap.items(call.args).filter(|_| is_tag)?.first().copied()
    }

    /// Returns the tensors that attributes other than containers hold, in the order in which their storage records are
    /// numbered. Of tensors that share a record, each after the first follows the tensor before it in the tree of modules.
    pub(super) fn attribute_tensors(&self, tensors: Tensors) -> Tensors {
        let is_half = |value: &ObjectId| {
            self.heap
                .instance(*value)
                .is_some_and(|object| self.heap.global(object.callable) == Some((NAMESPACE, HALF_CLASS)))
        };
        let containers =
            self.values.iter().filter(|(_, value)| self.tagged_container(*value).is_some() || is_half(value));
        let containers: HashSet<&str> = containers.map(|(name, _)| name.as_str()).collect();
        let first_part = |name: &str| name.split('.').next().is_some_and(|part| containers.contains(part));
        let mut known = HashSet::new();
        let mut place = 0;
        let mut placed: Vec<(u32, (String, Tensor))> = Vec::new();
        for (name, tensor) in tensors {
            if first_part(&name) || name.starts_with(ENTRY_TENSORS) {
                continue;
            }
            let record = tensor.storage().first_stored().record_number().unwrap_or(u32::MAX);
            if known.insert(record) {
                place = record;
            }
            placed.push((place, (name, tensor)));
        }
        placed.sort_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, named)| named).collect()
    }

    /// Returns the tensors in the dict from which a weights module returns them.
    pub(super) fn indexed_tensors(&self, tensors: Tensors) -> Tensors {
        let is_index = |name: &str| {
            name.strip_prefix(TENSOR_INDEX_ATTRIBUTE).is_some_and(|end| end.bytes().all(|byte| byte == b'_'))
        };
        let index = self
            .values
            .iter()
            .find(|(name, value)| is_index(name) && self.tagged_container(*value).is_some());
        let Some((index, _)) = index else { return Tensors::default() };
        let inner = |(name, tensor): (String, Tensor)| {
            let inner = name.strip_prefix(index.as_str()).and_then(|rest| rest.strip_prefix('.'));
            Some((inner?.to_owned(), tensor))
        };
        tensors.into_iter().filter_map(inner).collect()
    }
}

/// Start of the names of tensors in the object that Python calls.
const ENTRY_TENSORS: &str = "forward.__tensors__.";

/// Name of the attribute that holds all tensors, without its suffix of underscores.
const TENSOR_INDEX_ATTRIBUTE: &str = "__tensors__";

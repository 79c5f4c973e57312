//! The attributes of the root module of an archive, and the tensors that they hold.
//!
//! Facts: `state.rs` puts tensors into the tree of modules. The records of storages are numbered in the order of the
//! checkpoint's tensors, and the modules that are the same class in the order of their names.

use std::borrow::Cow;

use std::collections::HashSet;

use pickle_vm::{Heap, ObjectId, Pickle};
use tensor::{Tensor, Tensors};

use crate::module::{HALF, NAMESPACE};

/// The records of an archive besides its storages: their names after the root folder and, if they are not compressed,
/// their bytes.
pub(super) type Records<'a> = [(String, Option<Cow<'a, [u8]>>)];

/// The record of the objects.
pub(super) const DATA_PKL: &str = "data.pkl";

/// The attributes of the root module, as `data.pkl` has them.
pub(super) struct Attributes<'p> {
    heap: &'p Heap<'p>,
    /// The name of its class.
    pub(super) class: String,
    values: Vec<(String, ObjectId)>,
}

impl<'p> Attributes<'p> {
    pub(super) fn of_root(pickle: &'p Pickle<'p>) -> Option<Self> {
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

    /// What ends the names of the module's own attributes, so that no tensor has such a name. `name` is a number.
    pub(super) fn end_of(&self, name: &str) -> Option<String> {
        let mut ends = self.values.iter().filter_map(|(attribute, value)| {
            let end = attribute.strip_prefix(name)?;
            (self.heap.int(*value).is_some() && end.bytes().all(|byte| byte == b'_')).then_some(end)
        });
        ends.next().map(str::to_owned)
    }

    fn find(&self, name: &str) -> Option<ObjectId> {
        self.values.iter().find(|(attribute, _)| attribute == name).map(|(_, value)| *value)
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        self.heap.int(self.find(name)?)
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        Some(self.heap.text(self.find(name)?)?.into_owned())
    }

    pub(super) fn float(&self, name: &str) -> Option<f64> {
        self.heap.float(self.find(name)?)
    }

    pub(super) fn bool(&self, name: &str) -> Option<bool> {
        self.heap.bool(self.find(name)?)
    }

    pub(super) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        let list = self.tagged(self.find(name)?)?;
        self.heap.items(list)?.iter().map(|item| self.heap.int(*item)).collect()
    }

    /// The names of the lists of tensors: those in the dict `name`, or the attributes that are lists.
    pub(super) fn has_list(&self, name: &str, end: &str) -> bool {
        let dict =
            self.find(&format!("__tensors__{end}")).and_then(|dict| self.heap.entries(self.tagged(dict)?));
        match dict {
            Some(entries) => entries.iter().any(|(key, _)| self.heap.text(*key).as_deref() == Some(name)),
            None => self.find(&format!("{name}{end}")).and_then(|list| self.tagged(list)).is_some(),
        }
    }

    /// The container in a value that has the type of its elements.
    fn tagged(&self, value: ObjectId) -> Option<ObjectId> {
        let call = self.heap.instance(value)?;
        let is_tag = self.heap.global(call.callable) == Some(("torch.jit._pickle", "restore_type_tag"));
        self.heap.items(call.args).filter(|_| is_tag)?.first().copied()
    }

    /// The tensors that the attributes other than containers hold, in the order in which the records of their storages are
    /// numbered. Where several share a record, those after the first follow what precedes them in the tree of modules.
    pub(super) fn own(&self, tensors: Tensors) -> Tensors {
        let is_half = |value: &ObjectId| {
            self.heap
                .instance(*value)
                .is_some_and(|object| self.heap.global(object.callable) == Some((NAMESPACE, HALF)))
        };
        let containers =
            self.values.iter().filter(|(_, value)| self.tagged(*value).is_some() || is_half(value));
        let containers: HashSet<&str> = containers.map(|(name, _)| name.as_str()).collect();
        let first_part = |name: &str| name.split('.').next().is_some_and(|part| containers.contains(part));
        let mut known = HashSet::new();
        let mut place = 0;
        let mut placed: Vec<(u32, (String, Tensor))> = Vec::new();
        for (name, tensor) in tensors {
            if first_part(&name) {
                continue;
            }
            let record = tensor.storage().record_number().unwrap_or(u32::MAX);
            if known.insert(record) {
                place = record;
            }
            placed.push((place, (name, tensor)));
        }
        placed.sort_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, named)| named).collect()
    }

    /// The tensors in the dict that a weights module returns them from.
    pub(super) fn index(&self, tensors: Tensors) -> Tensors {
        let is_index =
            |name: &str| name.strip_prefix(INDEX).is_some_and(|end| end.bytes().all(|byte| byte == b'_'));
        let index = self.values.iter().find(|(name, value)| is_index(name) && self.tagged(*value).is_some());
        let Some((index, _)) = index else { return Tensors::default() };
        let inner = |(name, tensor): (String, Tensor)| {
            let inner = name.strip_prefix(index.as_str()).and_then(|rest| rest.strip_prefix('.'));
            Some((inner?.to_owned(), tensor))
        };
        tensors.into_iter().filter_map(inner).collect()
    }
}

/// What the name of the attribute with all tensors begins with.
const INDEX: &str = "__tensors__";

//! The items of a checkpoint: tensors and values, each with its name.

use std::borrow::Cow;
use std::sync::Arc;

use gguf_format::GgufValue;
use pickle_vm::ObjectId;
use tensor::Tensor;

use crate::compound::CompoundItem;

/// A tensor or a value of a checkpoint, with its name.
#[derive(Clone, Debug)]
pub struct CheckpointItem {
    /// Path from the root to the item, its parts joined by dots.
    pub name: String,
    pub content: ItemContent,
    pub(crate) keys: KeyEnds,
}

/// Number of nested dicts whose keys are known.
pub(crate) const KEY_LEVELS: usize = 4;

/// Positions in a name at which its first parts end, if these are keys of a dict at the root and of dicts in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyEnds {
    ends: [u32; KEY_LEVELS],
    /// True if the value of the root is a module, whose members are no keys.
    pub(crate) in_module_of_root: bool,
}

impl KeyEnds {
    pub(crate) const NONE: Self = Self { ends: [Self::ABSENT; KEY_LEVELS], in_module_of_root: false };
    const ABSENT: u32 = u32::MAX;

    /// Sets the end of part number `part`, counted from 0; `None` if the part is not a key.
    pub(crate) fn set(&mut self, part: usize, end: Option<usize>) {
        if let Some(slot) = self.ends.get_mut(part) {
            *slot = end.and_then(|end| u32::try_from(end).ok()).unwrap_or(Self::ABSENT);
        }
    }

    /// Moves the ends at a position, of a name that becomes longer.
    fn move_end(&mut self, from: usize, to: usize) {
        for part in 0..KEY_LEVELS {
            if self.get(part) == Some(from) {
                self.set(part, Some(to));
            }
        }
    }

    fn get(self, part: usize) -> Option<usize> {
        self.ends.get(part).filter(|end| **end != Self::ABSENT).map(|end| *end as usize)
    }
}

/// Content of a [`CheckpointItem`].
#[derive(Clone, Debug)]
pub enum ItemContent {
    /// Strided view of a storage.
    Tensor(Tensor),
    /// Tensor that consists of several strided ones, or has no data.
    Compound(Arc<CompoundItem>),
    /// Number, text, configuration or other object.
    Value(CheckpointValue),
}

/// A value that is not a tensor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CheckpointValue {
    /// Object of the pickle.
    Object {
        /// Id of the object in the heap of the pickle.
        object: ObjectId,
        /// Number of the pickle in the checkpoint, for [`Checkpoint::heap_of`](crate::Checkpoint::heap_of).
        pickle: u32,
        /// Completeness of the object's contents.
        extent: ValueExtent,
    },
    /// Text in the metadata of a file without a pickle.
    Text(Arc<str>),
    /// Number, truth value or array of a GGUF file.
    Gguf(GgufValue),
}

/// The part of a value that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueExtent {
    /// All of the value.
    Whole,
    /// Reference to a container from inside that container.
    Cycle,
    /// Container whose contents are not listed, because it is nested too deeply or shared too often.
    Cut,
}

impl CheckpointItem {
    /// Creates the item of a tensor whose name has no known keys.
    pub fn from_tensor(name: String, tensor: Tensor) -> Self {
        Self { name, content: ItemContent::Tensor(tensor), keys: KeyEnds::NONE }
    }

    /// Returns the key of the root dict, or the index in the root list, under which the item is nested; `None` if the root is neither,
    /// or the item is a direct value of it.
    pub fn root_key(&self) -> Option<&str> {
        self.name_before(self.keys.get(0)?)
    }

    /// Returns the path of the dict in a dict of the root under which the item is nested, such as `state_dict.model`;
    /// `None` if the item is not nested in two dicts.
    pub fn second_key(&self) -> Option<&str> {
        self.key_at(1)
    }

    /// Returns the path of the dict that is `level` dicts below the root's key, where 0 stands for [`root_key`](Self::root_key);
    /// `None` if the item is not nested so deeply, or the level is one of which the keys are not known (4 and more).
    pub fn key_at(&self, level: usize) -> Option<&str> {
        // The end of a level may be that of an earlier item if this item has no such level.
        let mut ends = (0..=level).map(|level| self.name_before(self.keys.get(level)?));
        ends.try_fold("", |_, key| key)
    }

    /// Appends the number of this item among those of its name.
    pub(crate) fn set_number(&mut self, number: usize) {
        let before = self.name.len();
        self.name.push('#');
        self.name.push_str(&number.to_string());
        self.keys.move_end(before, self.name.len());
    }

    /// Returns the start of the name, if more of the name follows.
    fn name_before(&self, end: usize) -> Option<&str> {
        (end < self.name.len()).then(|| self.name.get(..end)).flatten()
    }

    /// Returns true if the item is in a dict or a module that is a value of the root.
    pub fn is_in_dict_of_root(&self) -> bool {
        self.root_key().is_some() && (self.keys.in_module_of_root || self.keys.get(1).is_some())
    }

    /// Returns true if the item is a direct value of the root dict.
    pub fn is_at_root(&self) -> bool {
        self.keys.get(0) == Some(self.name.len())
    }

    /// Returns the tensor if the item is a single strided view.
    pub fn tensor(&self) -> Option<&Tensor> {
        match &self.content {
            ItemContent::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Returns the strided tensors: the tensor itself, or the parts of a compound tensor, named `NAME.PART`.
    pub fn tensors(&self) -> impl Iterator<Item = (Cow<'_, str>, &Tensor)> {
        let (one, parts) = match &self.content {
            ItemContent::Tensor(tensor) => (Some((Cow::Borrowed(self.name.as_str()), tensor)), [].as_slice()),
            ItemContent::Compound(compound) => (None, compound.parts.as_slice()),
            ItemContent::Value(_) => (None, [].as_slice()),
        };
        let parts = parts.iter().map(|(part, tensor)| (Cow::Owned(self.part_name(part)), tensor));
        one.into_iter().chain(parts)
    }

    /// Builds the name of a part of a compound tensor. The name is empty for the root and for the value of an empty
    /// key; only the root has no path before the part.
    fn part_name(&self, part: &str) -> String {
        let is_root = self.name.is_empty() && self.keys.get(0).is_none();
        if is_root { part.to_owned() } else { format!("{}.{part}", self.name) }
    }
}

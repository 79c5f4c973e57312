//! The items of a checkpoint: tensors and values, each with its name.

use std::borrow::Cow;
use std::sync::Arc;

use pickle_vm::ObjectId;
use tensor::Tensor;

use crate::compound::Compound;

/// A tensor or a value of a checkpoint, with its name.
#[derive(Clone, Debug)]
pub struct Item {
    /// Path from the root to the item, its parts joined by dots.
    pub name: String,
    pub content: ItemContent,
    /// Length in bytes of the name's first part, if it is a key of a dict at the root.
    pub(crate) root_key: Option<u32>,
}

/// The content of an [`Item`].
#[derive(Clone, Debug)]
pub enum ItemContent {
    /// Strided view of a storage.
    Tensor(Tensor),
    /// Tensor that consists of several strided ones, or has no data.
    Compound(Arc<Compound>),
    /// Number, text, configuration or other object.
    Value(Value),
}

/// A value that is not a tensor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// Object of the pickle.
    Object {
        /// Id of the object in [`Checkpoint::heap`](crate::Checkpoint::heap).
        object: ObjectId,
        /// Completeness of the object's contents.
        extent: ValueExtent,
    },
    /// Text in the metadata of a file without a pickle.
    Text(Arc<str>),
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

impl Item {
    /// Returns the key of the root dict under which the item is nested; `None` if the root is not a dict, or the item
    /// is a direct value of it.
    pub fn root_key(&self) -> Option<&str> {
        let len = self.root_key? as usize;
        (len < self.name.len()).then(|| self.name.get(..len)).flatten()
    }

    /// Returns true if the item is a direct value of the root dict.
    pub fn is_at_root(&self) -> bool {
        self.root_key.is_some_and(|len| len as usize == self.name.len())
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
        let is_root = self.name.is_empty() && self.root_key.is_none();
        if is_root { part.to_owned() } else { format!("{}.{part}", self.name) }
    }
}

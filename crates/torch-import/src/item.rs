//! What a checkpoint lists: tensors and values, each with its name.

use std::borrow::Cow;
use std::sync::Arc;

use pickle_vm::ObjectId;
use tensor::Tensor;

use crate::compound::Compound;

/// One thing that a checkpoint holds, and its name.
#[derive(Clone, Debug)]
pub struct Item {
    /// The path to it from the root, joined by dots.
    pub name: String,
    /// What it is.
    pub content: Content,
    /// Bytes of the name's first part, where that is a key of a dict at the root.
    pub(crate) root_key: Option<u32>,
}

/// What an [`Item`] is.
#[derive(Clone, Debug)]
pub enum Content {
    /// A strided view of a storage.
    Tensor(Tensor),
    /// A tensor that is made of several, or has no data.
    Compound(Arc<Compound>),
    /// Anything else: a number, a text, a configuration.
    Value(Value),
}

/// A value that is not a tensor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// An object of the pickle.
    Object {
        /// The object, in [`Checkpoint::heap`](crate::Checkpoint::heap).
        object: ObjectId,
        /// Whether all of the object can be shown.
        extent: Extent,
    },
    /// A text in the metadata of a file without a pickle.
    Text(Arc<str>),
}

/// How much of a value there is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extent {
    /// All of it.
    Whole,
    /// It is a container that contains itself.
    Cycle,
    /// It is a container whose contents are not listed: it is nested too deeply, or shared too often.
    Cut,
}

impl Item {
    /// The key of the root's dict under which the item is; `None` where the root is not a dict, or the item is its
    /// direct value.
    pub fn root_key(&self) -> Option<&str> {
        let len = self.root_key? as usize;
        (len < self.name.len()).then(|| self.name.get(..len)).flatten()
    }

    /// Whether the item is a direct value of the root's dict.
    pub fn is_at_root(&self) -> bool {
        self.root_key.is_some_and(|len| len as usize == self.name.len())
    }

    /// The tensor, where it is one strided view.
    pub fn tensor(&self) -> Option<&Tensor> {
        match &self.content {
            Content::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The strided tensors: the tensor itself, or the parts of a compound one, named `NAME.PART`.
    pub fn tensors(&self) -> impl Iterator<Item = (Cow<'_, str>, &Tensor)> {
        let (one, parts) = match &self.content {
            Content::Tensor(tensor) => (Some((Cow::Borrowed(self.name.as_str()), tensor)), [].as_slice()),
            Content::Compound(compound) => (None, compound.parts.as_slice()),
            Content::Value(_) => (None, [].as_slice()),
        };
        let parts = parts.iter().map(|(part, tensor)| (Cow::Owned(self.part_name(part)), tensor));
        one.into_iter().chain(parts)
    }

    /// The name of a part of a compound tensor. The root has an empty name, and so has the value of an empty key; only the
    /// first has no path.
    fn part_name(&self, part: &str) -> String {
        let is_root = self.name.is_empty() && self.root_key.is_none();
        if is_root { part.to_owned() } else { format!("{}.{part}", self.name) }
    }
}

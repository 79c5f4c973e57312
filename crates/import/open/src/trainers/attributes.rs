//! Attributes of a trainer's objects in a pickle, read without the classes.
//!
//! Facts: `__reduce_ex__` in CPython's `Lib/copyreg.py`: an object without methods of its own is NEWOBJ of its class and
//! BUILD of its `__dict__`. `torch.Size` is a call with one tuple.

use std::borrow::Cow;

use pickle_vm::{Heap, ObjectId};

use crate::trainers::{Error, Problem, Result};

/// Largest number of dimensions of a tensor in PyTorch.
const DIMENSIONS_MAX: usize = 64;

/// The objects of a pickle, for a reader that knows the attributes of their classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objects<'h> {
    pub(crate) heap: &'h Heap<'h>,
    /// Name of the file, for messages.
    pub(crate) file: &'h str,
}

impl<'h> Objects<'h> {
    /// Builds the error for an object that is not what the format asks for.
    pub(crate) fn malformed(self, id: ObjectId, reason: impl Into<String>) -> Error {
        let problem = Problem::Metadata { offset: self.heap.offset(id), reason: reason.into() };
        Error::from(problem).in_file(self.file.as_ref())
    }

    /// Returns the module and the name of an object's class, or of the function that made it.
    pub(crate) fn class(self, id: ObjectId) -> Option<(&'h str, &'h str)> {
        self.heap.global(self.heap.instance(id)?.callable)
    }

    /// Returns the attribute `name` of an object; `None` if BUILD did not set it.
    pub(crate) fn attribute(self, id: ObjectId, name: &str) -> Result<Option<ObjectId>> {
        let Some(recorded) = self.heap.recorded_changes(id) else { return Ok(None) };
        let mut found = None;
        for (state, built) in recorded.states_with_offsets() {
            let dicts = self.heap.items(state).unwrap_or(std::slice::from_ref(&state));
            for dict in dicts {
                let Some(entries) = self.heap.entries(*dict) else { continue };
                if self.heap.changed_after(*dict, built) {
                    return Err(self.malformed(*dict, "its attributes change after they were set"));
                }
                let is_name = |key: ObjectId| self.heap.text(key).is_some_and(|text| text == name);
                found =
                    entries.iter().rev().find(|(key, _)| is_name(*key)).map(|(_, value)| *value).or(found);
            }
        }
        Ok(found)
    }

    /// Returns the attribute `name` of an object.
    pub(crate) fn required(self, id: ObjectId, name: &str) -> Result<ObjectId> {
        let missing = || {
            let class = self.class(id).map_or_else(|| self.heap.get(id).type_name(), |(_, class)| class);
            self.malformed(id, format!("`{}` has no attribute `{name}`", class.escape_debug()))
        };
        self.attribute(id, name)?.ok_or_else(missing)
    }

    pub(crate) fn text(self, id: ObjectId, what: &str) -> Result<Cow<'h, str>> {
        self.heap.text(id).ok_or_else(|| self.malformed(id, format!("{what} is not a text")))
    }

    /// Returns a number that is not negative.
    pub(crate) fn number(self, id: ObjectId, what: &str) -> Result<u64> {
        let number = self.heap.int(id).and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| self.malformed(id, format!("{what} is not a number from 0 to 2^63")))
    }

    pub(crate) fn items(self, id: ObjectId, what: &str) -> Result<&'h [ObjectId]> {
        self.heap.items(id).ok_or_else(|| self.malformed(id, format!("{what} is not a list")))
    }

    /// Returns the entries of a dict, or of an `OrderedDict`.
    pub(crate) fn entries(self, id: ObjectId, what: &str) -> Result<&'h [(ObjectId, ObjectId)]> {
        let ordered = || {
            (self.class(id)? == ("collections", "OrderedDict"))
                .then(|| self.heap.recorded_changes(id).map_or([].as_slice(), |recorded| recorded.items()))
        };
        self.heap
            .entries(id)
            .or_else(ordered)
            .ok_or_else(|| self.malformed(id, format!("{what} is not a dict")))
    }

    /// Returns the names and shapes of a dict of shapes.
    pub(crate) fn shapes(self, id: ObjectId, what: &str) -> Result<Vec<(String, Vec<u64>)>> {
        let entries = self.entries(id, what)?.iter();
        entries
            .map(|(name, shape)| {
                let name = self.text(*name, "the name of a parameter")?.into_owned();
                let shape = self.sizes(*shape, &format!("the shape of `{}`", name.escape_debug()))?;
                Ok((name, shape))
            })
            .collect()
    }

    /// Returns the numbers of a `torch.Size`, a tuple or a list.
    pub(crate) fn sizes(self, id: ObjectId, what: &str) -> Result<Vec<u64>> {
        let mut list = id;
        if self.class(id) == Some(("torch", "Size"))
            && let Some(instance) = self.heap.instance(id)
            && let Some(&[inner]) = self.heap.items(instance.args)
        {
            if self.heap.changed_after(inner, self.heap.offset(id)) {
                return Err(self.malformed(inner, format!("{what} changes after it was used")));
            }
            list = inner;
        }
        let items = self.items(list, what)?;
        if items.len() > DIMENSIONS_MAX {
            return Err(self.malformed(list, format!("{what} has {} dimensions", items.len())));
        }
        items.iter().map(|item| self.number(*item, what)).collect()
    }
}

//! Upper bounds on the work and the memory of giving a pickle's objects their meaning.
//!
//! Objects of a pickle share each other, so that a few bytes can stand for billions of paths. Every bound is a sum of a
//! part that any file may use and a part for each byte of its pickle: reading costs at most a multiple of the file.

use crate::{Error, Result};

/// Upper bounds for one checkpoint; see [`Limits::for_pickle`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Steps: each visit of an object by one of its paths, and each entry that is looked at to find an object's contents.
    pub(crate) steps: usize,
    /// Containers inside each other. Python's own pickler fails at this depth.
    pub(crate) depth: usize,
    /// Bytes in the names of tensors and of the containers around them.
    pub(crate) tensor_names: usize,
    /// Bytes in the names of values.
    pub(crate) value_names: usize,
    /// Values that are listed.
    pub(crate) values: usize,
    /// Names of tensors that have a name already.
    pub(crate) repeats: usize,
    /// Bytes that are copied out of objects, such as sizes and strides, which tensors may share.
    pub(crate) copied: usize,
}

impl Limits {
    /// The bounds for a pickle of `len` bytes.
    pub(crate) fn for_pickle(len: usize) -> Self {
        let per_byte = |times: usize, base: usize| len.saturating_mul(times).saturating_add(base);
        Self {
            steps: per_byte(4, 1 << 20),
            depth: 1000,
            tensor_names: per_byte(16, 64 << 20),
            value_names: per_byte(4, 16 << 20),
            values: (len / 8).saturating_add(1 << 19),
            repeats: (len / 64).saturating_add(1 << 17),
            copied: per_byte(16, 64 << 20),
        }
    }
}

/// What is left of one of the [`Limits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    what: &'static str,
    limit: usize,
    left: usize,
}

impl Budget {
    /// A budget of `limit` things; `what` names them in an error, in the plural.
    pub(crate) fn new(what: &'static str, limit: usize) -> Self {
        Self { what, limit, left: limit }
    }

    /// Takes `count` out of the budget, for something at `offset` of the pickle.
    ///
    /// # Errors
    /// When less is left.
    pub(crate) fn spend(&mut self, count: usize, offset: u64) -> Result<()> {
        if self.try_spend(count) {
            return Ok(());
        }
        Err(Error::Limit { what: self.what, offset, limit: self.limit })
    }

    /// Takes `count` out of the budget if so much is left.
    pub(crate) fn try_spend(&mut self, count: usize) -> bool {
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Whether less than half of it is left.
    pub(crate) fn is_scarce(&self) -> bool {
        self.left < self.limit / 2
    }

    /// How much was taken.
    #[cfg(test)]
    pub(crate) fn spent(&self) -> usize {
        self.limit.saturating_sub(self.left)
    }
}

/// A set of objects: one bit for each object of a heap.
#[derive(Clone, Debug)]
pub(crate) struct Marks(Vec<u64>);

impl Marks {
    /// An empty set of the objects of a heap with `len` objects.
    pub(crate) fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// Adds an object; returns whether it is new.
    pub(crate) fn insert(&mut self, id: pickle_vm::ObjectId) -> bool {
        let (word, bit) = place(id);
        let Some(word) = self.0.get_mut(word) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, id: pickle_vm::ObjectId) {
        let (word, bit) = place(id);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
    }

    /// Whether it has the object.
    pub(crate) fn contains(&self, id: pickle_vm::ObjectId) -> bool {
        let (word, bit) = place(id);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

fn place(id: pickle_vm::ObjectId) -> (usize, u64) {
    let index = id.index();
    (index / 64, 1 << (index % 64))
}

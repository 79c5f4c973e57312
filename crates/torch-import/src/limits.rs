//! Bounds the time and the memory needed to interpret the objects of a pickle.
//!
//! Objects of a pickle can share each other, so that a few bytes encode billions of paths. Each bound is the sum of a
//! constant and a multiple of the pickle's length, or of the bytes that store it if it is compressed, so that reading
//! costs at most a multiple of the file.

use crate::{Problem, Result};

/// Upper bounds for one checkpoint; see [`CheckpointLimits::for_pickle`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointLimits {
    /// Steps: each visit of an object by one of its paths, and each entry read to find an object's children.
    pub(crate) steps: usize,
    /// Nesting depth of containers. Python's own pickler fails at this depth.
    pub(crate) depth: usize,
    /// Bytes in the names of tensors and of the containers around them.
    pub(crate) tensor_names: usize,
    pub(crate) value_names: usize,
    pub(crate) values: usize,
    /// Additional names of tensors that already have one.
    pub(crate) repeats: usize,
    /// Bytes copied out of objects, such as sizes and strides, which tensors may share.
    pub(crate) copied: usize,
}

impl CheckpointLimits {
    /// Returns the bounds for a pickle that counts as `len` bytes of its file.
    pub(crate) fn for_pickle(len: usize) -> Self {
        let per_byte = |times: usize, base: usize| len.saturating_mul(times).saturating_add(base);
        Self {
            steps: per_byte(4, 1 << 20),
            depth: 1000,
            tensor_names: per_byte(16, 64 << 20),
            value_names: per_byte(4, 16 << 20),
            values: (len / 64).saturating_add(1 << 18),
            repeats: (len / 64).saturating_add(1 << 17),
            copied: per_byte(16, 64 << 20),
        }
    }
}

/// The unused part of one of the [`CheckpointLimits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitBudget {
    what: &'static str,
    limit: usize,
    left: usize,
}

impl LimitBudget {
    /// Creates a budget of `limit` units; `what` names the units in an error, in the plural.
    pub(crate) fn new(what: &'static str, limit: usize) -> Self {
        Self { what, limit, left: limit }
    }

    /// Deducts `count` for an object at `offset` of the pickle.
    ///
    /// # Errors
    /// When less than `count` is left.
    pub(crate) fn spend(&mut self, count: usize, offset: u64) -> Result<()> {
        if self.try_spend(count) {
            return Ok(());
        }
        Err(Problem::Limit { what: self.what, offset, limit: self.limit }.into())
    }

    /// Deducts `count` and returns true, or returns false if less is left.
    pub(crate) fn try_spend(&mut self, count: usize) -> bool {
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Returns true if less than half of the budget is left.
    pub(crate) fn is_scarce(&self) -> bool {
        self.left < self.limit / 2
    }

    /// Returns the amount that was deducted.
    #[cfg(test)]
    pub(crate) fn spent(&self) -> usize {
        self.limit.saturating_sub(self.left)
    }
}

/// A set of objects: one bit for each object of a heap.
#[derive(Clone, Debug)]
pub(crate) struct ObjectSet(Vec<u64>);

impl ObjectSet {
    /// Creates an empty set for a heap of `len` objects.
    pub(crate) fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// Adds an object; returns true if the set did not have it.
    pub(crate) fn insert(&mut self, id: pickle_vm::ObjectId) -> bool {
        let (word, bit) = place(id);
        let Some(word) = self.0.get_mut(word) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    pub(crate) fn remove(&mut self, id: pickle_vm::ObjectId) {
        let (word, bit) = place(id);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
    }

    pub(crate) fn contains(&self, id: pickle_vm::ObjectId) -> bool {
        let (word, bit) = place(id);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

fn place(id: pickle_vm::ObjectId) -> (usize, u64) {
    let index = id.index();
    (index / 64, 1 << (index % 64))
}

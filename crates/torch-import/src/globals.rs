//! The globals that checkpoints name.

use std::collections::HashSet;

use pickle_vm::Heap;

use crate::Risk;

/// A class or function that the pickle names. It was neither imported nor called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// The module, such as `torch._utils`.
    pub module: String,
    /// The name in it, such as `_rebuild_tensor_v2`.
    pub name: String,
    /// Where the pickle first names it, in bytes from its start.
    pub offset: u64,
}

impl Global {
    /// What it would risk to load it with Python's own unpickler.
    pub fn risk(&self) -> Risk {
        Risk::of(&self.module, &self.name)
    }

    /// All globals of a pickle, each once, in the order in which it first names them.
    pub(crate) fn all(heap: &Heap<'_>) -> Vec<Self> {
        let mut seen = HashSet::new();
        heap.ids()
            .filter_map(|id| Some((heap.global(id)?, heap.offset(id))))
            .filter(|(names, _)| seen.insert(*names))
            .map(|((module, name), offset)| Self { module: module.to_owned(), name: name.to_owned(), offset })
            .collect()
    }
}

impl std::fmt::Display for Global {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.module, self.name)
    }
}

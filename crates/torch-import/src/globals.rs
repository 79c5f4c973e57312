//! The globals that checkpoints name.

use std::collections::HashSet;

use pickle_vm::{Heap, ObjectId, Recorded};

use crate::Risk;
use crate::risk;

/// A class or function that the pickle names. It was neither imported nor called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// The module, such as `torch._utils`.
    pub module: String,
    /// The name in it, such as `_rebuild_tensor_v2`.
    pub name: String,
    /// Where the pickle first names it, in bytes from its start.
    pub offset: u64,
    /// Whether it is `getattr`, and all that the pickle does with it is to name classes inside classes.
    pub(crate) names_classes: bool,
}

impl Global {
    /// What it would risk to load it with Python's own unpickler.
    pub fn risk(&self) -> Risk {
        if self.names_classes { Risk::Known } else { Risk::of(&self.module, &self.name) }
    }

    pub(crate) fn new(module: &str, name: &str, offset: u64, getattr_is_tame: bool) -> Self {
        let names_classes = getattr_is_tame && is_getattr(module, name);
        Self { module: module.to_owned(), name: name.to_owned(), offset, names_classes }
    }

    /// All globals of a pickle, each once, in the order in which it first names them.
    pub(crate) fn all(heap: &Heap<'_>) -> Vec<Self> {
        let mut seen = HashSet::new();
        let tame = getattr_names_classes(heap);
        heap.ids()
            .filter_map(|id| Some((heap.global(id)?, heap.offset(id))))
            .filter(|(names, _)| seen.insert(*names))
            .map(|((module, name), offset)| Self::new(module, name, offset, tame))
            .collect()
    }
}

impl std::fmt::Display for Global {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.module, self.name)
    }
}

fn is_getattr(module: &str, name: &str) -> bool {
    matches!(module, "builtins" | "__builtin__") && name == "getattr"
}

/// Whether every `getattr` of a pickle names a class inside a class, as protocols before 4 must: enums and other
/// classes of the program's own have such places. All other uses of it are a way to anything.
pub(crate) fn getattr_names_classes(heap: &Heap<'_>) -> bool {
    let of = |id: ObjectId| heap.global(id).is_some_and(|(module, name)| is_getattr(module, name));
    let mut named = heap.ids().filter(|id| of(*id)).peekable();
    if named.peek().is_none() {
        return false;
    }
    heap.ids().all(|id| {
        let instance = heap.instance(id);
        let is_call = instance.is_some_and(|instance| of(instance.callable));
        let is_class = || {
            let &[outer, inner] = instance.and_then(|instance| heap.items(instance.args)).unwrap_or_default()
            else {
                return false;
            };
            let (Some((module, name)), Some(inner)) = (heap.global(outer), heap.text(inner)) else {
                return false;
            };
            risk::is_class(&inner) && Risk::of(module, &format!("{name}.{inner}")) != Risk::Dangerous
        };
        // Handed to anything else, it is out of sight.
        let recorded = heap.recorded(id);
        let entries = heap.entries(id).into_iter().chain(recorded.map(Recorded::items)).flatten();
        let items = heap.items(id).into_iter().chain(recorded.map(Recorded::appends));
        let items = items.chain(recorded.map(Recorded::state)).flatten().copied();
        let parts = entries.flat_map(|(key, value)| [*key, *value]).chain(items);
        (!is_call || is_class()) && !parts.into_iter().any(of)
    })
}

//! The globals that checkpoints name.

use std::collections::HashSet;

use pickle_vm::{Heap, Instance, ObjectId, Recorded};

use crate::{Risk, encoded, risk};

/// A class or function that the pickle names. It was neither imported nor called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// The module, such as `torch._utils`.
    pub module: String,
    /// The name in it, such as `_rebuild_tensor_v2`.
    pub name: String,
    /// Where the pickle first names it, in bytes from its start.
    pub offset: u64,
    risk: Risk,
}

impl Global {
    /// What it would risk to load it with Python's own unpickler.
    pub fn risk(&self) -> Risk {
        self.risk
    }

    pub(crate) fn new(module: &str, name: &str, offset: u64, uses: Uses) -> Self {
        let risk = match (module, name) {
            names if is_getattr(names) && uses.getattr_names_classes => Risk::Known,
            LOADS if !uses.loads_are_readable => Risk::Dangerous,
            _ => Risk::from_names(module, name),
        };
        Self { module: module.to_owned(), name: name.to_owned(), offset, risk }
    }

    /// All globals of a pickle, each once, in the order in which it first names them.
    pub(crate) fn all(heap: &Heap<'_>) -> Vec<Self> {
        let mut seen = HashSet::new();
        let uses = Uses::in_heap(heap);
        heap.ids()
            .filter_map(|id| Some((heap.global(id)?, heap.offset(id))))
            .filter(|(names, _)| seen.insert(*names))
            .map(|((module, name), offset)| Self::new(module, name, offset, uses))
            .collect()
    }
}

impl std::fmt::Display for Global {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.module, self.name)
    }
}

/// What loads a checkpoint from bytes: a tensor that was pickled without `torch.save`.
pub(crate) const LOADS: (&str, &str) = ("torch.storage", "_load_from_bytes");

fn is_getattr((module, name): (&str, &str)) -> bool {
    matches!(module, "builtins" | "__builtin__") && name == "getattr"
}

/// What a pickle does with globals whose risk depends on that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uses {
    /// Whether every `getattr` names a class inside a class, as protocols before 4 must: enums and other classes of
    /// the program's own have such places. All other uses are a way to anything.
    getattr_names_classes: bool,
    /// Whether all that is loaded from bytes are bytes of the pickle, which can be looked into.
    loads_are_readable: bool,
}

impl Uses {
    pub(crate) fn in_heap(heap: &Heap<'_>) -> Self {
        let names_class = |instance: &Instance| {
            let &[outer, inner] = heap.items(instance.args).unwrap_or_default() else { return false };
            let (Some((module, name)), Some(inner)) = (heap.global(outer), heap.text(inner)) else {
                return false;
            };
            risk::is_class(&inner) && Risk::from_names(module, &format!("{name}.{inner}")) != Risk::Dangerous
        };
        let is_readable = |instance: &Instance| {
            let arg = heap.items(instance.args).and_then(|args| args.first());
            arg.is_some_and(|arg| encoded::bytes(heap, *arg).is_some())
        };
        Self {
            getattr_names_classes: only_called(heap, &is_getattr, &names_class),
            loads_are_readable: only_called(heap, &|names| names == LOADS, &is_readable),
        }
    }
}

/// Whether all that a pickle does with a global is to call it in the way that `fine` knows. Handed to anything else,
/// it is out of sight.
fn only_called(
    heap: &Heap<'_>,
    is_it: &dyn Fn((&str, &str)) -> bool,
    fine: &dyn Fn(&Instance) -> bool,
) -> bool {
    let is_global = |id: ObjectId| heap.global(id).is_some_and(is_it);
    if !heap.ids().any(is_global) {
        return true;
    }
    heap.ids().all(|id| {
        let call = heap.instance(id).filter(|instance| is_global(instance.callable));
        let recorded = heap.recorded(id);
        let entries = heap.entries(id).into_iter().chain(recorded.map(Recorded::items)).flatten();
        let items = heap.items(id).into_iter().chain(recorded.map(Recorded::appends));
        let items = items.chain(recorded.map(Recorded::state)).flatten().copied();
        let mut parts = entries.flat_map(|(key, value)| [*key, *value]).chain(items);
        call.is_none_or(fine) && !parts.any(is_global)
    })
}

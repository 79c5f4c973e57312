//! The globals that checkpoints name, and which of them are known.

use std::collections::HashSet;

use pickle_vm::Heap;

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
    /// Whether it is one that this crate gives a meaning to.
    pub fn is_known(&self) -> bool {
        match self.module.as_str() {
            "torch" => tensor::Dtype::from_storage_class(&self.name).is_some(),
            "torch._utils" => {
                matches!(self.name.as_str(), "_rebuild_tensor" | "_rebuild_tensor_v2")
                    || matches!(self.name.as_str(), "_rebuild_parameter" | "_rebuild_parameter_with_state")
            }
            "collections" => matches!(self.name.as_str(), "OrderedDict" | "defaultdict"),
            _ => false,
        }
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

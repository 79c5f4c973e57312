//! Judges what a pickle does with each global: what it calls, and what it does with the objects that calls return.
//!
//! A use is known to be harmless only if a list says so: `lists/reviewed.txt` for calls, which people have reviewed, and
//! `lists/instances.txt` for what a pickle does with instances. The class of an object is known only from the call that
//! makes it.
//!
//! Facts: `Modules/_pickle.c` and `Lib/copyreg.py` of CPython 3.6 to 3.13; `persistent_load` in `torch/serialization.py`
//! of PyTorch 2.15.

mod analysis;
mod arguments;
mod as_written;
mod callee;
mod dtypes;
mod judge;
mod kind;
mod level;
mod states;
mod values;

use std::collections::HashMap;

use pickle_vm::Heap;

use self::analysis::Analysis;
pub(crate) use self::kind::UseRisk;
pub use self::kind::{GlobalUseKind, GlobalUseKinds};

/// The uses of the globals of one pickle.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeapUses {
    by_module: HashMap<String, HashMap<String, UseRisk>>,
}

impl HeapUses {
    pub(crate) fn in_heap(heap: &Heap<'_>) -> Self {
        let mut uses = Self::default();
        if heap.global_objects().is_empty() {
            return uses;
        }
        for (module, name, found) in Analysis::new(heap).into_uses() {
            uses.by_module.entry(module.to_owned()).or_default().insert(name.to_owned(), found);
        }
        uses
    }

    /// Returns the uses of a global; none if the pickle does not name it, or its name is implausibly long.
    pub(crate) fn use_risk(&self, module: &str, name: &str) -> UseRisk {
        self.by_module.get(module).and_then(|names| names.get(name)).copied().unwrap_or_default()
    }
}

//! The globals that checkpoints name.

use std::collections::HashSet;

use pickle_vm::{Heap, Instance, ObjectId, Recorded};

use crate::uses::CallsOfJudged;
use crate::{Risk, encoded, lists};

/// A class or function that the pickle names. It was recorded, not imported or called.
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
    /// The risk of loading it with Python's own unpickler.
    pub fn risk(&self) -> Risk {
        self.risk
    }

    /// The name by which people know it, if that is another one: `os.system` for `posix.system`.
    pub fn familiar(&self) -> Option<String> {
        lists::familiar(&self.module, &self.name).map(|(module, name)| [module, ".", name].concat())
    }

    /// The name, and the familiar one after it in brackets.
    pub fn described(&self) -> String {
        match self.familiar() {
            Some(familiar) => format!("{self} ({familiar})"),
            None => self.to_string(),
        }
    }

    pub(crate) fn new(module: &str, name: &str, offset: u64, uses: Uses) -> Self {
        let risk = match (module, name) {
            LOADS if !uses.loads_are_readable => Risk::Dangerous,
            // The scan reads the arrays that it describes.
            names if is_array_wrapper(names) => Risk::Known,
            _ => uses.calls.risk(module, name).unwrap_or_else(|| Risk::from_names(module, name)),
        };
        Self { module: module.to_owned(), name: name.to_owned(), offset, risk }
    }

    /// A global that does not come from a pickle, such as an operator in code.
    pub(crate) fn with_risk(module: &str, name: &str, offset: u64, risk: Risk) -> Self {
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

/// The function that loads a checkpoint from bytes, for tensors that were pickled without `torch.save`.
pub(crate) const LOADS: (&str, &str) = ("torch.storage", "_load_from_bytes");

/// How a pickle uses the globals whose risk depends on their use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uses {
    calls: CallsOfJudged,
    /// Whether everything that is loaded from bytes is in the pickle, so that it can be scanned.
    loads_are_readable: bool,
}

impl Uses {
    pub(crate) fn in_heap(heap: &Heap<'_>) -> Self {
        let is_readable = |instance: &Instance| {
            let arg = heap.items(instance.args).and_then(|args| args.first());
            arg.is_some_and(|arg| encoded::bytes(heap, *arg).is_some() && is_unchanged(heap, *arg))
        };
        Self {
            calls: CallsOfJudged::in_heap(heap),
            loads_are_readable: only_called(heap, &|names| names == LOADS, &is_readable),
        }
    }
}

/// Whether nothing was added to a byte string, or to the one that it was made from: a bytearray can change.
fn is_unchanged(heap: &Heap<'_>, id: ObjectId) -> bool {
    let inner = heap.instance(id).and_then(|outer| heap.items(outer.args)?.first().copied());
    let mut parts = [Some(id), inner].into_iter().flatten();
    parts.all(|part| {
        let changes = heap.recorded(part);
        changes.is_none_or(|changes| {
            changes.items().is_empty() && changes.appends().is_empty() && changes.state().is_empty()
        })
    })
}

/// Whether a pickle uses a global only in calls that `fine` accepts. If it is passed to anything else, its use cannot be
/// followed.
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

/// Whether a global is the class of joblib's descriptions of arrays. scikit-learn had a copy of joblib until 0.22.
pub(crate) fn is_array_wrapper((module, name): (&str, &str)) -> bool {
    name == "NumpyArrayWrapper"
        && matches!(module, "joblib.numpy_pickle" | "sklearn.externals.joblib.numpy_pickle")
}

//! The globals that a pickle names, with their risks.

use std::collections::HashSet;

use pickle_vm::{Heap, Instance, ObjectId, RecordedChanges};

use crate::encoded::{self, LOAD_FROM_BYTES};
use crate::judged_calls::JudgedGlobal;
use crate::risk::is_array_wrapper;
use crate::scan::operators::operator_risk;
use crate::script_modules::{CUSTOM_CLASSES, ScriptModules};
use crate::uses::{GlobalUseKinds, HeapUses};
use crate::{Risk, lists};

/// A class or function that the pickle names. The pickle machine records globals, and imports and calls none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Module, such as `torch._utils`.
    pub module: String,
    /// Qualified name in the module, such as `_rebuild_tensor_v2`.
    pub name: String,
    /// Offset in the pickle at which the global is first named, in bytes.
    pub offset: u64,
    risk: Risk,
    uses: GlobalUseKinds,
    findings: GlobalUseKinds,
}

impl Global {
    /// Returns the risk of loading the global with Python's own unpickler.
    pub fn risk(&self) -> Risk {
        self.risk
    }

    /// Returns the ways in which the pickle uses the global.
    pub fn uses(&self) -> GlobalUseKinds {
        self.uses
    }

    /// Returns the uses that are not known to be harmless, besides naming the global.
    pub fn findings(&self) -> GlobalUseKinds {
        self.findings
    }

    /// Returns the better-known name of an alias, such as `os.system` for `posix.system`; `None` for other globals.
    pub fn familiar_name(&self) -> Option<String> {
        lists::resolve_alias(&self.module, &self.name).map(|(module, name)| [module, ".", name].concat())
    }

    /// Returns the name, followed by the better-known one in brackets if there is one.
    pub fn name_with_alias(&self) -> String {
        match self.familiar_name() {
            Some(familiar) => format!("{self} ({familiar})"),
            None => self.to_string(),
        }
    }

    pub(crate) fn new(module: &str, name: &str, offset: u64, context: &RiskContext) -> Self {
        let found = context.uses.use_risk(module, name);
        let risk = match (module, name) {
            LOAD_FROM_BYTES if !context.loads_are_readable => Risk::Dangerous,
            // The scan reads the arrays that the wrapper describes.
            names if is_array_wrapper(names) => Risk::Known,
            // Whether it is dangerous depends on its calls.
            _ if JudgedGlobal::from_names(module, name).is_some() => Risk::Known,
            _ => Risk::from_names(module, name),
        };
        let risk = found.risk.map_or(risk, |worst| worst.max(risk));
        Self {
            module: module.to_owned(),
            name: name.to_owned(),
            offset,
            risk,
            uses: found.kinds,
            findings: found.findings,
        }
    }

    /// Creates a global that does not come from a pickle, such as an operator in code.
    pub(crate) fn with_risk(module: &str, name: &str, offset: u64, risk: Risk) -> Self {
        let (uses, findings) = (GlobalUseKinds::default(), GlobalUseKinds::default());
        Self { module: module.to_owned(), name: name.to_owned(), offset, risk, uses, findings }
    }

    /// Makes a class of the archive's own code known, and judges one of C++ as in code.
    pub(crate) fn recognise_script_class(&mut self, modules: &ScriptModules) {
        if self.risk == Risk::Unknown && modules.has_class_of(&self.module) {
            let namespace = self.module.strip_prefix(CUSTOM_CLASSES);
            self.risk = namespace.map_or(Risk::Known, |namespace| operator_risk(namespace, &self.name));
        }
    }

    /// Makes a known global unknown: the archive may bring a module of its name.
    pub(crate) fn distrust(&mut self) {
        self.risk = self.risk.max(Risk::Unknown);
    }

    /// Lists the globals of a pickle, each once, in the order in which the pickle first names them.
    pub(crate) fn all(heap: &Heap<'_>) -> Vec<Self> {
        let mut seen = HashSet::new();
        let context = RiskContext::in_heap(heap);
        heap.global_objects()
            .iter()
            .filter_map(|id| Some((heap.global(*id)?, heap.offset(*id))))
            .filter(|(names, _)| seen.insert(*names))
            .map(|((module, name), offset)| Self::new(module, name, offset, &context))
            .collect()
    }
}

impl std::fmt::Display for Global {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.module, self.name)
    }
}

/// Properties of a pickle on which the risk of some globals depends.
#[derive(Clone, Debug)]
pub(crate) struct RiskContext {
    uses: HeapUses,
    /// True if all bytes passed to [`LOAD_FROM_BYTES`] are in the pickle, so that a scan can read them.
    loads_are_readable: bool,
}

impl RiskContext {
    pub(crate) fn in_heap(heap: &Heap<'_>) -> Self {
        let is_readable = |instance: &Instance| {
            let arg = heap.items(instance.args).and_then(|args| args.first());
            arg.is_some_and(|arg| encoded::decode_bytes(heap, *arg).is_some() && is_unchanged(heap, *arg))
        };
        Self {
            uses: HeapUses::in_heap(heap),
            loads_are_readable: only_called(heap, &|names| names == LOAD_FROM_BYTES, &is_readable),
        }
    }
}

/// Returns true if the pickle does not change a byte string, nor the bytearray from which it was created.
fn is_unchanged(heap: &Heap<'_>, id: ObjectId) -> bool {
    let inner = heap.instance(id).and_then(|outer| heap.items(outer.args)?.first().copied());
    let mut parts = [Some(id), inner].into_iter().flatten();
    parts.all(|part| {
        let changes = heap.recorded_changes(part);
        changes.is_none_or(|changes| {
            changes.items().is_empty() && changes.appends().is_empty() && changes.state().is_empty()
        })
    })
}

/// Returns true if a pickle uses a global only in calls that `fine` accepts. Passing the global to any other object
/// counts as a use that cannot be followed.
fn only_called(
    heap: &Heap<'_>,
    is_it: &dyn Fn((&str, &str)) -> bool,
    fine: &dyn Fn(&Instance) -> bool,
) -> bool {
    let is_global = |id: ObjectId| heap.global(id).is_some_and(is_it);
    if !heap.global_objects().iter().copied().any(is_global) {
        return true;
    }
    heap.ids().all(|id| {
        let call = heap.instance(id).filter(|instance| is_global(instance.callable));
        let recorded = heap.recorded_changes(id);
        let entries = heap.entries(id).into_iter().chain(recorded.map(RecordedChanges::items)).flatten();
        let items = heap.items(id).into_iter().chain(recorded.map(RecordedChanges::appends));
        let items = items.chain(recorded.map(RecordedChanges::state)).flatten().copied();
        let mut parts = entries.flat_map(|(key, value)| [*key, *value]).chain(items);
        call.is_none_or(fine) && !parts.any(is_global)
    })
}

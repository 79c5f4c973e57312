//! What is known about the globals and uses of one pickle.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use pickle_vm::{Heap, ObjectId};

use super::callee::{Callee, NAME_LEN_MAX, Package, callee_named, is_constant};
use super::kind::{GlobalUseKind, UseRisk};
use super::level::Levels;
use crate::{Risk, lists};

/// The walk over one pickle.
pub(super) struct Analysis<'h, 'p> {
    pub(super) heap: &'h Heap<'p>,
    pub(super) globals: Vec<GlobalFacts<'h>>,
    /// Indexes in `globals` of the heap's global objects; `None` for a name that is too long.
    indexes: Vec<Option<usize>>,
    pub(super) levels: Levels,
    /// Entries and arguments that were looked at, which a pickle can share among many instructions.
    work: usize,
    /// Keys that were judged.
    pub(super) hashed: HashSet<ObjectId>,
}

pub(super) struct GlobalFacts<'h> {
    pub(super) module: &'h str,
    pub(super) name: &'h str,
    pub(super) callee: Callee,
    /// True for `types.GenericAlias`, under any of its names.
    pub(super) is_generic_alias: bool,
    /// True for a constant of torch, such as a dtype or a layout.
    pub(super) is_constant: bool,
    pub(super) found: UseRisk,
}

impl<'h, 'p> Analysis<'h, 'p> {
    pub(super) fn new(heap: &'h Heap<'p>) -> Self {
        let mut new = Self {
            heap,
            globals: Vec::new(),
            indexes: Vec::with_capacity(heap.global_objects().len()),
            levels: Levels::default(),
            work: 0,
            hashed: HashSet::new(),
        };
        let mut by_names: HashMap<(&str, &str), usize> = HashMap::new();
        for id in heap.global_objects().iter().copied() {
            let (module, name) = heap.global(id).unwrap_or_default();
            if module.len() > NAME_LEN_MAX || name.len() > NAME_LEN_MAX {
                new.indexes.push(None);
                continue;
            }
            let next = new.globals.len();
            let index = *by_names.entry((module, name)).or_insert(next);
            if index == next {
                let callee = callee_named(module, name, index);
                let familiar = lists::resolve_alias(module, name).unwrap_or((module, name));
                let is_generic_alias = familiar == ("types", "GenericAlias");
                let found = UseRisk::default();
                let is_constant = is_constant((module, name));
                new.globals.push(GlobalFacts { module, name, callee, is_generic_alias, is_constant, found });
            }
            new.indexes.push(Some(index));
        }
        new
    }

    /// Returns the index in `globals` of a global object.
    pub(super) fn index_of(&self, id: ObjectId) -> Option<usize> {
        // The objects are in ascending order.
        let at = self.heap.global_objects().binary_search(&id).ok()?;
        self.indexes.get(at).copied().flatten()
    }

    /// Returns false if too much was looked at.
    pub(super) fn spend(&mut self, work: usize) -> bool {
        self.work = self.work.saturating_add(work);
        self.work <= self.heap.len().saturating_mul(16).saturating_add(1 << 16)
    }

    /// Adds a use of a global, with its risk unless it is known to be harmless.
    pub(super) fn add(&mut self, global: Option<usize>, kind: GlobalUseKind, risk: Option<Risk>) {
        let Some(facts) = global.and_then(|index| self.globals.get_mut(index)) else { return };
        facts.found.kinds.insert(kind);
        let Some(risk) = risk else { return };
        let risk = match facts.callee.package {
            Package::Core => risk,
            // A use adds nothing to a global of another package, which is a finding itself.
            Package::Other => return,
            Package::OtherData => Risk::Unknown,
        };
        facts.found.findings.insert(kind);
        facts.found.risk = facts.found.risk.max(Some(risk));
    }

    pub(super) fn add_unless(&mut self, is_judged: bool, global: usize, kind: GlobalUseKind) {
        self.add(Some(global), kind, (!is_judged).then_some(Risk::Unreviewed));
    }
}

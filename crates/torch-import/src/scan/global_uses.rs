//! Uses of the globals in a heap: what names them, calls them and builds on their results.

use std::collections::HashMap;

use pickle_vm::{Arg, Heap, Instance, Object, ObjectId, Opcode};

use super::budget::{ScanBudget, truncate_name};
use super::cpython_errors::InstructionsAfterError;
use super::report::CALLS_MAX;
use super::{GlobalCall, GlobalUse};
use crate::globals::RiskContext;
use crate::persistent::class_of_persistent_id;
use crate::{Global, Risk};

/// Maximum number of irregularities kept per pickle.
pub(super) const IRREGULARITIES_MAX: usize = 16;
const CALL_DEPTH_MAX: usize = 8;

/// A BUILD instruction: its offset, its target object, and the state.
pub(super) struct BuildInstruction {
    pub(super) offset: u64,
    pub(super) target: ObjectId,
    pub(super) state: ObjectId,
}

/// The globals of a pickle by name, with their uses.
pub(super) struct GlobalUses<'b, 'o> {
    pub(super) uses: Vec<GlobalUse>,
    places: HashMap<(String, String), usize>,
    /// Objects that are globals not known to be harmless, with the indices of their uses.
    risky: HashMap<ObjectId, usize>,
    risk_context: RiskContext,
    budget: &'b mut ScanBudget<'o>,
    /// True if the budget sufficed so far.
    pub(super) within_budget: bool,
}

impl<'b, 'o> GlobalUses<'b, 'o> {
    pub(super) fn in_heap(heap: &Heap<'_>, budget: &'b mut ScanBudget<'o>) -> Self {
        let how = RiskContext::in_heap(heap);
        let (places, risky) = (HashMap::new(), HashMap::new());
        let mut names =
            Self { uses: Vec::new(), places, risky, risk_context: how, budget, within_budget: true };
        // Looks up by address first: a pickle can name many globals of a module whose name is a megabyte long.
        let mut known = HashMap::new();
        for id in heap.global_objects().iter().copied() {
            let Some((module, name)) = heap.global(id) else { continue };
            let address = (module.as_ptr(), module.len(), name.as_ptr(), name.len());
            let place = match known.get(&address) {
                Some(place) => Some(*place),
                None => names.use_index(module, name, heap.offset(id), false),
            };
            let Some(place) = place else { continue };
            known.insert(address, place);
            if names.uses.get(place).is_some_and(|found| found.risk != Risk::Known) {
                names.risky.insert(id, place);
            }
        }
        names
    }

    /// Deducts `work` from the budget; returns false once it is exceeded.
    fn spend(&mut self, work: usize) -> bool {
        self.within_budget = self.within_budget && self.budget.spend(work as u64);
        self.within_budget
    }

    /// Returns the index of a global in `uses`, adding the global if it is new; `None` if the budget is spent.
    fn use_index(&mut self, module: &str, name: &str, offset: u64, after_error: bool) -> Option<usize> {
        if !self.spend(module.len().saturating_add(name.len())) {
            return None;
        }
        let next = self.uses.len();
        let place = *self.places.entry((module.to_owned(), name.to_owned())).or_insert(next);
        if place == next {
            let mut global = Global::new(module, name, offset, &self.risk_context);
            let risk = global.risk();
            for text in [&mut global.module, &mut global.name] {
                *text = truncate_name(std::mem::take(text));
            }
            self.uses.push(GlobalUse { global, risk, calls: Vec::new(), unlisted_calls: 0, after_error });
        }
        Some(place)
    }

    fn add_call(
        &mut self,
        place: usize,
        (opcode, offset): (Opcode, u64),
        has_arguments: bool,
        text: impl FnOnce() -> String,
    ) {
        let Some(found) = self.uses.get_mut(place) else { return };
        // A call with arguments displaces one without.
        let first = found.calls.iter().position(|call| !call.has_arguments);
        if let Some(first) = first.filter(|_| has_arguments && found.calls.len() >= CALLS_MAX) {
            found.calls.remove(first);
            found.unlisted_calls = found.unlisted_calls.saturating_add(1);
        }
        if found.calls.len() < CALLS_MAX
            && let Some(text) = self.budget.spend_text(text)
        {
            found.calls.push(GlobalCall { opcode: opcode.name(), offset, text, has_arguments });
        } else {
            found.unlisted_calls = found.unlisted_calls.saturating_add(1);
        }
    }

    pub(super) fn uses_of_instances(&mut self, heap: &Heap<'_>, oddities: &mut Vec<String>) {
        for id in heap.ids() {
            let offset = heap.offset(id);
            match heap.get(id) {
                Object::Instance(instance) => {
                    let given = heap.items(instance.args).unwrap_or_default().iter().copied();
                    let more = instance.kwargs().and_then(|kwargs| heap.entries(kwargs)).unwrap_or_default();
                    if !self.spend(given.len().saturating_add(more.len())) {
                        return;
                    }
                    if is_unfollowed(heap, instance.callable) {
                        oddities.push(format!(
                            "an object that a persistent id stands for is called at 0x{offset:x}"
                        ));
                    }
                    let given: Vec<ObjectId> = given.chain(more.iter().map(|(_, value)| *value)).collect();
                    let called =
                        self.called_global(heap, instance).map(|callable| (callable, !given.is_empty()));
                    for (part, has_arguments) in
                        called.into_iter().chain(given.iter().map(|part| (*part, false)))
                    {
                        if let Some(place) = self.risky.get(&part) {
                            let at = (instance.construction.opcode(), offset);
                            self.add_call(*place, at, has_arguments, || heap.display(id).to_string());
                        }
                    }
                }
                Object::Persistent(pid) => {
                    if heap.last_change(id).is_some() {
                        oddities.push(format!("the object of the persistent id at 0x{offset:x} is changed"));
                    }
                    if !self.spend(heap.items(*pid).unwrap_or_default().len()) {
                        return;
                    }
                    for part in heap.items(*pid).unwrap_or_default() {
                        if let Some(place) = self.risky.get(part) {
                            let at = (Opcode::BinPersId, offset);
                            self.add_call(*place, at, false, || heap.display(*pid).to_string());
                        }
                    }
                }
                Object::Extension(code) => {
                    oddities.push(format!(
                        "extension {code} at 0x{offset:x} refers to a global that only the program knows"
                    ));
                }
                _ => {}
            }
            if oddities.len() > IRREGULARITIES_MAX {
                oddities.truncate(IRREGULARITIES_MAX);
            }
        }
    }

    /// Returns the global that an instance calls, directly or as the result of a call.
    fn called_global(&self, heap: &Heap<'_>, instance: &Instance) -> Option<ObjectId> {
        let mut callable = instance.callable;
        for _ in 0..CALL_DEPTH_MAX {
            match heap.instance(callable) {
                Some(inner) => callable = inner.callable,
                None => break,
            }
        }
        self.risky.contains_key(&callable).then_some(callable)
    }

    pub(super) fn uses_of_builds(
        &mut self,
        heap: &Heap<'_>,
        builds: &[BuildInstruction],
        oddities: &mut Vec<String>,
    ) {
        for BuildInstruction { offset, target, state } in builds {
            if let Some((module, name)) = heap.global(*target) {
                let (module, name) = (module.escape_debug(), name.escape_debug());
                oddities.push(format!("BUILD at 0x{offset:x} sets attributes of {module}.{name} itself"));
            }
            let dicts = heap.items(*state).unwrap_or_default().iter().take(2).chain([state]);
            let entries = dicts.filter_map(|dict| heap.entries(*dict));
            if !self.spend(entries.fold(1, |sum, entries| entries.len().saturating_add(sum))) {
                return;
            }
            let inner = heap.instance(*target).and_then(|instance| self.called_global(heap, instance));
            // A dict, or a tuple of a dict and a dict of slots.
            let dicts = heap.items(*state).unwrap_or_default().iter().take(2).chain([state]);
            let values = dicts.filter_map(|dict| heap.entries(*dict)).flatten().map(|(_, value)| *value);
            let parts: Vec<ObjectId> = values.chain([*target, *state]).chain(inner).collect();
            for part in parts {
                if let Some(place) = self.risky.get(&part) {
                    self.add_call(*place, (Opcode::Build, *offset), false, || match heap.global(*target) {
                        Some(_) => format!("{} with state {}", heap.display(*target), heap.display(*state)),
                        // The text of an instance includes its states.
                        None => heap.display(*target).to_string(),
                    });
                }
            }
        }
    }

    /// Collects the globals after an error without running the machine, since unpicklers that do not stop there reach
    /// them. Returns true if there is one.
    pub(super) fn uses_after_error(&mut self, mut after: InstructionsAfterError<'_>) -> bool {
        let start = after.offset();
        let mut texts: [Option<String>; 2] = [None, None];
        let mut named = false;
        for instruction in after.by_ref() {
            match (instruction.opcode, &instruction.arg) {
                (_, Arg::Global { module, name }) => {
                    named = true;
                    self.use_index(module, name, instruction.offset, true);
                }
                (Opcode::StackGlobal, _) => {
                    named = true;
                    if let [Some(module), Some(name)] = &texts {
                        self.use_index(&module.clone(), &name.clone(), instruction.offset, true);
                    }
                }
                (Opcode::Ext1 | Opcode::Ext2 | Opcode::Ext4, _) => named = true,
                (_, Arg::Text(text)) => {
                    texts.swap(0, 1);
                    texts[1] = Some(text.to_str().into_owned());
                }
                (_, Arg::String(bytes)) => {
                    texts.swap(0, 1);
                    texts[1] = Some(String::from_utf8_lossy(bytes).into_owned());
                }
                _ => {}
            }
            if !self.within_budget {
                break;
            }
        }
        let read = usize::try_from(after.offset().saturating_sub(start)).unwrap_or(usize::MAX);
        self.spend(read);
        named || after.ends_in_a_name
    }
}

/// Returns true for a persistent object that is not known to be a class.
fn is_unfollowed(heap: &Heap<'_>, callable: ObjectId) -> bool {
    heap.persistent(callable).is_some_and(|pid| class_of_persistent_id(heap, pid).is_none())
}

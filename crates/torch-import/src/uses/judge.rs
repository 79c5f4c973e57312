//! Walks over the objects of a pickle, and judges each call, each change, and each key.

use std::collections::HashSet;

use pickle_vm::{Construction, Instance, Object, ObjectId};

use super::analysis::Analysis;
use super::callee::Package;
use super::kind::{GlobalUseKind, UseRisk};
use super::level::Level;
use super::values::Value;
use super::{dtypes, states};
use crate::Risk;
use crate::judged_calls::{self, JudgedGlobal, Judgement};
use crate::lists::{ArgumentRule, ClassTraits};

/// Attributes of the metadata of omegaconf of which `__setstate__` makes annotations.
const TYPES_OF_OMEGACONF: [&str; 4] = ["ref_type", "object_type", "key_type", "element_type"];

impl<'h> Analysis<'h, '_> {
    /// Judges all uses, and returns them with the names of their globals.
    pub(super) fn into_uses(mut self) -> impl Iterator<Item = (&'h str, &'h str, UseRisk)> {
        let passes_judged = self.globals.iter().any(|facts| facts.callee.judged.is_some());
        for id in self.heap.ids() {
            match self.heap.get(id) {
                Object::Instance(instance) => {
                    self.judge_call(instance);
                    self.judge_changes(id, instance);
                }
                Object::Dict(entries) => {
                    for (key, _) in entries.get() {
                        self.judge_key(*key);
                    }
                }
                Object::Set(_) | Object::FrozenSet(_) => {
                    for item in self.heap.items(id).unwrap_or_default() {
                        self.judge_key(*item);
                    }
                }
                Object::Persistent(pid) => self.judge_persistent_id(*pid),
                Object::Global(_) => {
                    let changes = self.heap.recorded_changes(id);
                    if changes.is_some_and(|found| !found.items().is_empty() || !found.appends().is_empty()) {
                        self.add(self.index_of(id), GlobalUseKind::ItemsSet, Some(Risk::Unreviewed));
                    }
                    self.add(self.index_of(id), GlobalUseKind::Named, None);
                }
                _ => {}
            }
            if passes_judged {
                self.judge_passed_on(id);
            }
        }
        self.globals.into_iter().map(|facts| (facts.module, facts.name, facts.found))
    }

    fn judge_call(&mut self, instance: &Instance) {
        if let Some(call) = self.written_call(instance) {
            let is_reduced = instance.construction == Construction::Reduce && call.kwargs.is_none();
            let kind = if is_reduced { GlobalUseKind::Called } else { GlobalUseKind::Created };
            let is_judged = self.spend(call.args.len()) && self.is_as_written(&call, instance.construction);
            return self.add_unless(is_judged, call.callee.global, kind);
        }
        let Some(callee) = self.callee(instance.callable) else {
            // What a call returned can be anything that its arguments lead to.
            let global = self.returned_by(instance.callable);
            self.add(global, GlobalUseKind::ResultCalled, Some(Risk::Dangerous));
            return;
        };
        let is_creation = self.creates(instance);
        let kind = if is_creation { GlobalUseKind::Created } else { GlobalUseKind::Called };
        match callee.package {
            Package::Core => {}
            Package::Other => return self.add(Some(callee.global), kind, None),
            Package::OtherData => {
                let is_bare = self.heap.items(instance.args).is_some_and(<[_]>::is_empty)
                    && instance.kwargs().is_none();
                return self.add_unless(is_creation && is_bare, callee.global, kind);
            }
        }
        if let Some(judged) = callee.judged {
            let risk = match judged.judge(self.heap, instance) {
                Judgement::Dangerous => Some(Risk::Dangerous),
                // The types that an annotation is made of are hashed and compared.
                Judgement::Harmless if judged.returns_type() && self.level(instance.args) > Level::Named => {
                    Some(Risk::Unreviewed)
                }
                Judgement::Harmless => None,
            };
            return self.add(Some(callee.global), kind, risk);
        }
        let args = self.heap.items(instance.args).filter(|args| self.spend(args.len()));
        let Some(args) = args else {
            return self.add_unless(false, callee.global, kind);
        };
        if is_creation && self.may_create(callee.traits, args, instance.kwargs()) {
            return self.add(Some(callee.global), GlobalUseKind::Created, None);
        }
        let is_new = matches!(instance.construction, Construction::NewObj | Construction::NewObjEx);
        let is_judged = !is_new && self.may_call(callee, args);
        self.add_unless(is_judged, callee.global, kind);
    }

    fn judge_changes(&mut self, id: ObjectId, instance: &Instance) {
        if instance.state().is_empty() && instance.appends().is_empty() && instance.items().is_empty() {
            return;
        }
        for (key, _) in instance.items() {
            self.judge_key(*key);
        }
        let (traits, global) = match self.value(id, instance) {
            Value::Plain | Value::Other => return,
            Value::OtherData { global } => {
                let fits = instance.state().iter().all(|state| self.is_state_of_other_data(*state));
                self.add_unless(fits, global, GlobalUseKind::StateDict);
                if !instance.appends().is_empty() {
                    self.add_unless(false, global, GlobalUseKind::Appended);
                }
                if !instance.items().is_empty() {
                    self.add_unless(false, global, GlobalUseKind::ItemsSet);
                }
                return;
            }
            Value::Unknown(global) => {
                return self.add(global, GlobalUseKind::ResultChanged, Some(Risk::Unreviewed));
            }
            Value::Partial { global } => {
                let fits =
                    instance.state().iter().all(|state| states::is_state_of_partial(self.heap, *state));
                let fits = fits && instance.appends().is_empty() && instance.items().is_empty();
                return self.add_unless(fits, global, GlobalUseKind::StateHook);
            }
            Value::Instance { traits, global } => (traits, global),
        };
        // `Tensor.__setstate__` calls `self.set_`, which a function can have replaced that made the tensor.
        let is_replaced = self.attributes_in_args(instance).iter().any(|state| self.sets_callable(*state));
        for state in instance.state() {
            let (kind, is_judged) = self.judge_state(traits, id, *state);
            self.add_unless(is_judged && !is_replaced, global, kind);
        }
        if !instance.appends().is_empty() {
            // A state can replace the method that appends.
            let replaced =
                |name: &str| instance.state().iter().any(|state| states::sets(self.heap, *state, name));
            let is_judged =
                traits.has(ClassTraits::APPENDED) && !["extend", "append", "add"].into_iter().any(replaced);
            self.add_unless(is_judged, global, GlobalUseKind::Appended);
        }
        if !instance.items().is_empty() {
            let is_judged = traits.has(ClassTraits::ITEMS_SET)
                || (traits.has(ClassTraits::DATA_ITEMS_SET)
                    // A state can replace the methods that `__setitem__` calls.
                    && instance.state().iter().all(|state| self.level(*state) == Level::Data)
                    && instance.items().iter().all(|(key, value)| {
                        self.level(*key) == Level::Data && self.level(*value) == Level::Data
                    }));
            self.add_unless(is_judged, global, GlobalUseKind::ItemsSet);
        }
    }

    /// Returns true for the state of an instance of a listed class of another package. `__setstate__` of omegaconf looks up
    /// attributes of `_metadata`, and joblib computes with what describes an array.
    fn is_state_of_other_data(&mut self, state: ObjectId) -> bool {
        let heap = self.heap;
        if !self.spend(states::entry_count(heap, state)) {
            return false;
        }
        let Some(entries) = heap.entries(state) else { return heap.is_none(state) };
        if states::has_special_name(heap, state) {
            return false;
        }
        entries.iter().all(|(key, value)| match heap.get(*value) {
            _ if heap.text(*key).is_some_and(|key| TYPES_OF_OMEGACONF.contains(&&*key)) => {
                judged_calls::is_annotation(heap, *value)
            }
            // An attribute of a config would be looked up, and its interpolations resolved.
            Object::Instance(instance) if heap.text(*key).is_some_and(|key| key == "_metadata") => {
                match self.value(*value, instance) {
                    Value::OtherData { global } => {
                        self.globals.get(global).is_some_and(|facts| facts.name.ends_with("Metadata"))
                    }
                    _ => false,
                }
            }
            Object::Instance(instance) => {
                matches!(self.value(*value, instance), Value::OtherData { .. } | Value::Other)
                    || self.level(*value) <= Level::Named
            }
            _ => !states::is_function(heap, *value) || heap.global(*value).is_some(),
        })
    }

    /// Returns how BUILD uses the class of an instance, and true if the class was judged for it.
    fn judge_state(&mut self, traits: ClassTraits, id: ObjectId, state: ObjectId) -> (GlobalUseKind, bool) {
        let heap = self.heap;
        if !self.spend(states::entry_count(heap, state)) {
            return (GlobalUseKind::StateHook, false);
        }
        let has_hook = states::sets_special_method(heap, state);
        if traits.has(ClassTraits::HOOK_FOR_ANY) {
            let Some((_, slots)) = states::dicts_of_state(heap, state) else {
                // `dict.update` iterates over the items of a list.
                let is_stored = traits.has(ClassTraits::HOOK_FOR_ITEMS)
                    && matches!(heap.get(state), Object::Tuple(_) | Object::List(_));
                let is_named = self.level(state) <= Level::Named && !self.may_be_called(state);
                return (GlobalUseKind::StateHook, is_stored || is_named);
            };
            // Versions without the hook set attributes.
            let is_special = slots.is_some_and(|slots| states::has_special_name(heap, slots));
            return (GlobalUseKind::StateHook, !has_hook && !is_special);
        }
        let is_data = |id: ObjectId| {
            heap.instance(id).is_none_or(|instance| match self.value(id, instance) {
                Value::Instance { traits, .. } => traits.has(ClassTraits::DATA),
                _ => false,
            })
        };
        if traits.has(ClassTraits::HOOK_OF_MODULE) {
            let is_judged = !has_hook && states::is_state_of_module(heap, state, |id| self.is_searchable(id));
            return (GlobalUseKind::StateHook, is_judged);
        }
        if traits.has(ClassTraits::HOOK_OF_HANDLE) {
            return (GlobalUseKind::StateHook, states::is_state_of_handle(heap, state, is_data));
        }
        if traits.has(ClassTraits::HOOK_OF_GENERATOR) {
            let is_judged = states::is_state_of_generator(heap, state) && self.level(state) == Level::Data;
            return (GlobalUseKind::StateHook, is_judged);
        }
        if traits.has(ClassTraits::HOOK_OF_ARRAY) {
            let parts = heap.items(state).unwrap_or_default();
            let (objects, rest) =
                parts.split_last().map_or((None, parts), |(last, rest)| (Some(*last), rest));
            // Only an array of plain objects stores what is in a list; fields convert it.
            let is_list = objects.is_some_and(|last| matches!(heap.get(last), Object::List(_)))
                && dtypes::is_array_of_objects(heap, state);
            let data = rest.iter().copied().chain(objects.filter(|_| !is_list));
            return (GlobalUseKind::StateHook, data.into_iter().all(|part| self.level(part) == Level::Data));
        }
        if traits.has(ClassTraits::HOOK_OF_DTYPE) {
            let is_judged = dtypes::is_state_of_dtype(heap, id, state) && self.level(state) <= Level::Named;
            return (GlobalUseKind::StateHook, is_judged);
        }
        if traits.has(ClassTraits::HOOK_FOR_DATA) {
            return (GlobalUseKind::StateHook, !has_hook && self.level(state) == Level::Data);
        }
        let Some((_, slots)) = states::dicts_of_state(heap, state) else {
            return (GlobalUseKind::StateHook, false);
        };
        if let Some(slots) = slots {
            let is_judged = traits.has(ClassTraits::STATE_SLOTS) && traits.has(ClassTraits::STATE_DICT);
            return (
                GlobalUseKind::StateSlots,
                is_judged && !has_hook && !states::has_special_name(heap, slots),
            );
        }
        (GlobalUseKind::StateDict, traits.has(ClassTraits::STATE_DICT) && !has_hook)
    }

    /// Returns true if `in` compares only data: a dict compares its keys, which are judged, and a list everything in it.
    fn is_searchable(&mut self, id: ObjectId) -> bool {
        let heap = self.heap;
        match heap.get(id) {
            Object::Dict(_) => true,
            Object::Instance(instance) => match self.value(id, instance) {
                Value::Instance { traits, .. } => {
                    traits.has(ClassTraits::DATA)
                        && instance.appends().is_empty()
                        && (instance.state().is_empty() || traits.has(ClassTraits::STATE_DICT))
                        && heap
                            .items(instance.args)
                            .is_some_and(|args| args.iter().all(|arg| self.fits(ArgumentRule::Pairs, *arg)))
                }
                _ => false,
            },
            _ => self.level(id) == Level::Data,
        }
    }

    /// Judges the `__hash__` and `__eq__` of a key.
    fn judge_key(&mut self, key: ObjectId) {
        let heap = self.heap;
        let mut waiting = vec![key];
        while let Some(next) = waiting.pop() {
            let is_container = matches!(heap.get(next), Object::Tuple(_) | Object::FrozenSet(_));
            let instance = heap.instance(next);
            if (!is_container && instance.is_none()) || !self.hashed.insert(next) {
                continue;
            }
            waiting.extend(heap.items(next).unwrap_or_default());
            let Some(instance) = instance else { continue };
            match self.value(next, instance) {
                Value::Plain | Value::Other | Value::Partial { .. } => {}
                Value::Unknown(Some(global)) if self.is_found(global) => {}
                Value::Unknown(global) => self.add(global, GlobalUseKind::Hashed, Some(Risk::Unreviewed)),
                Value::OtherData { global } => self.add_unless(false, global, GlobalUseKind::Hashed),
                Value::Instance { traits, global } => {
                    let is_judged = traits.has(ClassTraits::HASHED)
                        || (traits.has(ClassTraits::HASHED_BY_CONTENT) && self.has_plain_content(instance));
                    self.add_unless(is_judged, global, GlobalUseKind::Hashed);
                }
            }
        }
    }

    fn has_plain_content(&mut self, instance: &Instance) -> bool {
        let items = instance.items().iter().flat_map(|(key, value)| [*key, *value]);
        let parts = [instance.args].into_iter().chain(instance.kwargs()).chain(items);
        let parts: Vec<ObjectId> =
            parts.chain(instance.appends().iter().copied()).chain(instance.state().iter().copied()).collect();
        parts.into_iter().all(|part| self.level(part) <= Level::Named)
    }

    /// `torch.load` reads, hashes and prints what a persistent id is made of.
    fn judge_persistent_id(&mut self, pid: ObjectId) {
        let heap = self.heap;
        if self.level(pid) <= Level::Named {
            return;
        }
        let mut waiting = vec![pid];
        let mut seen = HashSet::new();
        while let Some(next) = waiting.pop() {
            if !seen.insert(next) {
                continue;
            }
            waiting.extend(heap.items(next).unwrap_or_default());
            let entries = heap.entries(next).unwrap_or_default();
            waiting.extend(entries.iter().flat_map(|(key, value)| [*key, *value]));
            let Some(instance) = heap.instance(next) else { continue };
            let global = self.callee(instance.callable).map(|found| found.global);
            let global = global.or_else(|| self.returned_by(next));
            if self.level(next) > Level::Named {
                self.add(global, GlobalUseKind::Read, Some(Risk::Unreviewed));
            }
        }
    }

    /// A function whose risk depends on its arguments may be called out of sight if it is passed on.
    fn judge_passed_on(&mut self, id: ObjectId) {
        let is_judged = |part: &ObjectId| {
            let index = self.index_of(*part)?;
            self.globals.get(index)?.callee.judged.filter(|judged| *judged != JudgedGlobal::Type)?;
            Some(index)
        };
        let found: Vec<usize> =
            judged_calls::referenced_objects(self.heap, id).filter_map(|part| is_judged(&part)).collect();
        for index in found {
            self.add(Some(index), GlobalUseKind::Named, Some(Risk::Dangerous));
        }
    }
}

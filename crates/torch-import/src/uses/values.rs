//! What is known about the callables and instances of a pickle: the class of an object is known only from the call that
//! makes it.

use pickle_vm::{Construction, Instance, Object, ObjectId};

use super::analysis::Analysis;
use super::arguments::rules_of;
use super::as_written::WrittenCall;
use super::callee::{Callee, NAME_LEN_MAX, Package, callee_named};
use super::kind::GlobalUseKind;
use super::level::Reading;
use super::{dtypes, states};
use crate::encoded::LOAD_FROM_BYTES;
use crate::judged_calls::JudgedGlobal;
use crate::lists::{ArgumentRule, CallResult, ClassTraits};
use crate::persistent::class_of_persistent_id;
use crate::risk::is_array_wrapper;

/// Maximum depth to which the function is searched that returned what is called or changed.
const DEPTH_MAX: usize = 8;

/// What is known about an instance.
#[derive(Clone, Copy)]
pub(super) enum Value {
    /// Number, text or bytes.
    Plain,
    /// Instance of a class of another package.
    Other,
    /// Instance of a class of another package that is listed as data.
    OtherData {
        global: usize,
    },
    Instance {
        traits: ClassTraits,
        global: usize,
    },
    /// `functools.partial`, which has a state of its own kind.
    Partial {
        global: usize,
    },
    /// Result of a call whose class is not known; the index of the global that returned it.
    Unknown(Option<usize>),
}

impl Analysis<'_, '_> {
    /// Returns the class or function that an object is; `None` if a call returned it.
    pub(super) fn callee(&self, id: ObjectId) -> Option<Callee> {
        match self.heap.get(id) {
            Object::Global(_) => Some(self.globals.get(self.index_of(id)?)?.callee),
            // A class inside of a class, in protocols before 4: `getattr(Outer, 'Inner')`.
            Object::Instance(instance) => {
                let (module, name) = self.heap.global(instance.callable)?;
                match JudgedGlobal::from_names(module, name)? {
                    JudgedGlobal::Partial => return self.callee_of_partial(instance),
                    JudgedGlobal::Getattr => {}
                    _ => return None,
                }
                let &[target, attribute] = self.heap.items(instance.args)? else { return None };
                let (module, name) = self.heap.global(target)?;
                let owner = self.callee(target)?;
                if owner.package != Package::Core {
                    return Some(owner);
                }
                let attribute = self.heap.text(attribute).filter(|text| text.len() <= NAME_LEN_MAX)?;
                let found = callee_named(module, &[name, ".", &attribute].concat(), owner.global);
                (!found.traits.is_empty() || found.reviewed.is_some()).then_some(found)
            }
            Object::Persistent(pid) => self.callee(class_of_persistent_id(self.heap, *pid)?),
            _ => None,
        }
    }

    /// Returns the function of another package that a `partial` calls.
    pub(super) fn callee_of_partial(&self, instance: &Instance) -> Option<Callee> {
        let function = |id: ObjectId| self.heap.global(*self.heap.items(id)?.first()?);
        let names = function(instance.args)?;
        let is_same = instance.state().iter().all(|state| function(*state) == Some(names));
        let found = self.callee(*self.heap.items(instance.args)?.first()?)?;
        (is_same && found.package != Package::Core).then_some(found)
    }

    /// Returns the global whose call, or whose result's call, returned an object.
    pub(super) fn returned_by(&self, id: ObjectId) -> Option<usize> {
        let mut next = id;
        for _ in 0..DEPTH_MAX {
            if let Some(callee) = self.callee(next) {
                return Some(callee.global);
            }
            next = self.heap.instance(next)?.callable;
        }
        None
    }

    pub(super) fn value(&self, id: ObjectId, instance: &Instance) -> Value {
        if let Some(WrittenCall { callee, .. }) = self.written_call(instance) {
            return Value::Instance { traits: callee.traits, global: callee.global };
        }
        let Some(callee) = self.callee(instance.callable) else {
            return Value::Unknown(self.returned_by(id));
        };
        match callee.package {
            Package::Core => {}
            Package::Other => return Value::Other,
            Package::OtherData => return Value::OtherData { global: callee.global },
        }
        let traits = callee.traits;
        let itself = Value::Instance { traits, global: callee.global };
        if self.creates(instance)
            && callee.judged.is_none()
            && callee.reviewed.is_none_or(|found| !found.traits.is_empty())
        {
            return itself;
        }
        // An annotation, such as `typing.Optional[int]`.
        if callee.judged.is_some_and(JudgedGlobal::returns_type) {
            let traits = ClassTraits::DATA.with(ClassTraits::HASHED_BY_CONTENT);
            return Value::Instance { traits, global: callee.global };
        }
        if callee.judged == Some(JudgedGlobal::Partial) {
            return Value::Partial { global: callee.global };
        }
        match callee.reviewed.filter(|found| found.arguments.is_some()).map(|found| &found.result) {
            Some(CallResult::Plain) => Value::Plain,
            Some(CallResult::Itself) => itself,
            Some(CallResult::With(traits)) => Value::Instance { traits: *traits, global: callee.global },
            Some(CallResult::OfArgument(number)) => {
                let class = self.heap.items(instance.args).and_then(|args| args.get(*number));
                match class.and_then(|class| self.callee(*class)) {
                    Some(class) if class.package == Package::Other => Value::Other,
                    Some(class) if class.package == Package::OtherData => {
                        Value::OtherData { global: class.global }
                    }
                    Some(class) => Value::Instance { traits: class.traits, global: class.global },
                    None => Value::Unknown(Some(callee.global)),
                }
            }
            None if traits.has(ClassTraits::ENUMERATION) || traits.has(ClassTraits::EXCEPTION) => itself,
            Some(CallResult::Unknown) | None => Value::Unknown(Some(callee.global)),
        }
    }

    /// Returns true if the instruction makes an instance without a call of `__init__`.
    pub(super) fn creates(&self, instance: &Instance) -> bool {
        let has_args = self.heap.items(instance.args).is_none_or(|args| !args.is_empty());
        match instance.construction {
            Construction::NewObj | Construction::NewObjEx => true,
            Construction::Inst | Construction::Obj => !has_args,
            Construction::Reduce => false,
        }
    }

    /// Judges what a function may run that reads an instance.
    pub(super) fn reading(&self, id: ObjectId) -> Reading {
        if let Some(pid) = self.heap.persistent(id) {
            return if states::is_storage_id(self.heap, pid) { Reading::Opaque } else { Reading::Named };
        }
        if matches!(self.heap.get(id), Object::Global(_)) {
            let facts = self.index_of(id).and_then(|index| self.globals.get(index));
            return if facts.is_some_and(|facts| facts.is_constant) {
                Reading::Opaque
            } else {
                Reading::Named
            };
        }
        let Some(instance) = self.heap.instance(id) else { return Reading::Opaque };
        match self.value(id, instance) {
            Value::Plain | Value::Other => Reading::Opaque,
            Value::Instance { traits, .. } if traits.has(ClassTraits::ENUMERATION) => Reading::Opaque,
            Value::Instance { traits, .. } if traits.has(ClassTraits::DATA) => self.content(traits, instance),
            // What an unreviewed call returned is a finding already.
            Value::Unknown(Some(global)) if self.is_found(global) => Reading::Opaque,
            Value::OtherData { .. } if self.is_wrapper(instance) => match self.content_of_wrapper(instance) {
                Some(parts) => Reading::Content(parts),
                None => Reading::Active,
            },
            // Its own methods run if a function reads it.
            Value::OtherData { .. } | Value::Instance { .. } | Value::Partial { .. } | Value::Unknown(_) => {
                Reading::Active
            }
        }
    }

    /// Returns what an instance that is data is made of: the arguments of its call without those that the call's rules
    /// have judged, and what the pickle adds to it.
    pub(super) fn content(&self, traits: ClassTraits, instance: &Instance) -> Reading {
        let mut parts = Vec::new();
        if self.is_annotation(instance) {
            // A class or function, which a call of the annotation calls.
            parts.push(instance.callable);
        }
        for (at, arg) in self.heap.items(instance.args).unwrap_or_default().iter().enumerate() {
            let loaded = self.heap.instance(*arg).and_then(|inner| self.heap.global(inner.callable));
            match self.callee(*arg).filter(|_| self.heap.instance(*arg).is_none()) {
                // `defaultdict` calls it for a key that it lacks.
                Some(factory) if self.is_defaultdict(instance) => {
                    if factory.package == Package::Core && factory.reviewed.is_none() {
                        return Reading::Active;
                    }
                }
                None if at == 0 && self.is_defaultdict(instance) && self.may_be_called(*arg) => {
                    return Reading::Active;
                }
                Some(_) => {}
                None if loaded == Some(LOAD_FROM_BYTES) => {}
                None => parts.push(*arg),
            }
        }
        // An attribute that is a function replaces a method of the same name, and readers look for `__array_interface__`
        // and the like among the attributes.
        let states = if traits.has(ClassTraits::STATE_DICT) { instance.state() } else { &[] };
        let mut states = states.iter().copied().chain(self.attributes_in_args(instance));
        if states.any(|state| self.sets_callable(state) || states::has_special_key(self.heap, state)) {
            return Reading::Active;
        }
        parts.extend(instance.kwargs());
        parts.extend(instance.items().iter().flat_map(|(key, value)| [*key, *value]));
        parts.extend(instance.appends().iter().chain(instance.state()));
        Reading::Content(parts)
    }

    /// Returns true for a class or function, or an annotation of one such as `list[int]`, whose call is one of the class.
    pub(super) fn may_be_called(&self, id: ObjectId) -> bool {
        states::is_function(self.heap, id)
            || self.heap.instance(id).is_some_and(|instance| self.is_annotation(instance))
    }

    /// Returns true if a state has an attribute that may be called.
    pub(super) fn sets_callable(&self, state: ObjectId) -> bool {
        states::has_value(self.heap, state, |value| self.may_be_called(value))
    }

    /// Returns true for what `operator.getitem(typing.Optional, int)` or `types.GenericAlias` makes.
    fn is_annotation(&self, instance: &Instance) -> bool {
        let Some(callee) = self.callee(instance.callable) else { return false };
        callee.judged.is_some_and(JudgedGlobal::returns_type)
            || self.globals.get(callee.global).is_some_and(|facts| facts.is_generic_alias)
    }

    /// Returns the states that a reviewed function gives to what it returns, by itself or by the function that it calls.
    pub(super) fn attributes_in_args(&self, instance: &Instance) -> Vec<ObjectId> {
        let mut found = Vec::new();
        let mut next = self.callee(instance.callable).map(|callee| (callee, instance.args));
        while let Some((callee, args)) = next.take() {
            let rules = rules_of(callee).unwrap_or_default();
            let args = self.heap.items(args).unwrap_or_default();
            let arg_for = |rule| args.get(rules.iter().position(|found| *found == rule)?).copied();
            if let Some(first) = rules.iter().position(|rule| *rule == ArgumentRule::Attributes) {
                found.extend(args.iter().skip(first).copied());
            }
            // The rules of a function that is applied have no function.
            next = arg_for(ArgumentRule::Function)
                .and_then(|function| self.callee(function))
                .zip(arg_for(ArgumentRule::Applied));
        }
        found
    }

    fn is_wrapper(&self, instance: &Instance) -> bool {
        self.heap.global(instance.callable).is_some_and(is_array_wrapper)
    }

    /// Returns what joblib's description of an array is made of, in whose place joblib puts the array; `None` if the array may hold
    /// objects, or if an attribute is not joblib's.
    fn content_of_wrapper(&self, instance: &Instance) -> Option<Vec<ObjectId>> {
        let &[state] = instance.state() else { return None };
        let mut parts = Vec::new();
        for (key, value) in self.heap.entries(state)? {
            match &*self.heap.text(*key)? {
                "subclass" if self.heap.global(*value) == Some(("numpy", "ndarray")) => {}
                "dtype" if dtypes::holds_no_objects(self.heap, *value) => parts.push(*value),
                "shape" | "order" | "allow_mmap" | "numpy_array_alignment_bytes" => parts.push(*value),
                _ => return None,
            }
        }
        Some(parts)
    }

    pub(super) fn is_defaultdict(&self, instance: &Instance) -> bool {
        self.heap.global(instance.callable).is_some_and(|(_, name)| name == "defaultdict")
    }

    pub(super) fn is_found(&self, global: usize) -> bool {
        self.globals.get(global).is_some_and(|facts| facts.found.findings.contains(GlobalUseKind::Called))
    }
}

//! Judges the globals whose risk depends on their use in a pickle.
//!
//! Ordinary files name `getattr` for `torch.relu` and for nested classes, `functools.partial` for a function with
//! arguments, `operator.getitem` for `typing.Optional[int]`, `functools.reduce` for `int | str`, and `type` for the
//! type of None. With other arguments, the same functions reach any object, so each call is judged by its arguments. A
//! use that cannot be followed is dangerous.
//!
//! Facts: `__reduce__` of these objects and `save_type` in `Lib/pickle.py` of CPython 3.6 to 3.13.

use std::collections::HashMap;

use pickle_vm::{Heap, Instance, Object, ObjectId, RecordedChanges};

use crate::{Risk, lists};

/// The verdict on a call of a judged global.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judgement {
    /// Call with an arbitrary effect.
    Dangerous,
    /// Call whose result is as harmless as its arguments, unless the pickle calls the result.
    HarmlessIfUncalled,
    /// Call whose result is harmless.
    Harmless,
}

type JudgeFn = fn(&Heap<'_>, &Instance) -> Judgement;

/// Globals that are judged by their calls, with the function that judges a call.
const JUDGED: [(&str, &str, JudgeFn); 8] = [
    ("builtins", "getattr", getattr),
    ("builtins", "type", type_of),
    ("functools", "partial", partial),
    ("functools", "reduce", reduce),
    ("operator", "getitem", getitem),
    ("operator", "itemgetter", itemgetter),
    ("numpy.core", "_ufunc_reconstruct", ufunc),
    ("numpy._core", "_ufunc_reconstruct", ufunc),
];

/// Index of `type` in [`JUDGED`]. Annotations such as `type[int]` pass it on, and as a value it is an ordinary class.
const TYPE: usize = 1;

/// For each judged global, true if the pickle uses it only in harmless ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgedCalls {
    harmless: [bool; JUDGED.len()],
}

impl JudgedCalls {
    pub(crate) fn in_heap(heap: &Heap<'_>) -> Self {
        let mut found = Self { harmless: [true; JUDGED.len()] };
        let place = |id: ObjectId| heap.global(id).and_then(|(module, name)| judged_index(module, name));
        let judged: HashMap<ObjectId, usize> = heap.ids().filter_map(|id| Some((id, place(id)?))).collect();
        if judged.is_empty() {
            return found;
        }
        let mut results: HashMap<ObjectId, usize> = HashMap::new();
        for id in heap.ids() {
            let called =
                heap.instance(id).and_then(|instance| Some((*judged.get(&instance.callable)?, instance)));
            if let Some((place, instance)) = called {
                let judge = JUDGED.get(place).map(|(_, _, judge)| judge);
                match judge.map_or(Judgement::Dangerous, |judge| judge(heap, instance)) {
                    Judgement::Dangerous => found.mark_dangerous(place),
                    Judgement::HarmlessIfUncalled => drop(results.insert(id, place)),
                    Judgement::Harmless => {}
                }
            }
            // A global that is passed on may be called out of sight.
            let passed = referenced_objects(heap, id).filter_map(|part| judged.get(&part));
            passed.filter(|place| **place != TYPE).for_each(|place| found.mark_dangerous(*place));
        }
        if !results.is_empty() {
            let callables = heap.ids().filter_map(|id| Some(heap.instance(id)?.callable));
            callables
                .filter_map(|callable| results.get(&callable))
                .for_each(|place| found.mark_dangerous(*place));
        }
        found
    }

    fn mark_dangerous(&mut self, place: usize) {
        if let Some(harmless) = self.harmless.get_mut(place) {
            *harmless = false;
        }
    }

    /// Returns the risk of a judged global in this pickle; `None` for all other globals.
    pub(crate) fn risk(self, module: &str, name: &str) -> Option<Risk> {
        let harmless = self.harmless.get(judged_index(module, name)?)?;
        Some(if *harmless { Risk::Known } else { Risk::Dangerous })
    }
}

/// Returns the index of a global in [`JUDGED`].
fn judged_index(module: &str, name: &str) -> Option<usize> {
    let is = |names: (&str, &str)| JUDGED.iter().position(|(module, name, _)| (*module, *name) == names);
    is((module, name)).or_else(|| is(lists::resolve_alias(module, name)?))
}

/// Returns the objects that an object refers to, except its callable.
fn referenced_objects<'h>(heap: &'h Heap<'_>, id: ObjectId) -> impl Iterator<Item = ObjectId> + 'h {
    let recorded = heap.recorded(id);
    let entries = heap.entries(id).into_iter().chain(recorded.map(RecordedChanges::items)).flatten();
    let items = heap.items(id).into_iter().chain(recorded.map(RecordedChanges::appends));
    let items = items.chain(recorded.map(RecordedChanges::state)).flatten().copied();
    entries.flat_map(|(key, value)| [*key, *value]).chain(items)
}

fn call_args<'h>(heap: &'h Heap<'_>, instance: &Instance) -> &'h [ObjectId] {
    heap.items(instance.args).unwrap_or_default()
}

/// Judges `getattr(target, name)`. `getattr(torch._C._VariableFunctionsClass, 'relu')` is as risky as the dotted name.
/// The attribute of a plain value is a method such as `str.join`, which only computes.
fn getattr(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let &[target, attribute] = call_args(heap, instance) else { return Judgement::Dangerous };
    let Some(attribute) = heap.text(attribute) else { return Judgement::Dangerous };
    let is_part = !attribute.is_empty() && !attribute.contains('.');
    let risk = |(module, name): (&str, &str)| {
        let (module, name) = lists::resolve_alias(module, name).unwrap_or((module, name));
        Risk::from_names(module, &format!("{name}.{attribute}"))
    };
    if let Some(names) = heap.global(target) {
        return match risk(names) {
            Risk::Known | Risk::Unknown if is_part => Judgement::Harmless,
            _ => Judgement::Dangerous,
        };
    }
    // The target is an instance, and the result a bound method.
    if let Some(names) = instance_class(heap, target) {
        return match risk(names) {
            Risk::Known | Risk::Unknown if is_part => Judgement::HarmlessIfUncalled,
            _ => Judgement::Dangerous,
        };
    }
    let is_method = lists::is_harmless_core_name("builtins", &format!("str.{attribute}"))
        || lists::is_harmless_core_name("builtins", &format!("int.{attribute}"));
    if is_plain(heap, target) && is_method { Judgement::HarmlessIfUncalled } else { Judgement::Dangerous }
}

/// Returns the class of an instance.
fn instance_class<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Option<(&'h str, &'h str)> {
    let instance = heap.instance(id)?;
    match heap.global(instance.callable)? {
        ("copyreg" | "copy_reg", _) => heap.global(*call_args(heap, instance).first()?),
        names => Some(names),
    }
}

/// Judges `type(value)`. A pickle names the type of None, which has no name of its own, as `type(None)`.
fn type_of(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let &[value] = call_args(heap, instance) else { return Judgement::Dangerous };
    let is_constant = matches!(heap.global(value), Some((_, "Ellipsis" | "NotImplemented")));
    if heap.is_none(value) || is_constant { Judgement::Harmless } else { Judgement::Dangerous }
}

/// Judges `partial(function, …)`, which is as risky as the function; the function is judged as well.
fn partial(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let Some(function) = call_args(heap, instance).first() else { return Judgement::Dangerous };
    match heap.global(*function) {
        Some((module, name)) if Risk::from_names(module, name) != Risk::Dangerous => Judgement::Harmless,
        // An object, such as a module, or a function named by `getattr`.
        None if heap.instance(*function).is_some() => Judgement::HarmlessIfUncalled,
        _ => Judgement::Dangerous,
    }
}

/// Judges `reduce(function, items)`; `reduce(or_, (int, str))` is `int | str`.
fn reduce(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let &[function, _] = call_args(heap, instance) else { return Judgement::Dangerous };
    let names = heap
        .global(function)
        .map(|(module, name)| lists::resolve_alias(module, name).unwrap_or((module, name)));
    if names == Some(("operator", "or_")) { Judgement::HarmlessIfUncalled } else { Judgement::Dangerous }
}

/// Judges `getitem(class, item)`, such as `getitem(typing.Union, (int, str))`.
fn getitem(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let &[class, _] = call_args(heap, instance) else { return Judgement::Dangerous };
    let is_harmless =
        heap.global(class).is_some_and(|(module, name)| Risk::from_names(module, name) != Risk::Dangerous);
    if is_harmless { Judgement::HarmlessIfUncalled } else { Judgement::Dangerous }
}

/// Judges `itemgetter(keys…)`, which only stores plain keys.
fn itemgetter(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let keys = call_args(heap, instance);
    let is_harmless = !keys.is_empty() && keys.iter().all(|key| is_plain(heap, *key));
    if is_harmless { Judgement::HarmlessIfUncalled } else { Judgement::Dangerous }
}

/// Judges `_ufunc_reconstruct('numpy', 'log1p')`, which imports the module and is as risky as the name.
fn ufunc(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let &[module, name] = call_args(heap, instance) else { return Judgement::Dangerous };
    let (Some(module), Some(name)) = (heap.text(module), heap.text(name)) else {
        return Judgement::Dangerous;
    };
    if Risk::from_names(&module, &name) == Risk::Known { Judgement::Harmless } else { Judgement::Dangerous }
}

/// Returns true if an object is a number, text, bytes or None.
fn is_plain(heap: &Heap<'_>, id: ObjectId) -> bool {
    matches!(
        heap.get(id),
        Object::None
            | Object::Bool(_)
            | Object::Int(_)
            | Object::Long(_)
            | Object::Float(_)
            | Object::Text(_)
            | Object::String(_)
            | Object::Bytes(_)
    )
}

//! Judges the globals whose risk depends on their use in a pickle.
//!
//! Ordinary files name `getattr` for `torch.relu` and for nested classes, `functools.partial` for a function with
//! arguments, `operator.getitem` for `typing.Optional[int]`, `functools.reduce` for `int | str`, and `type` for the
//! type of None. With other arguments, the same functions reach any object, so each call is judged by its arguments. A
//! use that cannot be followed is dangerous.
//!
//! Facts: `__reduce__` of these objects and `save_type` in `Lib/pickle.py` of CPython 3.6 to 3.13.

use pickle_vm::{Heap, Instance, Object, ObjectId, RecordedChanges};

use crate::persistent::class_of_persistent_id;
use crate::{Risk, lists, risk};

/// The verdict on a call of a judged global. A call of its result is judged elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Call with an arbitrary effect.
    Dangerous,
    /// Call whose result is as harmless as its arguments.
    Harmless,
}

/// Global that is judged by its calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum JudgedGlobal {
    Getattr,
    /// `type`. Annotations such as `type[int]` pass it on, and as a value it is an ordinary class.
    Type,
    Partial,
    Reduce,
    Getitem,
    Itemgetter,
    UfuncReconstruct,
}

impl JudgedGlobal {
    pub(crate) fn from_names(module: &str, name: &str) -> Option<Self> {
        let judged = |names: (&str, &str)| {
            Some(match names {
                ("builtins", "getattr") => Self::Getattr,
                ("builtins", "type") => Self::Type,
                ("functools", "partial") => Self::Partial,
                ("functools", "reduce") => Self::Reduce,
                ("operator", "getitem") => Self::Getitem,
                ("operator", "itemgetter") => Self::Itemgetter,
                ("numpy.core" | "numpy._core", "_ufunc_reconstruct") => Self::UfuncReconstruct,
                _ => return None,
            })
        };
        judged((module, name)).or_else(|| judged(lists::resolve_alias(module, name)?))
    }

    pub(crate) fn judge(self, heap: &Heap<'_>, instance: &Instance) -> Judgement {
        match self {
            Self::Getattr => getattr(heap, instance),
            Self::Type => judge_type(heap, instance),
            Self::Partial => partial(heap, instance),
            Self::Reduce => reduce(heap, instance),
            Self::Getitem => getitem(heap, instance),
            Self::Itemgetter => itemgetter(heap, instance),
            Self::UfuncReconstruct => ufunc(heap, instance),
        }
    }

    /// Returns true if the function returns a type or an annotation.
    pub(crate) fn returns_type(self) -> bool {
        matches!(self, Self::Type | Self::Reduce | Self::Getitem)
    }
}

/// Returns the objects that an object refers to, except its callable.
pub(crate) fn referenced_objects<'h>(
    heap: &'h Heap<'_>,
    id: ObjectId,
) -> impl Iterator<Item = ObjectId> + 'h {
    let recorded = heap.recorded_changes(id);
    let entries = heap.entries(id).into_iter().chain(recorded.map(RecordedChanges::items)).flatten();
    let items = heap.items(id).into_iter().chain(recorded.map(RecordedChanges::appends));
    let items = items.chain(recorded.map(RecordedChanges::state)).flatten().copied();
    entries.flat_map(|(key, value)| [*key, *value]).chain(items)
}

fn call_args<'h>(heap: &'h Heap<'_>, instance: &Instance) -> &'h [ObjectId] {
    heap.items(instance.args).unwrap_or_default()
}

/// Methods that lazy modules keep as hooks, which run when the module is used.
const METHODS_OF_LAZY_MODULES: [&str; 2] = ["_infer_parameters", "_lazy_load_hook"];

/// Judges `getattr(target, name)`. `getattr(torch._C._VariableFunctionsClass, 'relu')` is as risky as the dotted name.
/// The attribute of a plain value is a method such as `str.join`, which only computes.
fn getattr(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let &[target, attribute] = call_args(heap, instance) else { return Judgement::Dangerous };
    let Some(attribute) = heap.text(attribute) else { return Judgement::Dangerous };
    let is_part = !attribute.is_empty() && !attribute.contains('.');
    let attribute_risk = |(module, name): (&str, &str)| {
        let (module, name) = lists::resolve_alias(module, name).unwrap_or((module, name));
        Risk::from_names(module, &format!("{name}.{attribute}"))
    };
    // What a listed class of another package does with a name was not judged.
    let is_listed = |(module, name): (&str, &str)| risk::is_listed_data(module, name);
    if heap.global(target).or_else(|| instance_class(heap, target)).is_some_and(is_listed) {
        return Judgement::Dangerous;
    }
    if let Some(names) = heap.global(target) {
        // What a `partial` calls instead of NEWOBJ_EX; a call of any other kind is a finding.
        let is_written = |names: (&str, &str)| {
            lists::reviewed(names.0, names.1)
                .is_some_and(|found| found.traits.has(lists::ClassTraits::AS_WRITTEN))
        };
        if attribute == "__new__" && is_written(names) {
            return Judgement::Harmless;
        }
        return match attribute_risk(names) {
            Risk::Known | Risk::Unknown if is_part => Judgement::Harmless,
            _ => Judgement::Dangerous,
        };
    }
    // The target is an instance, and the result a bound method.
    if let Some(names) = instance_class(heap, target) {
        let is_lazy = names.0.starts_with("torch.nn.") && names.1.starts_with("Lazy");
        if is_lazy && METHODS_OF_LAZY_MODULES.contains(&&*attribute) {
            return Judgement::Harmless;
        }
        // A name that the class lacks, or a property, would run the class's own code.
        let (module, name) = lists::resolve_alias(names.0, names.1).unwrap_or(names);
        let is_listed = lists::is_harmless_core_name(module, &format!("{name}.{attribute}"));
        return match attribute_risk(names) {
            Risk::Known if is_part && is_listed => Judgement::Harmless,
            Risk::Unknown if is_part => Judgement::Harmless,
            _ => Judgement::Dangerous,
        };
    }
    let is_method = lists::is_harmless_core_name("builtins", &format!("str.{attribute}"))
        || lists::is_harmless_core_name("builtins", &format!("int.{attribute}"));
    if is_plain(heap, target) && is_method { Judgement::Harmless } else { Judgement::Dangerous }
}

fn instance_class<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Option<(&'h str, &'h str)> {
    let instance = heap.instance(id)?;
    match names_of(heap, instance.callable)? {
        ("copyreg" | "copy_reg", _) => names_of(heap, *call_args(heap, instance).first()?),
        names => Some(names),
    }
}

/// Returns the names of a global, or of the class that a persistent id stands for.
fn names_of<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Option<(&'h str, &'h str)> {
    match heap.persistent(id) {
        Some(pid) => heap.global(class_of_persistent_id(heap, pid)?),
        None => heap.global(id),
    }
}

/// Judges `type(value)`. A pickle names the type of None, which has no name of its own, as `type(None)`.
fn judge_type(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let &[value] = call_args(heap, instance) else { return Judgement::Dangerous };
    let is_constant = matches!(heap.global(value), Some((_, "Ellipsis" | "NotImplemented")));
    if heap.is_none(value) || is_constant { Judgement::Harmless } else { Judgement::Dangerous }
}

/// Judges `partial(function, …)`, which is as risky as the function; the function is judged as well.
fn partial(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let Some(function) = call_args(heap, instance).first() else { return Judgement::Dangerous };
    match names_of(heap, *function) {
        Some((module, name)) if Risk::from_names(module, name) != Risk::Dangerous => Judgement::Harmless,
        // An object, such as a module, or a function named by `getattr`.
        None if heap.instance(*function).is_some() => Judgement::Harmless,
        _ => Judgement::Dangerous,
    }
}

/// Judges `reduce(function, items)`; `reduce(or_, (int, str))` is `int | str`.
fn reduce(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let &[function, types] = call_args(heap, instance) else { return Judgement::Dangerous };
    let names = heap
        .global(function)
        .map(|(module, name)| lists::resolve_alias(module, name).unwrap_or((module, name)));
    let is_harmless = names == Some(("operator", "or_")) && is_annotation(heap, types);
    if is_harmless { Judgement::Harmless } else { Judgement::Dangerous }
}

/// Judges `getitem(class, item)`, such as `getitem(typing.Union, (int, str))`.
fn getitem(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let &[class, item] = call_args(heap, instance) else { return Judgement::Dangerous };
    let is_literal = heap.global(class).is_some_and(|(_, name)| name == "Literal");
    if !is_literal && !is_annotation(heap, item) {
        return Judgement::Dangerous;
    }
    let is_harmless = heap.global(class).is_some_and(|(module, name)| {
        let (module, name) = lists::resolve_alias(module, name).unwrap_or((module, name));
        let is_annotated =
            matches!(module, "typing" | "builtins" | "collections" | "collections.abc" | "types");
        let risk = Risk::from_names(module, name);
        let is_other = !lists::is_core_module(module) && risk == Risk::Unknown;
        is_other || (is_annotated && risk == Risk::Known)
    });
    if is_harmless { Judgement::Harmless } else { Judgement::Dangerous }
}

const ANNOTATION_PARTS_MAX: usize = 256;

/// Returns true if an object is made of types and numbers. `typing` compiles a text, which stands for the name of a type, so
/// that neither texts nor what may be one are parts of an annotation.
pub(crate) fn is_annotation(heap: &Heap<'_>, id: ObjectId) -> bool {
    let mut waiting = vec![id];
    let mut count = 0_usize;
    while let Some(next) = waiting.pop() {
        count = count.saturating_add(1);
        if count > ANNOTATION_PARTS_MAX {
            return false;
        }
        match heap.get(next) {
            Object::None | Object::Bool(_) | Object::Int(_) | Object::Global(_) => {}
            Object::Tuple(_) | Object::List(_) => {
                let items = heap.items(next).unwrap_or_default();
                if items.len() > ANNOTATION_PARTS_MAX {
                    return false;
                }
                waiting.extend(items);
            }
            Object::Instance(instance) => {
                let Some((module, name)) = heap.global(instance.callable) else { return false };
                let is_type = JudgedGlobal::from_names(module, name).is_some_and(|judged| {
                    // `getattr` names a class inside of a class.
                    judged.returns_type() || judged == JudgedGlobal::Getattr
                });
                let is_other =
                    !lists::is_core_module(module) && Risk::from_names(module, name) == Risk::Unknown;
                if !(is_type || is_other || (module, name) == ("types", "GenericAlias")) {
                    return false;
                }
            }
            _ => return false,
        }
    }
    true
}

/// Judges `itemgetter(keys…)`, which only stores plain keys.
fn itemgetter(heap: &Heap<'_>, instance: &Instance) -> Judgement {
    let keys = call_args(heap, instance);
    let is_harmless = !keys.is_empty() && keys.iter().all(|key| is_plain(heap, *key));
    if is_harmless { Judgement::Harmless } else { Judgement::Dangerous }
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
pub(crate) fn is_plain(heap: &Heap<'_>, id: ObjectId) -> bool {
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

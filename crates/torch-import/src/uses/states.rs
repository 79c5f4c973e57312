//! The shapes of the states that BUILD gives to an instance.
//!
//! Facts: `load_build` in `Modules/_pickle.c` and `partial_setstate` in `Modules/_functoolsmodule.c` of CPython 3.13;
//! `Module.__getattr__` of PyTorch 2.15; `arraydescr_setstate` and `array_setstate` of NumPy 2.4.

use pickle_vm::{Heap, Object, ObjectId};

/// Returns the dict of attributes and the dict of slots of a state; `None` if it is not a state for a class without
/// `__setstate__`.
pub(super) fn dicts_of_state(
    heap: &Heap<'_>,
    state: ObjectId,
) -> Option<(Option<ObjectId>, Option<ObjectId>)> {
    let dict_or_none = |id: ObjectId| match heap.get(id) {
        Object::Dict(_) => Some(Some(id)),
        Object::None => Some(None),
        _ => None,
    };
    match heap.get(state) {
        Object::Dict(_) => Some((Some(state), None)),
        Object::None => Some((None, None)),
        Object::Tuple(_) => match heap.items(state)? {
            &[dict, slots] => Some((dict_or_none(dict)?, dict_or_none(slots)?)),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn entry_count(heap: &Heap<'_>, state: ObjectId) -> usize {
    let parts = heap.items(state).unwrap_or_default().iter().take(2).copied().chain([state]);
    let lens = parts.filter_map(|part| heap.entries(part)).map(<[_]>::len);
    lens.fold(1, usize::saturating_add)
}

/// Returns true if a state has an attribute of the name, or of a name that a call computes, that is not a plain value.
pub(super) fn sets(heap: &Heap<'_>, state: ObjectId, name: &str) -> bool {
    sets_any(heap, state, |key| key == name)
}

/// Returns true if a state has an attribute that replaces a special method: BUILD looks for `__setstate__`, and code in Python
/// may call others, such as `self.__eq__(other)`.
pub(super) fn sets_special_method(heap: &Heap<'_>, state: ObjectId) -> bool {
    sets_any(heap, state, |key| key.starts_with("__") && key.ends_with("__") && key != "__orig_class__")
}

fn sets_any(heap: &Heap<'_>, state: ObjectId, is_name: impl Fn(&str) -> bool) -> bool {
    let parts = heap.items(state).unwrap_or_default().iter().take(2).copied().chain([state]);
    let mut entries = parts.filter_map(|part| heap.entries(part)).flatten();
    entries.any(|(key, value)| {
        (is_computed(heap, *key) || heap.text(*key).is_some_and(|key| is_name(&key)))
            && matches!(
                heap.get(*value),
                Object::Global(_) | Object::Instance(_) | Object::Persistent(_) | Object::Extension(_)
            )
    })
}

/// Returns true if only the interpreter knows a key, because a call returns it.
fn is_computed(heap: &Heap<'_>, key: ObjectId) -> bool {
    matches!(heap.get(key), Object::Instance(_) | Object::Persistent(_) | Object::Extension(_))
}

/// Returns true if the dict of a state, or one of its two dicts, has a value for which `is_value` holds.
pub(super) fn has_value(heap: &Heap<'_>, state: ObjectId, is_value: impl Fn(ObjectId) -> bool) -> bool {
    let parts = heap.items(state).unwrap_or_default().iter().take(2).copied().chain([state]);
    let mut entries = parts.filter_map(|part| heap.entries(part)).flatten();
    entries.any(|(_, value)| is_value(*value))
}

/// Returns true if an object is a global, or if a persistent id may stand for one.
pub(super) fn is_function(heap: &Heap<'_>, id: ObjectId) -> bool {
    match heap.get(id) {
        Object::Global(_) | Object::Extension(_) => true,
        Object::Persistent(pid) => !is_storage_id(heap, *pid),
        _ => false,
    }
}

/// Returns true if a persistent id stands for a storage, not for the class of a module.
pub(super) fn is_storage_id(heap: &Heap<'_>, pid: ObjectId) -> bool {
    match (heap.get(pid), heap.items(pid)) {
        (Object::Tuple(_), Some([kind, ..])) => heap.text(*kind).is_some_and(|kind| kind == "storage"),
        (Object::Tuple(_), _) => false,
        _ => true,
    }
}

/// Returns true if the dict of a state, or one of its two dicts, has a name such as `__array__`, or one that is not a text.
pub(super) fn has_special_key(heap: &Heap<'_>, state: ObjectId) -> bool {
    let mut parts = heap.items(state).unwrap_or_default().iter().take(2).copied().chain([state]);
    parts.any(|part| has_special_name(heap, part))
}

/// Returns true if a dict of slots has a name such as `__class__`, whose setter is the interpreter's.
pub(super) fn has_special_name(heap: &Heap<'_>, slots: ObjectId) -> bool {
    let mut entries = heap.entries(slots).unwrap_or_default().iter();
    entries.any(|(key, _)| heap.text(*key).is_none_or(|key| key.starts_with("__")))
}

/// Keys of a module's or a hook's state whose values `__setstate__` looks into.
const READ_BY_MODULES: [&str; 5] = ["_parameters", "_buffers", "_modules", "_dim_group_names", "with_module"];

/// Returns true for the state of a module whose dicts of parameters, buffers and modules are dicts, or of a mesh whose
/// names are a list; `is_searchable` tells whether a search in an object runs none of its contents' methods.
pub(super) fn is_state_of_module(
    heap: &Heap<'_>,
    state: ObjectId,
    mut is_searchable: impl FnMut(ObjectId) -> bool,
) -> bool {
    let Some(entries) = heap.entries(state) else { return false };
    entries.iter().all(|(key, value)| {
        !(is_computed(heap, *key) || heap.text(*key).is_some_and(|key| READ_BY_MODULES.contains(&&*key)))
            || is_searchable(*value)
    })
}

/// Returns true for `(hooks, number, other hooks)`, the state of a handle that removes a hook; `is_data` tells whether an
/// object is data.
pub(super) fn is_state_of_handle(
    heap: &Heap<'_>,
    state: ObjectId,
    is_data: impl Fn(ObjectId) -> bool,
) -> bool {
    let Some([_, number, rest @ ..]) = heap.items(state) else { return false };
    heap.int(*number).is_some()
        && rest.iter().all(|part| {
            matches!(
                heap.get(*part),
                Object::None | Object::Tuple(_) | Object::List(_) | Object::Dict(_) | Object::Instance(_)
            ) && is_data(*part)
        })
}

/// Returns true for `(seed, offset, tensor)`: other objects are taken for these, so that bytes would be addresses.
pub(super) fn is_state_of_generator(heap: &Heap<'_>, state: ObjectId) -> bool {
    let is_number = |id: ObjectId| matches!(heap.get(id), Object::Int(_) | Object::Long(_) | Object::None);
    match (heap.get(state), heap.items(state)) {
        (Object::Tuple(_), Some(&[seed, offset, tensor])) => {
            let callable = heap.instance(tensor).and_then(|instance| heap.global(instance.callable));
            let is_tensor = callable.is_some_and(|(module, name)| {
                module == "torch._utils" && name.starts_with("_rebuild_tensor")
            });
            is_number(seed) && is_number(offset) && is_tensor
        }
        _ => false,
    }
}

/// Returns true for `(function, arguments, keyword arguments, attributes)` of plain containers, which are only stored.
pub(super) fn is_state_of_partial(heap: &Heap<'_>, state: ObjectId) -> bool {
    let is_dict = |id: ObjectId| matches!(heap.get(id), Object::Dict(_) | Object::None);
    match (heap.get(state), heap.items(state)) {
        (Object::Tuple(_), Some(&[_, args, keywords, attributes])) => {
            matches!(heap.get(args), Object::Tuple(_)) && is_dict(keywords) && is_dict(attributes)
        }
        _ => false,
    }
}

//! The shapes of the states that BUILD gives to an instance.
//!
//! Facts: `load_build` in `Modules/_pickle.c` and `partial_setstate` in `Modules/_functoolsmodule.c` of CPython 3.13;
//! `Module.__getattr__` of PyTorch 2.15; `arraydescr_setstate` and `array_setstate` of NumPy 2.4.

use pickle_vm::{Heap, Instance, Object, ObjectId};

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

/// Returns the number of entries in the dicts of a state.
pub(super) fn entry_count(heap: &Heap<'_>, state: ObjectId) -> usize {
    let parts = heap.items(state).unwrap_or_default().iter().take(2).copied().chain([state]);
    let lens = parts.filter_map(|part| heap.entries(part)).map(<[_]>::len);
    lens.fold(1, usize::saturating_add)
}

/// Returns true if a state has an attribute of the name, or of a name that a call computes, that is not a plain value.
pub(super) fn sets(heap: &Heap<'_>, state: ObjectId, name: &str) -> bool {
    let parts = heap.items(state).unwrap_or_default().iter().take(2).copied().chain([state]);
    let mut entries = parts.filter_map(|part| heap.entries(part)).flatten();
    entries.any(|(key, value)| {
        (is_computed(heap, *key) || heap.text(*key).is_some_and(|key| key == name))
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

/// Returns true if the dict of a state, or one of its two dicts, has a class or a function as a value.
pub(super) fn has_function(heap: &Heap<'_>, state: ObjectId) -> bool {
    let parts = heap.items(state).unwrap_or_default().iter().take(2).copied().chain([state]);
    let mut entries = parts.filter_map(|part| heap.entries(part)).flatten();
    entries.any(|(_, value)| matches!(heap.get(*value), Object::Global(_)))
}

/// Returns true if a dict of slots has a name such as `__class__`, whose setter is the interpreter's.
pub(super) fn has_special_name(heap: &Heap<'_>, slots: ObjectId) -> bool {
    let mut entries = heap.entries(slots).unwrap_or_default().iter();
    entries.any(|(key, _)| heap.text(*key).is_none_or(|key| key.starts_with("__")))
}

/// Keys of a module's or a hook's state whose values `__setstate__` looks into.
const READ_BY_MODULES: [&str; 5] = ["_parameters", "_buffers", "_modules", "_dim_group_names", "with_module"];

/// Returns true for the state of a module whose dicts of parameters, buffers and modules are dicts, or of a mesh whose
/// names are a list; `is_data` tells whether an object is one.
pub(super) fn is_state_of_module(
    heap: &Heap<'_>,
    state: ObjectId,
    is_data: impl Fn(ObjectId) -> bool,
) -> bool {
    let Some(entries) = heap.entries(state) else { return false };
    entries.iter().all(|(key, value)| {
        !(is_computed(heap, *key) || heap.text(*key).is_some_and(|key| READ_BY_MODULES.contains(&&*key)))
            || is_data(*value)
    })
}

/// Flags of a dtype: its elements are objects, are pickled as a list, and are addresses.
const HAS_OBJECT: i64 = 1;
const IS_LIST: i64 = 2;
const IS_ADDRESS: i64 = 4;

/// Returns true if the state of `numpy.dtype(code, …)` fits its code and its fields. NumPy believes the flags and the
/// offsets, and would take numbers, or what is outside of an array, for addresses of objects.
pub(super) fn is_state_of_dtype(heap: &Heap<'_>, dtype: ObjectId, state: ObjectId) -> bool {
    let Some(instance) = heap.instance(dtype).filter(|instance| instance.state().len() == 1) else {
        return false;
    };
    let Some(code) = DtypeCode::of_call(heap, instance) else { return false };
    let Some(&[_, _, subarray, names, fields, size, _, flags, ..]) = heap.items(state) else { return false };
    let (Some(flags), Some(size)) = (heap.int(flags), heap.int(size)) else { return false };
    let is_before = |inner: ObjectId| heap.last_change(inner) <= heap.last_change(dtype);
    let mut holds_object = code.is_object;
    if code.has_size() {
        let entries = heap.entries(fields).unwrap_or_default();
        let Ok(size) = u64::try_from(size) else { return false };
        for (_, field) in entries {
            let Some(&[inner, offset, ..]) = heap.items(*field) else { return false };
            let offset = heap.int(offset).and_then(|offset| u64::try_from(offset).ok());
            let (Some(offset), Some((inner_size, has_object))) = (offset, claimed_layout(heap, inner)) else {
                return false;
            };
            let is_inside = offset.checked_add(inner_size).is_some_and(|end| end <= size);
            if !is_inside || !is_before(inner) {
                return false;
            }
            holds_object |= has_object;
        }
        if !heap.is_none(subarray) {
            let Some(&[inner, shape]) = heap.items(subarray) else { return false };
            let dims = heap.items(shape).map_or_else(|| vec![shape], <[_]>::to_vec);
            let Some((inner_size, has_object)) = claimed_layout(heap, inner) else { return false };
            let len = dims
                .iter()
                .try_fold(inner_size, |len, dim| len.checked_mul(u64::try_from(heap.int(*dim)?).ok()?));
            if len != Some(size) || !entries.is_empty() || !is_before(inner) {
                return false;
            }
            holds_object |= has_object;
        }
    } else if size > 8.max(code.size) || ![subarray, names, fields].into_iter().all(|part| heap.is_none(part))
    {
        return false;
    }
    let object_flags = flags & (HAS_OBJECT | IS_LIST);
    if holds_object {
        object_flags == HAS_OBJECT | IS_LIST
    } else {
        object_flags == 0 && flags & IS_ADDRESS == 0
    }
}

/// Returns the bytes of an element of a dtype and whether it has objects, as its code and its own state claim, which
/// are judged for themselves.
fn claimed_layout(heap: &Heap<'_>, dtype: ObjectId) -> Option<(u64, bool)> {
    let instance = heap.instance(dtype)?;
    let code = DtypeCode::of_call(heap, instance)?;
    let state = instance.state().last().and_then(|state| heap.items(*state));
    let number = |at: usize| heap.int(*state?.get(at)?);
    let size = if code.has_size() { number(5).unwrap_or(code.size) } else { code.size };
    let has_object = code.is_object || number(7).is_some_and(|flags| flags & HAS_OBJECT != 0);
    Some((u64::try_from(size).ok()?, has_object))
}

/// Returns true if the dtype in the state of an array is that of plain objects, which the array only stores.
pub(super) fn is_array_of_objects(heap: &Heap<'_>, array_state: ObjectId) -> bool {
    let dtype = heap.items(array_state).and_then(|parts| heap.instance(*parts.get(2)?));
    dtype.is_some_and(|dtype| DtypeCode::of_call(heap, dtype).is_some_and(|code| code.is_object))
}

/// The first argument of `numpy.dtype`, such as `f8` or `V24`.
struct DtypeCode {
    kind: char,
    /// Bytes of an element.
    size: i64,
    is_object: bool,
}

impl DtypeCode {
    /// Returns the code of a call; `None` for a description of fields.
    fn of_call(heap: &Heap<'_>, dtype: &Instance) -> Option<Self> {
        let first = *heap.items(dtype.args)?.first()?;
        if heap.global(first).is_some_and(|(module, name)| module.starts_with("numpy") && name == "record") {
            return Some(Self { kind: 'V', size: 0, is_object: false });
        }
        let text = heap.text(first)?;
        let mut rest = text.trim_start_matches(['<', '>', '|', '=']).chars();
        let kind = rest.next().filter(|kind| "biufcmMOSaUV".contains(*kind))?;
        let size: i64 = if rest.as_str().is_empty() { 0 } else { rest.as_str().parse().ok()? };
        let size = if kind == 'U' { size.checked_mul(4)? } else { size };
        let size = if kind == 'O' { 8 } else { size };
        Some(Self { kind, size, is_object: kind == 'O' })
    }

    /// Returns true if the state gives the bytes of an element.
    fn has_size(&self) -> bool {
        matches!(self.kind, 'S' | 'a' | 'U' | 'V')
    }
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

//! Judges the states of NumPy's dtypes, whose flags and offsets NumPy believes.
//!
//! Facts: `arraydescr_setstate` in `numpy/_core/src/multiarray/descriptor.c`.

use pickle_vm::{Heap, Instance, ObjectId};

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
    let Some(code) = DtypeCode::from_call(heap, instance) else { return false };
    let Some(&[_, _, subarray, names, fields, size, _, flags, ..]) = heap.items(state) else { return false };
    let (Some(flags), Some(size)) = (heap.int(flags), heap.int(size)) else { return false };
    let holds_object = if code.has_size() {
        let is_before = |part: ObjectId| heap.last_change(part) <= heap.last_change(dtype);
        match u64::try_from(size)
            .ok()
            .and_then(|size| parts_hold_object(heap, (fields, subarray), size, is_before))
        {
            Some(holds_object) => holds_object,
            None => return false,
        }
    } else if size > 8.max(code.size) || ![subarray, names, fields].into_iter().all(|part| heap.is_none(part))
    {
        return false;
    } else {
        code.is_object
    };
    let object_flags = flags & (HAS_OBJECT | IS_LIST);
    if holds_object {
        object_flags == HAS_OBJECT | IS_LIST
    } else {
        object_flags == 0 && flags & IS_ADDRESS == 0
    }
}

/// Returns true if a field or the subarray of a dtype of `size` bytes has objects; `None` if they do not fit into the size,
/// or may change after the dtype.
fn parts_hold_object(
    heap: &Heap<'_>,
    (fields, subarray): (ObjectId, ObjectId),
    size: u64,
    is_before: impl Fn(ObjectId) -> bool,
) -> Option<bool> {
    let mut holds_object = false;
    let entries = heap.entries(fields).unwrap_or_default();
    for (_, field) in entries {
        let &[inner, offset, ..] = heap.items(*field)? else { return None };
        let offset = u64::try_from(heap.int(offset)?).ok()?;
        let (inner_size, has_object) = claimed_layout(heap, inner)?;
        let is_inside = offset.checked_add(inner_size).is_some_and(|end| end <= size);
        if !is_inside || !is_before(inner) {
            return None;
        }
        holds_object |= has_object;
    }
    if !heap.is_none(subarray) {
        let &[inner, shape] = heap.items(subarray)? else { return None };
        let dims = heap.items(shape).map_or_else(|| vec![shape], <[_]>::to_vec);
        let (inner_size, has_object) = claimed_layout(heap, inner)?;
        let len = dims
            .iter()
            .try_fold(inner_size, |len, dim| len.checked_mul(u64::try_from(heap.int(*dim)?).ok()?))?;
        if len != size || !entries.is_empty() || !is_before(inner) {
            return None;
        }
        holds_object |= has_object;
    }
    Some(holds_object)
}

/// Returns the bytes of an element of a dtype and whether it has objects, as its code and its own state claim, which
/// are judged for themselves.
fn claimed_layout(heap: &Heap<'_>, dtype: ObjectId) -> Option<(u64, bool)> {
    let instance = heap.instance(dtype)?;
    let code = DtypeCode::from_call(heap, instance)?;
    let state = instance.state().last().and_then(|state| heap.items(*state));
    let number = |at: usize| heap.int(*state?.get(at)?);
    let size = if code.has_size() { number(5).unwrap_or(code.size) } else { code.size };
    let has_object = code.is_object || number(7).is_some_and(|flags| flags & HAS_OBJECT != 0);
    Some((u64::try_from(size).ok()?, has_object))
}

/// Returns true if the elements of a dtype are numbers or texts.
pub(super) fn holds_no_objects(heap: &Heap<'_>, dtype: ObjectId) -> bool {
    claimed_layout(heap, dtype).is_some_and(|(_, has_object)| !has_object)
}

/// Returns true if the dtype in the state of an array is that of plain objects, which the array only stores.
pub(super) fn is_array_of_objects(heap: &Heap<'_>, array_state: ObjectId) -> bool {
    let dtype = heap.items(array_state).and_then(|parts| heap.instance(*parts.get(2)?));
    dtype.is_some_and(|dtype| DtypeCode::from_call(heap, dtype).is_some_and(|code| code.is_object))
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
    fn from_call(heap: &Heap<'_>, dtype: &Instance) -> Option<Self> {
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

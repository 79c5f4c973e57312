//! Arrays in joblib's files: the elements follow the BUILD of the array's description, between two instructions.
//!
//! Facts: `NumpyArrayWrapper` and `NumpyUnpickler.load_build` in `joblib/numpy_pickle.py` of joblib 1.5;
//! `arraydescr_setstate` in `numpy/core/src/multiarray/descriptor.c`.

use pickle_vm::{Construction, Heap, Instance, ObjectId};

use crate::risk::is_array_wrapper;

/// The data that follow the BUILD of an array's description.
pub(super) enum ArrayElements {
    /// Length of the elements in bytes, and a flag that is true if padding precedes them: one byte with the length of
    /// the padding, then the padding.
    Bytes(u64, bool),
    Pickle,
    /// Data whose length only NumPy knows.
    Unknown,
}

/// Attributes of a `NumpyArrayWrapper`. Another one could take the place of a method that reads the elements.
const ATTRIBUTES: [&str; 6] =
    ["subclass", "shape", "order", "dtype", "allow_mmap", "numpy_array_alignment_bytes"];

/// Returns true for a class of joblib before 0.10. `joblib.load` replaces its instances by arrays from other files,
/// with `numpy.load(…, allow_pickle=True)`.
pub(super) fn is_external_array((module, name): (&str, &str)) -> bool {
    matches!(name, "NDArrayWrapper" | "ZNDArrayWrapper") && module.contains("joblib.numpy_pickle")
}

/// Returns the data that follow if the object changed by the last BUILD is the description of an array.
pub(super) fn elements_after_build(heap: &Heap<'_>, id: ObjectId) -> Option<ArrayElements> {
    let instance = heap.instance(id)?;
    let (class, is_called) = class_of(heap, instance)?;
    if !heap.global(class).is_some_and(is_array_wrapper) {
        return None;
    }
    let is_attribute = |key: ObjectId| heap.text(key).is_some_and(|key| ATTRIBUTES.contains(&key.as_ref()));
    let state = match *instance.state() {
        [state] if !is_called => heap.entries(state),
        _ => None,
    };
    let Some(state) = state.filter(|state| state.iter().all(|(key, _)| is_attribute(*key))) else {
        return Some(ArrayElements::Unknown);
    };
    let attribute = |name: &str| {
        let found = state.iter().rev().find(|(key, _)| heap.text(*key).is_some_and(|key| key == name));
        found.map(|(_, value)| *value)
    };
    let Some(item) = attribute("dtype").and_then(|dtype| element_kind(heap, dtype)) else {
        return Some(ArrayElements::Unknown);
    };
    let ElementKind::Bytes(size) = item else { return Some(ArrayElements::Pickle) };
    let shape = attribute("shape").and_then(|shape| heap.items(shape));
    let count = shape.and_then(|shape| {
        shape.iter().try_fold(1_u64, |count, dim| count.checked_mul(u64::try_from(heap.int(*dim)?).ok()?))
    });
    let padded = attribute("numpy_array_alignment_bytes").is_some_and(|bytes| !heap.is_none(bytes));
    let bytes = count.and_then(|count| count.checked_mul(size));
    Some(bytes.map_or(ArrayElements::Unknown, |bytes| ArrayElements::Bytes(bytes, padded)))
}

/// Returns the class of an instance, and true if its `__init__` is called, which sets attributes as well.
fn class_of(heap: &Heap<'_>, instance: &Instance) -> Option<(ObjectId, bool)> {
    let is_maker = heap.global(instance.callable).is_some_and(|(module, name)| {
        matches!(module, "copyreg" | "copy_reg") && matches!(name, "_reconstructor" | "__newobj__")
    });
    match instance.construction {
        Construction::Reduce if is_maker => Some((*heap.items(instance.args)?.first()?, false)),
        construction => Some((instance.callable, construction != Construction::NewObj)),
    }
}

/// Returns true for what `pickle` writes of an array: a call of `numpy.core.multiarray._reconstruct`.
pub(super) fn is_array(heap: &Heap<'_>, id: ObjectId) -> bool {
    heap.instance(id).and_then(|instance| heap.global(instance.callable)).is_some_and(|(module, name)| {
        matches!(module, "numpy.core.multiarray" | "numpy._core.multiarray") && name == "_reconstruct"
    })
}

#[derive(Clone, Copy)]
enum ElementKind {
    Bytes(u64),
    Object,
}

/// Returns the kind of the elements of `numpy.dtype(code, …)`; `None` if the code does not determine it.
fn element_kind(heap: &Heap<'_>, id: ObjectId) -> Option<ElementKind> {
    let instance = heap.instance(id)?;
    if heap.global(instance.callable) != Some(("numpy", "dtype")) {
        return None;
    }
    let code = heap.text(*heap.items(instance.args)?.first()?)?;
    let code = code.strip_prefix(['<', '>', '|', '=']).unwrap_or(&code);
    let kind = code.chars().next()?;
    let size = || code.get(1..)?.parse::<u64>().ok();
    let mut item = match kind {
        'O' => ElementKind::Object,
        'b' | 'i' | 'u' | 'f' | 'c' | 'S' | 'V' | 'M' | 'm' => ElementKind::Bytes(size()?),
        'U' => ElementKind::Bytes(size()?.checked_mul(4)?),
        _ => return None,
    };
    for state in instance.state() {
        item = element_kind_with_state(heap, kind, item, heap.items(*state)?)?;
    }
    Some(item)
}

/// Flag of a dtype that makes NumPy and joblib treat its elements as objects.
const HAS_OBJECT: i64 = 1;

/// Returns the kind of the elements after the dtype's state `(3, order, subarray, names, fields, size, alignment,
/// flags)`, or version 4 with metadata at the end; `None` if the state contradicts the code. NumPy trusts the flags,
/// even against the code and the fields.
fn element_kind_with_state(
    heap: &Heap<'_>,
    kind: char,
    item: ElementKind,
    state: &[ObjectId],
) -> Option<ElementKind> {
    let &[version, _, subarray, _, _, size, _, flags, ..] = state else { return None };
    if !matches!(heap.int(version)?, 3 | 4) || !heap.is_none(subarray) {
        return None;
    }
    let size = heap.int(size)?;
    match (item, heap.int(flags)? & HAS_OBJECT != 0) {
        (ElementKind::Object, true) => Some(ElementKind::Object),
        (ElementKind::Bytes(_), true) if kind == 'V' => Some(ElementKind::Object),
        (ElementKind::Bytes(bytes), false) => {
            // The code determines the size of a number.
            let is_number = size < 0 && !matches!(kind, 'S' | 'U' | 'V');
            (is_number || u64::try_from(size) == Ok(bytes)).then_some(item)
        }
        _ => None,
    }
}

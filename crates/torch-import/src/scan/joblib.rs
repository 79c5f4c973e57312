//! The arrays of joblib's files: their elements follow the BUILD of their description, between two instructions.
//!
//! Facts: `NumpyArrayWrapper` and `NumpyUnpickler.load_build` in `joblib/numpy_pickle.py` of joblib 1.5;
//! `arraydescr_setstate` in `numpy/core/src/multiarray/descriptor.c`.

use pickle_vm::{Heap, ObjectId};

use crate::globals::is_array_wrapper;

/// What follows the BUILD of an array's description.
pub(super) enum Elements {
    /// Bytes; before them is one byte, the number of bytes of padding, if the flag is set.
    Bytes(u64, bool),
    /// A pickle of the objects in the array.
    Pickle,
    /// Something whose length only NumPy knows.
    Unknown,
}

/// Whether a global is a class of joblib before 0.10, in whose place `joblib.load` loads an array from another file: with
/// `numpy.load(…, allow_pickle=True)`.
pub(super) fn is_in_another_file((module, name): (&str, &str)) -> bool {
    matches!(name, "NDArrayWrapper" | "ZNDArrayWrapper") && module.contains("joblib.numpy_pickle")
}

/// What follows, if the object that BUILD has just changed is the description of an array.
pub(super) fn elements(heap: &Heap<'_>, id: ObjectId) -> Option<Elements> {
    let instance = heap.instance(id)?;
    let first = heap.items(instance.args).and_then(|args| args.first().copied());
    let mut classes = [Some(instance.callable), first].into_iter().flatten();
    if !classes.any(|class| heap.global(class).is_some_and(is_array_wrapper)) {
        return None;
    }
    // A later state replaces the attributes that it has.
    let attribute = |name: &str| {
        let entries = instance.state().iter().rev().filter_map(|state| heap.entries(*state));
        let mut values = entries.flat_map(|entries| entries.iter().rev());
        values.find(|(key, _)| heap.text(*key).is_some_and(|key| key == name)).map(|(_, value)| *value)
    };
    let Some(item) = attribute("dtype").and_then(|dtype| item(heap, dtype)) else {
        return Some(Elements::Unknown);
    };
    let Item::Bytes(size) = item else { return Some(Elements::Pickle) };
    let shape = attribute("shape").and_then(|shape| heap.items(shape));
    let count = shape.and_then(|shape| {
        shape.iter().try_fold(1_u64, |count, dim| count.checked_mul(u64::try_from(heap.int(*dim)?).ok()?))
    });
    let padded = attribute("numpy_array_alignment_bytes").is_some_and(|bytes| !heap.is_none(bytes));
    let bytes = count.and_then(|count| count.checked_mul(size));
    Some(bytes.map_or(Elements::Unknown, |bytes| Elements::Bytes(bytes, padded)))
}

/// An element of an array.
#[derive(Clone, Copy)]
enum Item {
    Bytes(u64),
    Object,
}

/// The elements of `numpy.dtype(code, …)`; `None` if they cannot be told from the code.
fn item(heap: &Heap<'_>, id: ObjectId) -> Option<Item> {
    let instance = heap.instance(id)?;
    if heap.global(instance.callable) != Some(("numpy", "dtype")) {
        return None;
    }
    let code = heap.text(*heap.items(instance.args)?.first()?)?;
    let code = code.strip_prefix(['<', '>', '|', '=']).unwrap_or(&code);
    let kind = code.chars().next()?;
    let size = || code.get(1..)?.parse::<u64>().ok();
    let mut item = match kind {
        'O' => Item::Object,
        'b' | 'i' | 'u' | 'f' | 'c' | 'S' | 'V' | 'M' | 'm' => Item::Bytes(size()?),
        'U' => Item::Bytes(size()?.checked_mul(4)?),
        _ => return None,
    };
    for state in instance.state() {
        item = with_state(heap, kind, item, heap.items(*state)?)?;
    }
    Some(item)
}

/// The flag of a dtype that makes NumPy, and joblib, take its elements for objects.
const HAS_OBJECT: i64 = 1;

/// What the elements are by a dtype's state, `(3, order, subarray, names, fields, size, alignment, flags)`, or 4 and the
/// metadata at the end; `None` if it contradicts the code. NumPy believes the flags, whatever the code and the fields say.
fn with_state(heap: &Heap<'_>, kind: char, item: Item, state: &[ObjectId]) -> Option<Item> {
    let &[version, _, subarray, _, _, size, _, flags, ..] = state else { return None };
    if !matches!(heap.int(version)?, 3 | 4) || !heap.is_none(subarray) {
        return None;
    }
    let size = heap.int(size)?;
    match (item, heap.int(flags)? & HAS_OBJECT != 0) {
        (Item::Object, true) => Some(Item::Object),
        (Item::Bytes(_), true) if kind == 'V' => Some(Item::Object),
        (Item::Bytes(bytes), false) => {
            // The size of a number is that of its code.
            let is_number = size < 0 && !matches!(kind, 'S' | 'U' | 'V');
            (is_number || u64::try_from(size) == Ok(bytes)).then_some(item)
        }
        _ => None,
    }
}

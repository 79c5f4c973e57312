//! The arrays of joblib's files: their elements follow the BUILD of their description, between two instructions.
//!
//! Facts: `NumpyArrayWrapper` and `NumpyUnpickler.load_build` in `joblib/numpy_pickle.py` of joblib 1.5;
//! `arraydescr_setstate` in `numpy/core/src/multiarray/descriptor.c`.

use pickle_vm::{Heap, ObjectId};

/// What follows the BUILD of an array's description.
pub(super) enum Elements {
    /// Bytes; before them is one byte, the number of bytes of padding, if the flag is set.
    Bytes(u64, bool),
    /// A pickle of the objects in the array.
    Pickle,
    /// Something whose length only NumPy knows.
    Unknown,
}

/// Whether a global is the class of joblib's descriptions of arrays. scikit-learn had a copy of joblib until 0.22.
pub(crate) fn is_wrapper((module, name): (&str, &str)) -> bool {
    name == "NumpyArrayWrapper"
        && matches!(module, "joblib.numpy_pickle" | "sklearn.externals.joblib.numpy_pickle")
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
    if !classes.any(|class| heap.global(class).is_some_and(is_wrapper)) {
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
    let (kind, size) = (code.chars().next()?, code.get(1..)?);
    if kind == 'O' {
        return Some(Item::Object);
    }
    let size: u64 = size.parse().ok()?;
    let size = match kind {
        'b' | 'i' | 'u' | 'f' | 'c' | 'S' | 'M' | 'm' => size,
        'U' => size.checked_mul(4)?,
        _ => return None,
    };
    // The state of a text's dtype has its size once more, in bytes, and the byte order.
    for state in instance.state() {
        let element = heap.items(*state)?.get(5).and_then(|size| heap.int(*size))?;
        if element >= 0 && u64::try_from(element).ok() != Some(size) {
            return None;
        }
    }
    Some(Item::Bytes(size))
}

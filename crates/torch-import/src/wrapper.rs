//! Unwraps the modules that the crate `torchscript` writes: a converted TorchScript module keeps its names.
//!
//! Facts: the crate `torchscript` stores the root object of an archive in the attribute `module` of an instance of its
//! class `Wrapper`, whose namespace may end in a number. Wrappers that take a dict hold it a second time, in the object
//! `forward` that Python calls.

use pickle_vm::{Heap, ObjectId};

/// Namespace, classes and attributes of the wrapper.
const NAMESPACE: &str = "__torch__.torch2carton";
const CLASS: &str = "Wrapper";
const ENTRY_CLASS: &str = "Entry";
const TRAINING: &str = "training";
const ATTRIBUTE: &str = "module";
const ENTRY_ATTRIBUTE: &str = "forward";

/// Returns the object inside `root` if `root` is such a wrapper.
pub(crate) fn unwrap_module(heap: &Heap<'_>, root: ObjectId) -> Option<ObjectId> {
    let instance = heap.instance(root)?;
    let (module, class) = heap.global(instance.callable)?;
    let end = module.strip_prefix(NAMESPACE)?;
    if class != CLASS || !(end.is_empty() || end.starts_with('_')) {
        return None;
    }
    let &[state] = instance.state() else { return None };
    // The wrapper has exactly these attributes, so unwrapping hides nothing.
    match *heap.entries(state)? {
        [(training, _), (attribute, inner)] => {
            (is_text(heap, training, TRAINING) && is_text(heap, attribute, ATTRIBUTE)).then_some(inner)
        }
        [(training, _), (attribute, inner), (entry_attribute, entry)] => {
            let is_wrapper = is_text(heap, training, TRAINING)
                && is_text(heap, attribute, ATTRIBUTE)
                && is_text(heap, entry_attribute, ENTRY_ATTRIBUTE);
            (is_wrapper && is_entry(heap, entry, module, inner)).then_some(inner)
        }
        _ => None,
    }
}

/// Returns true if `entry` is an object of the class that Python calls, in `namespace`, and holds only `inner`: as an
/// attribute, or as its whole state if it has a `__setstate__`.
fn is_entry(heap: &Heap<'_>, entry: ObjectId, namespace: &str, inner: ObjectId) -> bool {
    let Some(instance) = heap.instance(entry) else { return false };
    let &[state] = instance.state() else { return false };
    let holds_inner = match heap.entries(state) {
        Some(&[(training, _), (attribute, held)]) => {
            is_text(heap, training, TRAINING) && is_text(heap, attribute, ATTRIBUTE) && held == inner
        }
        _ => state == inner,
    };
    heap.global(instance.callable) == Some((namespace, ENTRY_CLASS)) && holds_inner
}

fn is_text(heap: &Heap<'_>, key: ObjectId, text: &str) -> bool {
    heap.text(key).as_deref() == Some(text)
}

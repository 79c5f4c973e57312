//! Unwraps the modules that the crate `torchscript` writes: a converted TorchScript module keeps its names.
//!
//! Facts: the crate `torchscript` stores the root object of an archive in the attribute `module` of an instance of its
//! class `Wrapper`, whose namespace may end in a number.

use pickle_vm::{Heap, ObjectId};

/// Namespace, class and attribute of the wrapper.
const NAMESPACE: &str = "__torch__.torch2carton";
const CLASS: &str = "Wrapper";
const ATTRIBUTE: &str = "module";

/// Returns the object inside `root` if `root` is such a wrapper.
pub(crate) fn unwrap_module(heap: &Heap<'_>, root: ObjectId) -> Option<ObjectId> {
    let instance = heap.instance(root)?;
    let (module, class) = heap.global(instance.callable)?;
    let end = module.strip_prefix(NAMESPACE)?;
    if class != CLASS || !(end.is_empty() || end.starts_with('_')) {
        return None;
    }
    // The wrapper has exactly these two attributes, so unwrapping hides nothing.
    let &[state] = instance.state() else { return None };
    let &[(training, _), (attribute, inner)] = heap.entries(state)? else { return None };
    let is = |key: ObjectId, name: &str| heap.text(key).as_deref() == Some(name);
    (is(training, "training") && is(attribute, ATTRIBUTE)).then_some(inner)
}

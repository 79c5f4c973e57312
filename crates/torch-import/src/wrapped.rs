//! The object that a module of ours holds: a TorchScript module that was converted keeps its names.
//!
//! Facts: the crate `torchscript` puts the root object of an archive into the attribute `module` of an object of its class
//! `Wrapper`, whose namespace may end in a number.

use pickle_vm::{Heap, ObjectId};

/// The namespace, the class and the attribute.
const NAMESPACE: &str = "__torch__.torch2carton";
const CLASS: &str = "Wrapper";
const ATTRIBUTE: &str = "module";

/// The object inside `root`, if `root` is ours.
pub(crate) fn inner(heap: &Heap<'_>, root: ObjectId) -> Option<ObjectId> {
    let instance = heap.instance(root)?;
    let (module, class) = heap.global(instance.callable)?;
    let end = module.strip_prefix(NAMESPACE)?;
    if class != CLASS || !(end.is_empty() || end.starts_with('_')) {
        return None;
    }
    // Ours has nothing else, so nothing else is hidden.
    let &[state] = instance.state() else { return None };
    let &[(training, _), (attribute, inner)] = heap.entries(state)? else { return None };
    let is = |key: ObjectId, name: &str| heap.text(key).as_deref() == Some(name);
    (is(training, "training") && is(attribute, ATTRIBUTE)).then_some(inner)
}

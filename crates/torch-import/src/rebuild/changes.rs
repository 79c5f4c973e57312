//! Changes after which the values of tensors are unknown: of shared objects, in place, and of what a call had copied.
//!
//! Facts: as in [`call`](super::call).

use pickle_vm::{Heap, Instance, Object, ObjectId, RecordedChanges};

use super::call::{CallSnapshot, RebuildCall};
use crate::{Problem, Result};

/// Refuses a heap with a change to a shared object: a storage, a tensor's elements, a function or a class. Tensors may
/// share storages, so the affected tensors are unknown.
pub(super) fn refuse_shared_changes(heap: &Heap<'_>) -> Result<()> {
    for id in heap.changed_objects() {
        let at = heap.last_change(id).unwrap_or_default();
        if let Some((module, name)) = heap.global(id) {
            return Err(Problem::Rebuild {
                function: format!("{}.{}", module.escape_debug(), name.escape_debug()),
                offset: heap.offset(id),
                reason: format!(
                    "the pickle changes this function or class at offset 0x{at:x}, so what it returns is unknown"
                ),
            }.into());
        }
        if heap.persistent(id).is_some() {
            let reason = format!("the pickle changes the storage at offset 0x{at:x}");
            return Err(Problem::PersistentId { offset: heap.offset(id), reason }.into());
        }
        if let Some(call) = RebuildCall::new(heap, id)
            && !(call.instance.items().is_empty() && call.instance.appends().is_empty())
        {
            call.args_and_state()?;
        }
    }
    Ok(())
}

/// Refuses a heap with a call of a PyTorch function that changes its argument in place, such as `torch.Tensor.zero_`.
/// The names of these functions end with an underscore. Such a call changes all tensors of a storage, and no version of
/// PyTorch writes one.
pub(super) fn refuse_calls_in_place(heap: &Heap<'_>) -> Result<()> {
    let global = |id: ObjectId| match heap.global(id) {
        Some(("builtins" | "__builtin__", "getattr")) => Some(InPlaceRole::Getattr),
        Some((module, name)) if module.split('.').next() == Some("torch") && is_in_place(name) => {
            Some(InPlaceRole::InPlace(name.escape_debug().to_string()))
        }
        _ => None,
    };
    // Most pickles name no such function.
    if !heap.global_objects().iter().any(|id| global(*id).is_some()) {
        return Ok(());
    }
    for id in heap.ids() {
        let Some(called) = heap.instance(id).map(|instance| instance.callable) else { continue };
        let function = match (global(called), heap.instance(called)) {
            (Some(InPlaceRole::InPlace(name)), _) => Some(name),
            // Python writes a method as `getattr(class, name)`.
            (None, Some(getter)) if matches!(global(getter.callable), Some(InPlaceRole::Getattr)) => {
                let name = heap.items(getter.args).and_then(|args| heap.text(*args.get(1)?));
                name.filter(|name| is_in_place(name)).map(|name| name.escape_debug().to_string())
            }
            _ => None,
        };
        if let Some(function) = function {
            let reason = "the pickle calls this function, which changes its argument in place".to_owned();
            return Err(Problem::Rebuild { function, offset: heap.offset(id), reason }.into());
        }
    }
    Ok(())
}

/// The role of a global in [`refuse_calls_in_place`].
enum InPlaceRole {
    InPlace(String),
    Getattr,
}

fn is_in_place(name: &str) -> bool {
    name.ends_with('_') && !name.ends_with("__")
}

/// Returns true for calls that copy the contents of their arguments.
fn copies_arguments(heap: &Heap<'_>, instance: &Instance) -> bool {
    matches!(
        heap.global(instance.callable),
        Some(
            ("collections", "OrderedDict" | "defaultdict" | "Counter" | "deque")
                | ("copyreg" | "copy_reg", "_reconstructor")
                | ("builtins" | "__builtin__", "dict" | "list" | "tuple" | "set" | "frozenset" | "bytearray")
                | ("torch", "Size")
        )
    )
}

/// Returns true if [`refuse_later_changes`] must check an instance. Most calls of classes have no arguments and no
/// state.
pub(super) fn needs_change_check(heap: &Heap<'_>, instance: &Instance) -> bool {
    !instance.state().is_empty()
        || heap.items(instance.args).is_some_and(|args| !args.is_empty()) && copies_arguments(heap, instance)
}

/// Refuses an object other than a tensor if a change follows its copying. The object is an argument of a call that
/// copies, or a state, whose attributes BUILD copies.
pub(super) fn refuse_later_changes(heap: &Heap<'_>, id: ObjectId) -> Result<()> {
    refuse_changed_arguments(heap, id)?;
    for (state, offset) in
        heap.recorded_changes(id).into_iter().flat_map(RecordedChanges::states_with_offsets)
    {
        let call = CallSnapshot::at_offset(heap, id, offset);
        call.refuse_changed(state)?;
        for (_, value) in call.state_attributes(state)? {
            refuse_changed_arguments(heap, value)?;
        }
    }
    Ok(())
}

fn refuse_changed_arguments(heap: &Heap<'_>, id: ObjectId) -> Result<()> {
    let Some(instance) = heap.instance(id).filter(|instance| copies_arguments(heap, instance)) else {
        return Ok(());
    };
    let call = CallSnapshot::new(heap, id);
    for argument in heap.items(instance.args).unwrap_or_default() {
        call.refuse_changed(*argument)?;
        // The pairs of an OrderedDict are lists in files of Python 2.
        if let (Some(("collections", _)), Object::List(pairs)) =
            (heap.global(instance.callable), heap.get(*argument))
        {
            pairs.get().iter().try_for_each(|pair| call.refuse_changed(*pair))?;
        }
    }
    Ok(())
}

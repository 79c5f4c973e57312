//! Finds the float16 tensors of a module, which the wrapper widens to float32 when it is loaded on a CPU.
//!
//! Facts: PyTorch 2.0.1 has no products of float16 matrices on a CPU: a call ends Carton's runner. A class that has a
//! `__setstate__` is loaded by calling it (`torch/csrc/jit/serialization/import.cpp`).

use std::collections::HashSet;
use std::fmt::Write;

use pickle_vm::{Heap, ObjectId, Pickle};

use crate::source_names::{is_identifier, string_literal};

/// Bytes of a pickle that name the storages of float16 and bfloat16.
const FLOAT16_STORAGE: &[u8] = b"ctorch\nHalfStorage\n";
const BFLOAT16_STORAGE: &[u8] = b"ctorch\nBFloat16Storage\n";
/// Prefix of the classes of modules.
const CODE_NAMESPACE: &str = "__torch__.";

pub(super) fn has_float16(pickle: &[u8]) -> bool {
    pickle.windows(FLOAT16_STORAGE.len()).any(|window| window == FLOAT16_STORAGE)
}

pub(super) fn has_bfloat16(pickle: &[u8]) -> bool {
    pickle.windows(BFLOAT16_STORAGE.len()).any(|window| window == BFLOAT16_STORAGE)
}

/// Returns the statements that widen all float16 tensors of the module `state`, or `None` if one of them cannot be assigned.
/// `{widen}` stands for the function that widens one.
pub(super) fn widening_statements(pickle: &Pickle<'_>) -> Option<String> {
    let heap = &pickle.heap;
    let mut open = vec![(pickle.root, "state".to_owned())];
    let mut seen: HashSet<ObjectId> = HashSet::from([pickle.root]);
    let (mut out, mut modules) = (String::new(), 0_usize);
    while let Some((module, name)) = open.pop() {
        let entries = heap.instance(module).into_iter().flat_map(pickle_vm::Instance::state);
        for (key, value) in entries.filter_map(|state| heap.entries(*state)).flatten() {
            let key = heap.text(*key)?.into_owned();
            if is_float16_tensor(heap, *value) {
                // Nothing assigns to an attribute whose name is not an identifier.
                if !is_identifier(&key) {
                    return None;
                }
                writeln!(out, "    {name}.{key} = {{widen}}(unchecked_cast(Tensor, {name}.{key}))").ok()?;
            } else if is_module(heap, *value) {
                if seen.insert(*value) {
                    let access = if is_identifier(&key) {
                        format!("{name}.{key}")
                    } else {
                        format!("getattr({name}, {})", string_literal(&key))
                    };
                    modules = modules.saturating_add(1);
                    writeln!(out, "    m{modules} = {access}").ok()?;
                    open.push((*value, format!("m{modules}")));
                }
            } else if has_float16_inside(heap, *value) {
                return None;
            }
        }
    }
    Some(out)
}

fn is_module(heap: &Heap<'_>, value: ObjectId) -> bool {
    let class = heap.instance(value).and_then(|instance| heap.global(instance.callable));
    class.is_some_and(|(module, _)| module.starts_with(CODE_NAMESPACE))
}

fn is_float16_tensor(heap: &Heap<'_>, value: ObjectId) -> bool {
    let storage = heap.instance(value).and_then(|instance| {
        let (module, function) = heap.global(instance.callable)?;
        let is_tensor = module == "torch._utils" && function == "_rebuild_tensor_v2";
        heap.persistent(*heap.items(instance.args).filter(|_| is_tensor)?.first()?)
    });
    let class = storage.and_then(|storage| heap.items(storage)).and_then(|items| items.get(1));
    class.and_then(|class| heap.global(*class)) == Some(("torch", "HalfStorage"))
}

/// Returns true if a container, or a tensor of a special kind, has a float16 tensor inside.
fn has_float16_inside(heap: &Heap<'_>, value: ObjectId) -> bool {
    let mut open = vec![value];
    let mut seen = HashSet::new();
    while let Some(value) = open.pop() {
        if !seen.insert(value) {
            continue;
        }
        if heap.global(value) == Some(("torch", "HalfStorage")) || is_float16_tensor(heap, value) {
            return true;
        }
        open.extend(heap.items(value).unwrap_or_default());
        open.extend(heap.entries(value).unwrap_or_default().iter().flat_map(|(key, value)| [*key, *value]));
        open.extend(heap.persistent(value));
        if let Some(instance) = heap.instance(value) {
            open.push(instance.args);
            open.extend(instance.state());
        }
    }
    false
}

//! Pickle of an archive's root object, and of the wrapper object that contains it.
//!
//! Facts: `torch/csrc/jit/serialization/unpickler.cpp`: the pickle starts with PROTO 2, and an object is a class, NEWOBJ,
//! and its attributes for BUILD. The bytes of the original object are copied. The wrapper stores only that object in the
//! memo, under the first id that the original does not use, so the original's memo ids stay valid.
//!
//! The type of a parameter decides who can call a method. A `Dict[str, Any]`, which Carton's runner passes if an input is a
//! text, is not a `Dict[str, Tensor]`; a parameter of the type `Any` takes both, but Python cannot infer a type for `{}` and
//! refuses to pass it. So the wrapper has a method `forward` that takes `Any`, which C++ calls, and a submodule `forward`
//! that takes a `Dict[str, Any]`: `ScriptModule.__getattr__` looks for submodules before methods, so Python calls that one.

use pickle_vm::{Arg, Opcode, Reader};

use crate::module_tree::NAMESPACE;
use crate::pickler::Pickler;
use crate::{Problem, Result};

/// Name of the wrapper class, and of its attribute that holds the original object.
pub(super) const WRAPPER_CLASS: &str = "Wrapper";
pub(super) const WRAPPED_ATTRIBUTE: &str = "module";
/// Name of the class that Python calls, and of the wrapper's attribute that holds its object.
pub(super) const ENTRY_CLASS: &str = "Entry";
pub(super) const ENTRY_ATTRIBUTE: &str = "forward";

const PROTO_2: &[u8] = &[0x80, 2];

pub(super) struct RootObject {
    /// Qualified name of its class's module, such as `__torch__.net`.
    pub(super) module: String,
    pub(super) class: String,
    /// Length of the pickle in bytes, including STOP.
    len: usize,
}

/// Object that Python calls, an attribute of the wrapper.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryObject {
    /// True if the object is loaded with its `__setstate__`.
    pub(super) has_setstate: bool,
}

impl RootObject {
    /// Reads the root of `pickle`; returns `None` if it is not an object of a class.
    pub(super) fn read(pickle: &[u8]) -> Result<Option<Self>> {
        if !pickle.starts_with(PROTO_2) {
            return Ok(None);
        }
        let loaded = pickle_vm::load(pickle).map_err(Problem::Pickle)?;
        let instance = loaded.heap.instance(loaded.root);
        let names = instance.and_then(|instance| loaded.heap.global(instance.callable));
        let len = usize::try_from(loaded.len).unwrap_or(usize::MAX);
        Ok(names.map(|(module, class)| Self { module: module.to_owned(), class: class.to_owned(), len }))
    }

    pub(super) fn qualified(&self) -> String {
        format!("{}.{}", self.module, self.class)
    }

    pub(super) fn is_ours(&self) -> bool {
        let rest = self.module.strip_prefix(NAMESPACE);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    }

    pub(super) fn is_wrapper(&self) -> bool {
        self.is_ours() && self.class == WRAPPER_CLASS
    }

    /// Returns the pickle of a wrapper object in `namespace` that holds this root object, and the object that Python calls,
    /// if there is one.
    pub(super) fn wrapper_pickle(
        &self,
        namespace: &str,
        pickle: &[u8],
        entry: Option<EntryObject>,
    ) -> Result<Vec<u8>> {
        let mut bytes = wrapper_start(namespace)?;
        let inner = pickle.get(PROTO_2.len()..self.len.saturating_sub(1)).unwrap_or_default();
        bytes.extend_from_slice(inner);
        let entry = match entry {
            Some(entry) => Some((entry, free_memo_id(pickle)?)),
            None => None,
        };
        bytes.extend(wrapper_end(namespace, entry)?);
        Ok(bytes)
    }
}

/// Returns the pickle of the object inside of a wrapper in `namespace`; `None` if `pickle` is not one that this program
/// writes.
pub(super) fn wrapped_pickle(namespace: &str, pickle: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(rest) = pickle.strip_prefix(wrapper_start(namespace)?.as_slice()) else { return Ok(None) };
    // Every end is also an end without an entry, which is therefore the last.
    let entries = [Some(EntryObject { has_setstate: false }), Some(EntryObject { has_setstate: true }), None];
    for entry in entries {
        // The memo id follows the first opcode of the end.
        let len = wrapper_end(namespace, entry.map(|entry| (entry, 0)))?.len();
        let Some((inner, end)) = rest.len().checked_sub(len).and_then(|at| rest.split_at_checked(at)) else {
            continue;
        };
        let id = end.get(1..5).and_then(|id| id.try_into().ok()).map_or(0, u32::from_le_bytes);
        if end == wrapper_end(namespace, entry.map(|entry| (entry, id)))? {
            return Ok(Some([PROTO_2, inner, &[Opcode::Stop.code()]].concat()));
        }
    }
    Ok(None)
}

/// Returns what precedes the original object in the pickle of a wrapper.
fn wrapper_start(namespace: &str) -> std::result::Result<Vec<u8>, Problem> {
    let mut start = Pickler::default();
    start.global(namespace, WRAPPER_CLASS)?;
    start.empty_tuple();
    start.newobj();
    start.empty_dict();
    start.mark();
    start.text("training")?;
    start.bool(false);
    start.text(WRAPPED_ATTRIBUTE)?;
    let mut bytes = start.finish();
    // The wrapper's STOP is removed, as are the PROTO and STOP of the original.
    bytes.pop();
    Ok(bytes)
}

/// Returns what follows the original object: the object that Python calls, if there is one, which takes the original from
/// the memo by its id, and the end of the wrapper.
fn wrapper_end(namespace: &str, entry: Option<(EntryObject, u32)>) -> std::result::Result<Vec<u8>, Problem> {
    let end = [Opcode::SetItems.code(), Opcode::Build.code()];
    let mut bytes = Vec::new();
    if let Some((EntryObject { has_setstate }, memo_id)) = entry {
        bytes.push(Opcode::LongBinPut.code());
        bytes.extend(memo_id.to_le_bytes());
        let mut entry = Pickler::default();
        entry.text(ENTRY_ATTRIBUTE)?;
        entry.global(namespace, ENTRY_CLASS)?;
        entry.empty_tuple();
        entry.newobj();
        if !has_setstate {
            entry.empty_dict();
            entry.mark();
            entry.text("training")?;
            entry.bool(false);
            entry.text(WRAPPED_ATTRIBUTE)?;
        }
        let mut entry = entry.finish();
        entry.pop();
        bytes.extend_from_slice(entry.get(PROTO_2.len()..).unwrap_or_default());
        bytes.push(Opcode::LongBinGet.code());
        bytes.extend(memo_id.to_le_bytes());
        bytes.extend(if has_setstate { &end[1..] } else { &end });
    }
    bytes.extend(end);
    bytes.push(Opcode::Stop.code());
    Ok(bytes)
}

/// Returns the first memo id that a pickle does not use.
fn free_memo_id(pickle: &[u8]) -> Result<u32> {
    let mut free = 0_u32;
    for instruction in Reader::new(pickle) {
        let instruction = instruction.map_err(Problem::Pickle)?;
        match (instruction.opcode, instruction.arg) {
            (Opcode::BinPut | Opcode::LongBinPut, Arg::Int(id)) => {
                free = free.max(u32::try_from(id).unwrap_or(u32::MAX).saturating_add(1));
            }
            (Opcode::Stop, _) => break,
            _ => {}
        }
    }
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapper_has_the_namespace_and_the_class_of_this_program() {
        let root = |module: &str, class: &str| RootObject {
            module: module.to_owned(),
            class: class.to_owned(),
            len: 0,
        };
        assert!(root("__torch__.torch2carton", "Wrapper").is_wrapper());
        assert!(root("__torch__.torch2carton_1", "Wrapper").is_wrapper());
        for (module, class) in [
            ("__torch__.torch2cartons", "Wrapper"),
            ("__torch__.net", "Wrapper"),
            ("__torch__.torch2carton", "Entry"),
        ] {
            assert!(!root(module, class).is_wrapper(), "{module}.{class}");
        }
    }
}

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

use crate::pickler::Pickler;
use crate::{Error, Result};

/// Name of the wrapper class, and of its attribute that holds the original object.
pub(super) const WRAPPER_CLASS: &str = "Wrapper";
pub(super) const WRAPPED_ATTRIBUTE: &str = "module";
/// Name of the class that Python calls, and of the wrapper's attribute that holds its object.
pub(super) const ENTRY_CLASS: &str = "Entry";
pub(super) const ENTRY_ATTRIBUTE: &str = "forward";

const PROTO_2: &[u8] = &[0x80, 2];

/// Root object of an archive: its class and its pickle.
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
        let loaded = pickle_vm::load(pickle).map_err(Error::Pickle)?;
        let instance = loaded.heap.instance(loaded.root);
        let names = instance.and_then(|instance| loaded.heap.global(instance.callable));
        let len = usize::try_from(loaded.len).unwrap_or(usize::MAX);
        Ok(names.map(|(module, class)| Self { module: module.to_owned(), class: class.to_owned(), len }))
    }

    /// Returns the qualified name of the root's class.
    pub(super) fn qualified(&self) -> String {
        format!("{}.{}", self.module, self.class)
    }

    /// Returns the pickle of a wrapper object in `namespace` that holds this root object, and the object that Python calls,
    /// if there is one.
    pub(super) fn wrapper_pickle(
        &self,
        namespace: &str,
        pickle: &[u8],
        entry: Option<EntryObject>,
    ) -> Result<Vec<u8>> {
        let mut before = Pickler::default();
        before.global(namespace, WRAPPER_CLASS)?;
        before.empty_tuple();
        before.newobj();
        before.empty_dict();
        before.mark();
        before.text("training")?;
        before.bool(false);
        before.text(WRAPPED_ATTRIBUTE)?;
        let mut bytes = before.finish();
        // The wrapper's STOP is removed, as are the PROTO and STOP of the original.
        bytes.pop();
        let inner = pickle.get(PROTO_2.len()..self.len.saturating_sub(1)).unwrap_or_default();
        bytes.extend_from_slice(inner);
        let Some(EntryObject { has_setstate }) = entry else {
            bytes.extend([Opcode::SetItems.code(), Opcode::Build.code(), Opcode::Stop.code()]);
            return Ok(bytes);
        };
        let memo_id = free_memo_id(pickle)?;
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
        let end = [Opcode::SetItems.code(), Opcode::Build.code()];
        bytes.extend(if has_setstate { &end[1..] } else { &end });
        bytes.extend(end);
        bytes.push(Opcode::Stop.code());
        Ok(bytes)
    }
}

/// Returns the first memo id that a pickle does not use.
fn free_memo_id(pickle: &[u8]) -> Result<u32> {
    let mut free = 0_u32;
    for instruction in Reader::new(pickle) {
        let instruction = instruction.map_err(Error::Pickle)?;
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

//! Pickle of an archive's root object, and of the wrapper object that contains it.
//!
//! Facts: `torch/csrc/jit/serialization/unpickler.cpp`: the pickle starts with PROTO 2, and an object is a class, NEWOBJ,
//! and its attributes for BUILD. The bytes of the original object are copied. The wrapper stores nothing in the memo, so the
//! original's memo ids stay valid.

use pickle_vm::Opcode;

use crate::pickler::Pickler;
use crate::{Error, Result};

/// Name of the wrapper class, and of its attribute that holds the original object.
pub(super) const WRAPPER_CLASS: &str = "Wrapper";
pub(super) const WRAPPED_ATTRIBUTE: &str = "module";

const PROTO_2: &[u8] = &[0x80, 2];

/// Root object of an archive: its class and its pickle.
pub(super) struct RootObject {
    /// Qualified name of its class's module, such as `__torch__.net`.
    pub(super) module: String,
    pub(super) class: String,
    /// Length of the pickle in bytes, including STOP.
    len: usize,
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

    /// Returns the pickle of a wrapper object in `namespace` that holds this root object.
    pub(super) fn wrapper_pickle(&self, namespace: &str, pickle: &[u8]) -> Result<Vec<u8>> {
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
        bytes.extend([Opcode::SetItems.code(), Opcode::Build.code(), Opcode::Stop.code()]);
        Ok(bytes)
    }
}

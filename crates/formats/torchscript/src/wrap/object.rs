//! The pickle of an archive's root object, and the same inside an object of ours.
//!
//! Facts: `torch/csrc/jit/serialization/unpickler.cpp`: the pickle starts with PROTO 2, and an object is a class, NEWOBJ,
//! and its attributes for BUILD. The bytes of the original object are copied, and ours remembers nothing in the memo, so
//! that the numbers of the original's memo stay right.

use pickle_vm::Opcode;

use crate::pickler::Pickler;
use crate::{Error, Result};

/// The class of ours, and its attribute that holds the original object.
pub(super) const CLASS: &str = "Wrapper";
pub(super) const ATTRIBUTE: &str = "module";

const START: &[u8] = &[0x80, 2];

/// The root object of an archive.
pub(super) struct Root {
    /// The qualified name of the module of its class, such as `__torch__.net`.
    pub(super) module: String,
    pub(super) class: String,
    /// Bytes of the pickle, with the STOP.
    len: usize,
}

impl Root {
    /// The root of `pickle`, if it is an object of a class.
    pub(super) fn read(pickle: &[u8]) -> Result<Option<Self>> {
        if !pickle.starts_with(START) {
            return Ok(None);
        }
        let loaded = pickle_vm::load(pickle).map_err(Error::Pickle)?;
        let instance = loaded.heap.instance(loaded.root);
        let names = instance.and_then(|instance| loaded.heap.global(instance.callable));
        let len = usize::try_from(loaded.len).unwrap_or(usize::MAX);
        Ok(names.map(|(module, class)| Self { module: module.to_owned(), class: class.to_owned(), len }))
    }

    /// The qualified name of its class.
    pub(super) fn qualified(&self) -> String {
        format!("{}.{}", self.module, self.class)
    }

    /// The pickle of an object of ours in `namespace` that holds this one.
    pub(super) fn wrapped(&self, namespace: &str, pickle: &[u8]) -> Result<Vec<u8>> {
        let mut before = Pickler::default();
        before.global(namespace, CLASS)?;
        before.empty_tuple();
        before.newobj();
        before.empty_dict();
        before.mark();
        before.text("training")?;
        before.bool(false);
        before.text(ATTRIBUTE)?;
        let mut bytes = before.finish();
        // Without its STOP, as the original without its PROTO and STOP.
        bytes.pop();
        let inner = pickle.get(START.len()..self.len.saturating_sub(1)).unwrap_or_default();
        bytes.extend_from_slice(inner);
        bytes.extend([Opcode::SetItems.code(), Opcode::Build.code(), Opcode::Stop.code()]);
        Ok(bytes)
    }
}

//! Decodes byte strings, which the protocols write in different ways.
//!
//! Facts: `save_bytes` in CPython's `Lib/pickle.py`.

use std::borrow::Cow;

use pickle_vm::{Heap, ObjectId};

/// The bytes of a byte string, in any of the encodings that the protocols use; `None` for a bytearray that the pickle
/// changes.
pub(crate) fn bytes<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Option<Cow<'h, [u8]>> {
    if heap.changed(id).is_some() {
        return None;
    }
    let direct = |id| heap.bytes(id).map(Cow::Borrowed).or_else(|| latin1(heap, id));
    if let Some(bytes) = direct(id) {
        return Some(bytes);
    }
    // Protocol 2 wraps those of a bytearray once more, and writes empty ones as calls without arguments.
    let instance = heap.instance(id)?;
    match (heap.global(instance.callable)?, heap.items(instance.args)?) {
        (("builtins" | "__builtin__", "bytes" | "bytearray"), []) => Some(Cow::Borrowed(&[])),
        (("builtins" | "__builtin__", "bytes" | "bytearray"), &[inner, ..]) => direct(inner),
        _ => None,
    }
}

/// `_codecs.encode(text, 'latin1')`: text whose characters are the bytes, in protocols 0 to 2.
pub(crate) fn latin1<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Option<Cow<'h, [u8]>> {
    let instance = heap.instance(id)?;
    let ("_codecs", "encode") = heap.global(instance.callable)? else { return None };
    let &[text, ref encoding @ ..] = heap.items(instance.args)? else { return None };
    let (text, encoding) = (heap.text(text)?, heap.text(*encoding.first()?)?);
    if !matches!(encoding.as_ref(), "latin1" | "latin-1") {
        return None;
    }
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>().map(Cow::Owned)
}

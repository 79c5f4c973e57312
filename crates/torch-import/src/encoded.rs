//! Decodes byte strings, which each pickle protocol encodes differently.
//!
//! Facts: `save_bytes` in CPython's `Lib/pickle.py`.

use std::borrow::Cow;

use pickle_vm::{Heap, Object, ObjectId, Reader};

/// Function that loads a checkpoint from bytes, for tensors that were pickled without `torch.save`.
pub(crate) const LOAD_FROM_BYTES: (&str, &str) = ("torch.storage", "_load_from_bytes");

/// Returns the bytes of a byte string in any protocol's encoding; `None` for a bytearray that the pickle changes.
pub(crate) fn decode_bytes<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Option<Cow<'h, [u8]>> {
    match heap.bytes(id) {
        Some(bytes) if heap.last_change(id).is_none() => Some(Cow::Borrowed(bytes)),
        _ => EncodedBytes::find(heap, id)?.decode(),
    }
}

/// Returns the offset in the pickle of a byte string's bytes; `None` if they are not stored verbatim.
pub(crate) fn verbatim_offset(heap: &Heap<'_>, pickle: &[u8], id: ObjectId) -> Option<usize> {
    let (id, bytes) = match heap.bytes(id) {
        Some(bytes) => (id, bytes),
        None => match EncodedBytes::find(heap, id)?.source {
            EncodedSource::Bytes(inner, bytes) => (inner?, bytes),
            EncodedSource::Latin1(_) => return None,
        },
    };
    let offset = usize::try_from(heap.offset(id)).ok()?;
    let mut reader = Reader::new(pickle.get(offset..)?);
    reader.next()?.ok()?;
    // The bytes are the last part of their instruction.
    let end = offset.checked_add(usize::try_from(reader.offset()).ok()?)?;
    let start = end.checked_sub(bytes.len())?;
    pickle.get(start..end).filter(|found| std::ptr::eq(*found, bytes))?;
    Some(start)
}

/// Decodes `_codecs.encode(text, 'latin1')`, the form of bytes in protocols 0 to 2: each character of the text is one
/// byte.
pub(crate) fn decode_latin1<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Option<Cow<'h, [u8]>> {
    EncodedBytes { heap, source: EncodedSource::Latin1(latin1_text(heap, id)?), type_name: "bytes" }.decode()
}

/// A byte string that the pickle creates by a call, not decoded yet.
#[derive(Debug)]
pub struct EncodedBytes<'h> {
    heap: &'h Heap<'h>,
    source: EncodedSource<'h>,
    type_name: &'static str,
}

#[derive(Debug)]
enum EncodedSource<'h> {
    /// The byte string's object, `None` for an empty one, and its bytes.
    Bytes(Option<ObjectId>, &'h [u8]),
    Latin1(ObjectId),
}

impl<'h> EncodedBytes<'h> {
    /// Finds the byte string that the call `id` creates; `None` for any other object, and for one that the pickle
    /// changes.
    pub fn find(heap: &'h Heap<'h>, id: ObjectId) -> Option<Self> {
        if heap.last_change(id).is_some() {
            return None;
        }
        if let Some(text) = latin1_text(heap, id) {
            return Some(Self { heap, source: EncodedSource::Latin1(text), type_name: "bytes" });
        }
        // Protocol 2 wraps the bytes of a bytearray once more, and writes empty byte strings as calls without
        // arguments.
        let instance = heap.instance(id)?;
        let type_name = match heap.global(instance.callable)? {
            ("builtins" | "__builtin__", "bytes") => "bytes",
            ("builtins" | "__builtin__", "bytearray") => "bytearray",
            _ => return None,
        };
        let source = match heap.items(instance.args)? {
            [] => EncodedSource::Bytes(None, &[]),
            &[inner, ..] => match heap.bytes(inner) {
                Some(bytes) => EncodedSource::Bytes(Some(inner), bytes),
                None => EncodedSource::Latin1(latin1_text(heap, inner)?),
            },
        };
        Some(Self { heap, source, type_name })
    }

    /// Returns the byte string's type in Python.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// Returns the number of bytes of the pickle that encode the byte string.
    pub fn encoded_len(&self) -> usize {
        match self.source {
            EncodedSource::Bytes(_, bytes) => bytes.len(),
            EncodedSource::Latin1(text) => match self.heap.get(text) {
                Object::Text(text) => text.bytes().len(),
                _ => self.heap.bytes(text).map_or(0, <[u8]>::len),
            },
        }
    }

    /// Decodes the bytes; `None` if a character is above 255.
    pub fn decode(&self) -> Option<Cow<'h, [u8]>> {
        match self.source {
            EncodedSource::Bytes(_, bytes) => Some(Cow::Borrowed(bytes)),
            EncodedSource::Latin1(text) => {
                let text = self.heap.text(text)?;
                text.chars()
                    .map(|c| u8::try_from(u32::from(c)).ok())
                    .collect::<Option<Vec<u8>>>()
                    .map(Cow::Owned)
            }
        }
    }
}

/// Returns the text in a call `_codecs.encode(text, 'latin1')`.
fn latin1_text(heap: &Heap<'_>, id: ObjectId) -> Option<ObjectId> {
    let instance = heap.instance(id)?;
    let ("_codecs", "encode") = heap.global(instance.callable)? else { return None };
    let &[text, encoding, ..] = heap.items(instance.args)? else { return None };
    let encoding = match heap.get(encoding) {
        Object::Text(text) => text.bytes(),
        Object::String(bytes) => bytes,
        _ => return None,
    };
    matches!(encoding, b"latin1" | b"latin-1").then_some(text)
}

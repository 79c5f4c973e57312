//! Dict keys as parts of a tensor's name, and as Python subscripts in messages.

use std::borrow::Cow;

use pickle_vm::{Heap, Object, ObjectId};

use crate::encoded;

/// A dict key for comparison. Two are equal if they are the same key of a Python dict.
#[derive(PartialEq, Eq, Hash)]
pub(crate) enum Key<'h> {
    Text(Cow<'h, str>),
    Bytes(&'h [u8]),
    /// A number, as Python prints it.
    Number(String),
    /// Any other object equals only itself: objects that look alike may differ, and two tensors must not become one.
    Object(ObjectId),
}

impl<'h> Key<'h> {
    pub(crate) fn new(heap: &'h Heap<'_>, id: ObjectId) -> Self {
        match heap.get(id) {
            // Python 2's strings are text if they can be decoded.
            Object::Text(_) | Object::String(_) => heap.text(id).map_or(Self::Object(id), Self::Text),
            Object::Bytes(bytes) => Self::Bytes(bytes),
            Object::None | Object::Bool(_) | Object::Int(_) | Object::Float(_) => {
                Self::Number(repr(heap, id))
            }
            _ => Self::Object(id),
        }
    }
}

/// The part that a key adds to a name: its text, or for other objects what Python prints.
pub(crate) fn part<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Cow<'h, str> {
    let text = match heap.get(id) {
        Object::Text(_) | Object::String(_) => heap.text(id),
        _ => None,
    };
    text.unwrap_or_else(|| Cow::Owned(repr(heap, id)))
}

/// The key as Python prints it. An instance of a class is shown as the call that makes it, since a pickle has nothing
/// else.
pub(crate) fn repr(heap: &Heap<'_>, id: ObjectId) -> String {
    // Bytes that protocol 2 writes as a call.
    let bytes = |heap: &Heap<'_>, id| Some(bytes_repr(&encoded::bytes(heap, id)?));
    heap.display(id).long().annotated(&bytes).to_string()
}

fn bytes_repr(bytes: &[u8]) -> String {
    let escaped = bytes.escape_ascii().to_string();
    let double = bytes.contains(&b'\'') && !bytes.contains(&b'"');
    if double {
        format!("b\"{}\"", escaped.replace("\\'", "'"))
    } else {
        format!("b'{}'", escaped.replace("\\\"", "\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_printed_as_python_prints_them() {
        // What CPython 3.11 writes and prints of `[1e300, b"raw\x00", b"it's", 2**70, ("it's", "\n", "ü"), (),
        // (2.5,), inf]`, protocol 2.
        let bytes = b"\x80\x02](G~7\xe4<\x88\x00u\x9cc_codecs\nencode\nq\x01X\x04\x00\x00\x00raw\x00X\x06\x00\x00\x00\
            latin1q\x03\x86Rh\x01X\x04\x00\x00\x00it'sh\x03\x86R\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@X\x04\x00\x00\
            \x00it'sX\x01\x00\x00\x00\nX\x02\x00\x00\x00\xc3\xbc\x87)G@\x04\x00\x00\x00\x00\x00\x00\x85G\x7f\xf0\x00\
            \x00\x00\x00\x00\x00e.";
        let pickle = pickle_vm::load(bytes).expect("CPython wrote it");
        let keys = pickle.heap.items(pickle.root).unwrap_or_default();
        let spelled: Vec<String> = keys.iter().map(|key| repr(&pickle.heap, *key)).collect();
        assert_eq!(
            spelled,
            [
                "1e+300",
                r"b'raw\x00'",
                r#"b"it's""#,
                "1180591620717411303424",
                r#"("it's", '\n', 'ü')"#,
                "()",
                "(2.5,)",
                "inf"
            ]
        );
    }
}

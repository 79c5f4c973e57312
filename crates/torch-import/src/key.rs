//! Dict keys as parts of a tensor's name, and as Python subscripts in messages.

use std::borrow::Cow;

use pickle_vm::{Heap, Object, ObjectId};

/// A dict key for comparison: two are equal where a Python dict has one place for both.
#[derive(PartialEq, Eq, Hash)]
pub(crate) enum Key<'h> {
    Text(Cow<'h, str>),
    /// As Python prints it.
    Other(String),
}

impl<'h> Key<'h> {
    pub(crate) fn of(heap: &'h Heap<'_>, id: ObjectId) -> Self {
        match heap.get(id) {
            Object::Text(_) => heap.text(id).map_or_else(|| Self::Other(repr(heap, id)), Self::Text),
            _ => Self::Other(repr(heap, id)),
        }
    }
}

/// The part that a key adds to a name: text as it is, else as Python prints it.
pub(crate) fn part<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Cow<'h, str> {
    heap.text(id).unwrap_or_else(|| Cow::Owned(repr(heap, id)))
}

/// The key as Python prints it.
pub(crate) fn repr(heap: &Heap<'_>, id: ObjectId) -> String {
    match heap.get(id) {
        Object::None => "None".to_owned(),
        Object::Bool(true) => "True".to_owned(),
        Object::Bool(false) => "False".to_owned(),
        Object::Int(number) => number.to_string(),
        Object::Float(number) => format!("{number:?}"),
        Object::Text(_) => format!("'{}'", heap.text(id).unwrap_or_default().escape_debug()),
        Object::String(bytes) => format!("'{}'", bytes.escape_ascii()),
        Object::Bytes(bytes) => format!("b'{}'", bytes.escape_ascii()),
        Object::Tuple(_) => {
            // Tuples inside tuples are named by their kind: keys of real files are flat.
            let items = heap.items(id).unwrap_or_default().iter();
            let flat = items.map(|item| match heap.get(*item) {
                Object::Tuple(_) => "(...)".to_owned(),
                _ => repr(heap, *item),
            });
            match flat.collect::<Vec<_>>().as_slice() {
                [one] => format!("({one},)"),
                many => format!("({})", many.join(", ")),
            }
        }
        other => format!("<{}>", other.type_name()),
    }
}

//! Byte strings of a pickle that are pickles or archives themselves.

use std::borrow::Cow;
use std::collections::HashSet;

use pickle_vm::{Heap, Object, ObjectId, Opcode, Reader};

use super::budget::ScanBudget;
use super::cpython_errors::python_stops;
use super::zip_detection;
use crate::container::formats::legacy;
use crate::encoded::{self, LOAD_FROM_BYTES};

/// Instructions of a byte string that are read to recognise a pickle.
const READ_MAX: usize = 1 << 10;

/// A byte string in a pickle.
pub(super) struct NestedBytes<'p> {
    /// Offset at which the byte string is created, in bytes from the start of the pickle.
    pub(super) at: u64,
    pub(super) bytes: Cow<'p, [u8]>,
    /// True if the pickle passes the byte string to a function that unpickles it.
    pub(super) is_loaded: bool,
}

/// Collects the byte strings that are pickles or archives, and those that the pickle loads. Returns false if the budget
/// was exceeded.
pub(super) fn find_nested<'p>(
    heap: &Heap<'p>,
    budget: &mut ScanBudget<'_>,
    found: &mut Vec<NestedBytes<'p>>,
) -> bool {
    // Byte strings that the pickle loads are scanned whatever their content, each once.
    let mut seen = HashSet::new();
    let is_loader = |id: &ObjectId| heap.global(*id) == Some(LOAD_FROM_BYTES);
    let calls = heap.global_objects().iter().any(is_loader).then(|| heap.ids()).into_iter().flatten();
    for id in calls {
        let Some(instance) = heap.instance(id).filter(|call| is_loader(&call.callable)) else { continue };
        let Some(&arg) = heap.items(instance.args).and_then(|args| args.first()) else { continue };
        let inner = heap.instance(arg).and_then(|outer| heap.items(outer.args)?.first().copied());
        if !seen.insert(arg) {
            continue;
        }
        // For bytes that cannot be read, the call itself is a finding.
        let Some(bytes) = encoded::decode_bytes(heap, arg) else { continue };
        seen.extend(inner);
        if !budget.spend(bytes.len() as u64) {
            return false;
        }
        found.push(NestedBytes {
            at: heap.offset(arg),
            bytes: Cow::Owned(bytes.into_owned()),
            is_loaded: true,
        });
    }
    let mut texts = HashSet::new();
    for id in heap.ids().filter(|id| !seen.contains(id)) {
        let bytes = match heap.get(id) {
            Object::Bytes(bytes) | Object::ByteArray(bytes) => Cow::Borrowed(*bytes),
            Object::String(bytes) if is_pickle(bytes) => Cow::Owned(bytes.to_vec()),
            Object::Instance(instance) => {
                let arg = heap.items(instance.args).and_then(|args| args.first());
                let text = arg.and_then(|arg| heap.text(*arg));
                // Protocols before 3 write bytes as text.
                if !text.is_some_and(|text| may_encode_pickle(&text)) || !texts.insert(arg) {
                    continue;
                }
                match encoded::decode_latin1(heap, id) {
                    Some(bytes) => Cow::Owned(bytes.into_owned()),
                    None => continue,
                }
            }
            _ => continue,
        };
        if is_pickle(&bytes) {
            if !budget.spend(bytes.len() as u64) {
                return false;
            }
            found.push(NestedBytes { at: heap.offset(id), bytes, is_loaded: false });
        }
    }
    true
}

/// Returns true for bytes that `torch.load` may unpickle.
pub(super) fn is_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 0..=5, ..])
        || zip_detection::is_archive(bytes)
        || legacy::recognises(bytes)
        || names_global(bytes)
}

/// Returns true if a text may be such bytes, by its first character.
fn may_encode_pickle(text: &str) -> bool {
    let first = text.chars().next().and_then(|first| u8::try_from(u32::from(first)).ok());
    first.is_some_and(|first| Opcode::from_byte(first).is_some())
}

/// Returns true if Python's unpickler may reach the name of a global.
fn names_global(bytes: &[u8]) -> bool {
    let mut read = Reader::new(bytes).take(READ_MAX.saturating_add(1)).enumerate();
    let decisive = read.find_map(|(index, instruction)| match instruction {
        Ok(it) if matches!(it.opcode, Opcode::Global | Opcode::Inst | Opcode::StackGlobal) => Some(true),
        Ok(_) => (index >= READ_MAX).then_some(true),
        Err(error) => Some(!python_stops(&error, bytes)),
    });
    decisive.unwrap_or(false)
}

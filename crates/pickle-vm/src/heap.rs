//! The arena of a pickle's objects, and its queries.
//!
//! Objects sit in chunks that never move, so memory is proportional to the objects, without the spare capacity of a growing `Vec`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::object::{Global, Instance, Names, Object, ObjectId, Recorded, Span};
use crate::value::Long;

const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;

/// A pickle that was read to its end.
#[derive(Clone, Debug)]
pub struct Pickle<'p> {
    /// Its objects.
    pub heap: Heap<'p>,
    /// The object that STOP left.
    pub root: ObjectId,
    /// Its length in bytes, STOP included: the next pickle of a chain starts there.
    pub len: u64,
    /// How many instructions it has.
    pub opcodes: u64,
    /// How many entries its memo ended with.
    pub memo_len: usize,
}

/// The objects of one pickle, in the order in which they were made.
///
/// An id is valid only for the heap that it came from. With an id of another heap, a query returns an unrelated object, or
/// panics if this heap has fewer objects.
#[derive(Clone, Debug, Default)]
pub struct Heap<'p> {
    chunks: Vec<Chunk<'p>>,
    len: u32,
    /// The items of tuples and frozensets, one after the other.
    items: Vec<ObjectId>,
    /// Changes of globals, persistent objects, extensions and bytearrays, which are rare.
    recorded: BTreeMap<ObjectId, Recorded>,
    /// The instances with recorded changes.
    changed: Vec<ObjectId>,
    persistent: Vec<ObjectId>,
    dropped: Vec<ObjectId>,
    /// For each 4 GiB of pickle after the first, the first object made there: offsets are kept as 32 bits.
    epochs: Vec<ObjectId>,
}

#[derive(Clone, Debug, Default)]
struct Chunk<'p> {
    objects: Vec<Object<'p>>,
    offsets: Vec<u32>,
}

impl<'p> Heap<'p> {
    /// The object itself.
    #[inline]
    pub fn get(&self, id: ObjectId) -> &Object<'p> {
        self.chunks
            .get((id.0 >> CHUNK_BITS) as usize)
            .and_then(|chunk| chunk.objects.get(id.0 as usize % CHUNK))
            .expect("ids come from this heap, which never shrinks")
    }

    /// The offset of the instruction that made it, in bytes from the start of the pickle.
    ///
    /// For objects of which a heap has only one (`None`, bools, the empty tuple, ints up to 255), it is the first such
    /// instruction.
    pub fn offset(&self, id: ObjectId) -> u64 {
        let low = self
            .chunks
            .get((id.0 >> CHUNK_BITS) as usize)
            .and_then(|chunk| chunk.offsets.get(id.0 as usize % CHUNK))
            .expect("ids come from this heap, which never shrinks");
        let epoch = self.epochs.partition_point(|&first| first <= id) as u64;
        epoch << 32 | u64::from(*low)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every object, in the order in which they were made.
    pub fn ids(&self) -> impl Iterator<Item = ObjectId> + use<> {
        (0..self.len).map(ObjectId)
    }

    /// The items of a tuple, list, set or frozenset.
    pub fn items(&self, id: ObjectId) -> Option<&[ObjectId]> {
        match self.get(id) {
            Object::Tuple(span) | Object::FrozenSet(span) => Some(self.span(*span)),
            Object::List(items) | Object::Set(items) => Some(items.get()),
            _ => None,
        }
    }

    /// The entries of a dict in the order of SETITEM and SETITEMS, duplicates kept.
    pub fn entries(&self, id: ObjectId) -> Option<&[(ObjectId, ObjectId)]> {
        match self.get(id) {
            Object::Dict(entries) => Some(entries.get()),
            _ => None,
        }
    }

    /// The text of a `str`, or of a byte string that is UTF-8 (Python 2 wrote its text as byte strings).
    ///
    /// It is borrowed unless it holds lone surrogates, which are written as `\udc80`; [`Object::Text`] keeps them
    /// unchanged.
    pub fn text(&self, id: ObjectId) -> Option<Cow<'_, str>> {
        match self.get(id) {
            Object::Text(text) => Some(text.to_str()),
            Object::String(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Object::Bytes(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            _ => None,
        }
    }

    /// The bytes of a `bytes`, a Python 2 `str`, or a `bytearray` that the pickle did not change.
    pub fn bytes(&self, id: ObjectId) -> Option<&[u8]> {
        match self.get(id) {
            Object::String(bytes) => Some(bytes),
            Object::ByteArray(_) if self.recorded.contains_key(&id) => None,
            Object::Bytes(bytes) | Object::ByteArray(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// An int that fits an `i64`. Bools are not ints here.
    pub fn int(&self, id: ObjectId) -> Option<i64> {
        match self.get(id) {
            Object::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// An int that does not fit an `i64`.
    pub fn long(&self, id: ObjectId) -> Option<&Long<'p>> {
        match self.get(id) {
            Object::Long(value) => Some(value),
            _ => None,
        }
    }

    /// A float.
    pub fn float(&self, id: ObjectId) -> Option<f64> {
        match self.get(id) {
            Object::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// A bool.
    pub fn bool(&self, id: ObjectId) -> Option<bool> {
        match self.get(id) {
            Object::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether it is `None`.
    pub fn is_none(&self, id: ObjectId) -> bool {
        matches!(self.get(id), Object::None)
    }

    /// The module and the name of a global.
    pub fn global(&self, id: ObjectId) -> Option<(&str, &str)> {
        match self.get(id) {
            Object::Global(global) => self.names(global),
            _ => None,
        }
    }

    /// A recorded call.
    pub fn instance(&self, id: ObjectId) -> Option<&Instance> {
        match self.get(id) {
            Object::Instance(instance) => Some(instance),
            _ => None,
        }
    }

    /// The persistent id of a persistent object: a `str` from PERSID, anything from BINPERSID.
    pub fn persistent(&self, id: ObjectId) -> Option<ObjectId> {
        match self.get(id) {
            Object::Persistent(pid) => Some(*pid),
            _ => None,
        }
    }

    /// The changes that SETITEMS, APPENDS and BUILD made to an instance, a global, a persistent object, an extension or a
    /// bytearray.
    pub fn recorded(&self, id: ObjectId) -> Option<&Recorded> {
        match self.get(id) {
            Object::Instance(instance) => instance.recorded.as_deref(),
            _ => self.recorded.get(&id),
        }
    }

    /// The objects that have [`recorded`](Self::recorded) changes: first the instances, in the order of their first change,
    /// then all others.
    pub fn with_changes(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.changed.iter().chain(self.recorded.keys()).copied()
    }

    /// The persistent objects, in the order in which they were made.
    pub fn persistent_objects(&self) -> &[ObjectId] {
        &self.persistent
    }

    /// The texts, byte strings, containers and calls that `POP` and `POP_MARK` took off the stack or that STOP left there, as
    /// often as they did. Other objects may refer to them.
    pub fn dropped(&self) -> &[ObjectId] {
        &self.dropped
    }

    /// The offset of the last instruction that changed the object: APPEND, APPENDS and ADDITEMS, SETITEM and SETITEMS, or
    /// BUILD. `None` if it is as it was made. Changes of the objects in it do not count.
    ///
    /// A call sees an argument as it is at that time: if this is more than the call's [`offset`](Self::offset), the
    /// argument changed afterwards.
    pub fn changed(&self, id: ObjectId) -> Option<u64> {
        match self.get(id) {
            Object::List(items) | Object::Set(items) => items.changed(),
            Object::Dict(entries) => entries.changed(),
            _ => self.recorded(id)?.changed(),
        }
    }

    /// Whether an instruction after `offset` changed the object.
    pub fn changed_after(&self, id: ObjectId, offset: u64) -> bool {
        self.changed(id).is_some_and(|changed| changed > offset)
    }

    fn names<'a>(&'a self, global: &'a Global<'p>) -> Option<(&'a str, &'a str)> {
        match &global.0 {
            Names::Inline { module, name } => Some((module, name)),
            Names::Stack { module, name } => Some((self.name(*module)?, self.name(*name)?)),
        }
    }

    /// Text that can be a global's name.
    pub(crate) fn name(&self, id: ObjectId) -> Option<&str> {
        match self.get(id) {
            Object::Text(text) => text.as_str(),
            Object::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    fn span(&self, span: Span) -> &[ObjectId] {
        let start = span.start as usize;
        self.items.get(start..start.saturating_add(span.len as usize)).unwrap_or_default()
    }

    /// Adds an object; None when ids run out.
    #[inline]
    pub(crate) fn push(&mut self, object: Object<'p>, offset: u64) -> Option<ObjectId> {
        // The last u32 is not used as an id: the memo marks its holes with it.
        let id = ObjectId(self.len);
        self.len = self.len.checked_add(1)?;
        if (self.epochs.len() as u64) < offset >> 32 || (id.0 as usize).is_multiple_of(CHUNK) {
            self.grow(id, offset);
        }
        if matches!(object, Object::Persistent(_)) {
            self.persistent.push(id);
        }
        let chunk = self.chunks.last_mut()?;
        chunk.objects.push(object);
        chunk.offsets.push(u32::try_from(offset & 0xffff_ffff).unwrap_or(u32::MAX));
        Some(id)
    }

    #[cold]
    fn grow(&mut self, id: ObjectId, offset: u64) {
        while (self.epochs.len() as u64) < offset >> 32 {
            self.epochs.push(id);
        }
        if (id.0 as usize).is_multiple_of(CHUNK) {
            // The first chunk grows as needed, so that a small pickle stays small.
            let room = if id.0 == 0 { 0 } else { CHUNK };
            self.chunks.push(Chunk { objects: Vec::with_capacity(room), offsets: Vec::with_capacity(room) });
        }
    }

    /// Stores the items of an immutable sequence; None when the indexes run out.
    pub(crate) fn push_items(&mut self, items: &[ObjectId]) -> Option<Span> {
        let span =
            Span { start: u32::try_from(self.items.len()).ok()?, len: u32::try_from(items.len()).ok()? };
        self.items.extend_from_slice(items);
        Some(span)
    }

    pub(crate) fn get_mut(&mut self, id: ObjectId) -> &mut Object<'p> {
        self.chunks
            .get_mut((id.0 >> CHUNK_BITS) as usize)
            .and_then(|chunk| chunk.objects.get_mut(id.0 as usize % CHUNK))
            .expect("ids come from this heap, which never shrinks")
    }

    /// Notes that an object leaves the stack and goes nowhere.
    pub(crate) fn drop(&mut self, id: ObjectId) {
        let is_small = matches!(
            self.get(id),
            Object::None
                | Object::Bool(_)
                | Object::Int(_)
                | Object::Float(_)
                | Object::Global(_)
                | Object::Extension(_)
                | Object::Persistent(_)
        );
        if !is_small && self.dropped.last() != Some(&id) {
            self.dropped.push(id);
        }
    }

    /// The changes of an object whose contents only its class knows, for another one to be added; None for the built-in
    /// types.
    pub(crate) fn change(&mut self, id: ObjectId) -> Option<&mut Recorded> {
        let is_instance = match self.get(id) {
            Object::Instance(_) => true,
            Object::Global(_) | Object::Persistent(_) | Object::Extension(_) | Object::ByteArray(_) => false,
            _ => return None,
        };
        if !is_instance {
            return Some(self.recorded.entry(id).or_default());
        }
        if self.recorded(id).is_none_or(|recorded| recorded.changed().is_none()) {
            self.changed.push(id);
        }
        self.recorded_mut(id)
    }

    /// The record of an instance's changes and keyword arguments.
    pub(crate) fn recorded_mut(&mut self, id: ObjectId) -> Option<&mut Recorded> {
        match self.get_mut(id) {
            Object::Instance(instance) => Some(instance.recorded.get_or_insert_default()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_more_than_32_bits_are_kept() {
        let mut heap = Heap::default();
        let offsets = [5, 0xffff_ffff, 1 << 32, (1 << 32) + 5, (3 << 32) + 7, (3 << 32) + 8, 4 << 32];
        for offset in offsets {
            heap.push(Object::None, offset).expect("there is room");
        }
        let kept: Vec<u64> = heap.ids().map(|id| heap.offset(id)).collect();
        assert_eq!(kept, offsets);
    }
}

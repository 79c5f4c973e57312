//! Arena of a pickle's objects, and queries on them.
//!
//! Objects are in chunks that never move, so memory is proportional to the number of objects, without the spare
//! capacity of a growing `Vec`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::integer::Long;
use crate::object::{Global, GlobalNames, Instance, ItemSpan, Object, ObjectId, RecordedChanges};

const CHUNK_BITS: u32 = 12;
const CHUNK_OBJECTS: usize = 1 << CHUNK_BITS;

/// A pickle that was read up to STOP.
#[derive(Clone, Debug)]
pub struct Pickle<'p> {
    pub heap: Heap<'p>,
    /// Object that STOP returned.
    pub root: ObjectId,
    /// Length in bytes, including STOP: the offset of the next pickle in a chain.
    pub len: u64,
    /// Number of instructions in the pickle.
    pub opcodes: u64,
    /// Number of memo entries at STOP.
    pub memo_len: usize,
}

/// The objects of one pickle, in creation order.
///
/// An id is valid only for its own heap. With an id of another heap, a query returns an unrelated object, or panics if
/// this heap has fewer objects.
#[derive(Clone, Debug, Default)]
pub struct Heap<'p> {
    chunks: Vec<ObjectChunk<'p>>,
    len: u32,
    /// Items of all tuples and frozensets, one object after the other.
    items: Vec<ObjectId>,
    /// Changes to globals, persistent objects, extensions and bytearrays, which are rare.
    recorded: BTreeMap<ObjectId, RecordedChanges>,
    /// Instances with recorded changes, in the order of their first change.
    changed: Vec<ObjectId>,
    globals: Vec<ObjectId>,
    persistent: Vec<ObjectId>,
    dropped: Vec<ObjectId>,
    /// First object created in each 4 GiB of the pickle after the first: offsets are kept as 32 bits.
    epochs: Vec<ObjectId>,
}

#[derive(Clone, Debug, Default)]
struct ObjectChunk<'p> {
    objects: Vec<Object<'p>>,
    offsets: Vec<u32>,
}

impl<'p> Heap<'p> {
    /// Returns the object with this id.
    #[inline]
    pub fn get(&self, id: ObjectId) -> &Object<'p> {
        self.chunks
            .get((id.0 >> CHUNK_BITS) as usize)
            .and_then(|chunk| chunk.objects.get(id.0 as usize % CHUNK_OBJECTS))
            .expect("ids come from this heap, which never shrinks")
    }

    /// Returns the byte offset of the instruction that created the object, from the start of the pickle.
    ///
    /// Objects that exist only once (`None`, bools, the empty tuple, ints up to 255) have the offset of the first such
    /// instruction.
    pub fn offset(&self, id: ObjectId) -> u64 {
        let low = self
            .chunks
            .get((id.0 >> CHUNK_BITS) as usize)
            .and_then(|chunk| chunk.offsets.get(id.0 as usize % CHUNK_OBJECTS))
            .expect("ids come from this heap, which never shrinks");
        let epoch = self.epochs.partition_point(|&first| first <= id) as u64;
        epoch << 32 | u64::from(*low)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if the heap has no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the ids of all objects, in creation order.
    pub fn ids(&self) -> impl Iterator<Item = ObjectId> + use<> {
        (0..self.len).map(ObjectId)
    }

    /// Returns the items of a tuple, list, set or frozenset.
    #[inline]
    pub fn items(&self, id: ObjectId) -> Option<&[ObjectId]> {
        match self.get(id) {
            Object::Tuple(span) | Object::FrozenSet(span) => Some(self.span(*span)),
            Object::List(items) | Object::Set(items) => Some(items.get()),
            _ => None,
        }
    }

    /// Returns the entries of a dict in the order of SETITEM and SETITEMS, duplicates kept.
    #[inline]
    pub fn entries(&self, id: ObjectId) -> Option<&[(ObjectId, ObjectId)]> {
        match self.get(id) {
            Object::Dict(entries) => Some(entries.get()),
            _ => None,
        }
    }

    /// Returns the text of a `str`, or of a byte string that is UTF-8 (Python 2 pickled text as byte strings).
    ///
    /// Lone surrogates are written as `\udc80`, in owned text; [`Object::Text`] keeps them unchanged. All other text is
    /// borrowed.
    pub fn text(&self, id: ObjectId) -> Option<Cow<'_, str>> {
        match self.get(id) {
            Object::Text(text) => Some(text.to_str()),
            Object::String(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Object::Bytes(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            _ => None,
        }
    }

    /// Returns the bytes of a `bytes`, a Python 2 `str`, or a `bytearray` that the pickle did not change.
    pub fn bytes(&self, id: ObjectId) -> Option<&[u8]> {
        match self.get(id) {
            Object::String(bytes) => Some(bytes),
            Object::ByteArray(_) if self.recorded.contains_key(&id) => None,
            Object::Bytes(bytes) | Object::ByteArray(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the value of an int that fits an `i64`. Bools are not ints here.
    pub fn int(&self, id: ObjectId) -> Option<i64> {
        match self.get(id) {
            Object::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns an int that does not fit an `i64`.
    pub fn long(&self, id: ObjectId) -> Option<&Long<'p>> {
        match self.get(id) {
            Object::Long(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of a float.
    pub fn float(&self, id: ObjectId) -> Option<f64> {
        match self.get(id) {
            Object::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the value of a bool.
    pub fn bool(&self, id: ObjectId) -> Option<bool> {
        match self.get(id) {
            Object::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns true if the object is `None`.
    pub fn is_none(&self, id: ObjectId) -> bool {
        matches!(self.get(id), Object::None)
    }

    /// Returns the module and the name of a global.
    #[inline]
    pub fn global(&self, id: ObjectId) -> Option<(&str, &str)> {
        match self.get(id) {
            Object::Global(global) => self.names(global),
            _ => None,
        }
    }

    /// Returns the recorded call of an instance.
    #[inline]
    pub fn instance(&self, id: ObjectId) -> Option<&Instance> {
        match self.get(id) {
            Object::Instance(instance) => Some(instance),
            _ => None,
        }
    }

    /// Returns the persistent id of a persistent object: a `str` from PERSID, any object from BINPERSID.
    #[inline]
    pub fn persistent(&self, id: ObjectId) -> Option<ObjectId> {
        match self.get(id) {
            Object::Persistent(pid) => Some(*pid),
            _ => None,
        }
    }

    /// Returns the changes that SETITEMS, APPENDS and BUILD made to an instance, a global, a persistent object, an
    /// extension or a bytearray.
    pub fn recorded_changes(&self, id: ObjectId) -> Option<&RecordedChanges> {
        match self.get(id) {
            Object::Instance(instance) => instance.recorded.as_deref(),
            _ => self.recorded.get(&id),
        }
    }

    /// Returns the objects with [`recorded_changes`](Self::recorded_changes) changes: first the instances, in the order of their first
    /// change, then all other objects.
    pub fn changed_objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.changed.iter().chain(self.recorded.keys()).copied()
    }

    /// Returns the globals, in creation order.
    pub fn global_objects(&self) -> &[ObjectId] {
        &self.globals
    }

    /// Returns the persistent objects, in creation order.
    pub fn persistent_objects(&self) -> &[ObjectId] {
        &self.persistent
    }

    /// Returns the texts, byte strings, containers and calls that `POP` and `POP_MARK` discarded or that STOP left on
    /// the stack, once per discard. Other objects may still refer to them.
    pub fn dropped_objects(&self) -> &[ObjectId] {
        &self.dropped
    }

    /// Returns the offset of the last instruction that changed the object (APPEND, APPENDS, ADDITEMS, SETITEM, SETITEMS
    /// or BUILD); `None` if the object never changed. Changes of contained objects do not count.
    ///
    /// A call sees an argument in its state at the time of the call: if this offset is greater than the call's
    /// [`offset`](Self::offset), the argument changed after the call.
    pub fn last_change(&self, id: ObjectId) -> Option<u64> {
        match self.get(id) {
            Object::List(items) | Object::Set(items) => items.last_change(),
            Object::Dict(entries) => entries.last_change(),
            _ => self.recorded_changes(id)?.last_change(),
        }
    }

    /// Returns true if an instruction after `offset` changed the object.
    pub fn changed_after(&self, id: ObjectId, offset: u64) -> bool {
        self.last_change(id).is_some_and(|changed| changed > offset)
    }

    fn names<'a>(&'a self, global: &'a Global<'p>) -> Option<(&'a str, &'a str)> {
        match &global.0 {
            GlobalNames::Inline { module, name } => Some((module, name)),
            GlobalNames::Stack { module, name } => Some((self.name(*module)?, self.name(*name)?)),
        }
    }

    /// Returns the text of a `str` or byte string that can be the module or name of a global.
    pub(crate) fn name(&self, id: ObjectId) -> Option<&str> {
        match self.get(id) {
            Object::Text(text) => text.as_str(),
            Object::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    #[inline]
    fn span(&self, span: ItemSpan) -> &[ObjectId] {
        let start = span.start as usize;
        self.items.get(start..start.saturating_add(span.len as usize)).unwrap_or_default()
    }

    /// Adds an object. Returns `None` if there are no ids left.
    #[inline]
    pub(crate) fn push(&mut self, object: Object<'p>, offset: u64) -> Option<ObjectId> {
        // `u32::MAX` is never an id: the memo marks absent entries with it.
        let id = ObjectId(self.len);
        self.len = self.len.checked_add(1)?;
        if (self.epochs.len() as u64) < offset >> 32 || (id.0 as usize).is_multiple_of(CHUNK_OBJECTS) {
            self.grow(id, offset);
        }
        match object {
            Object::Persistent(_) => self.persistent.push(id),
            Object::Global(_) => self.globals.push(id),
            _ => {}
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
        if (id.0 as usize).is_multiple_of(CHUNK_OBJECTS) {
            // The first chunk grows as needed, so that a small pickle takes little memory.
            let room = if id.0 == 0 { 0 } else { CHUNK_OBJECTS };
            self.chunks
                .push(ObjectChunk { objects: Vec::with_capacity(room), offsets: Vec::with_capacity(room) });
        }
    }

    pub(crate) fn nbytes(&self) -> usize {
        let objects = self.len().saturating_mul(size_of::<Object<'_>>().saturating_add(size_of::<u32>()));
        let ids = [&self.items, &self.changed, &self.globals, &self.persistent, &self.dropped];
        let ids = ids.iter().fold(0_usize, |sum, ids| sum.saturating_add(ids.capacity()));
        objects.saturating_add(ids.saturating_mul(size_of::<ObjectId>()))
    }

    /// Stores the items of a tuple or frozenset. Returns `None` if their indexes do not fit 32 bits.
    pub(crate) fn push_items(&mut self, items: &[ObjectId]) -> Option<ItemSpan> {
        let span =
            ItemSpan { start: u32::try_from(self.items.len()).ok()?, len: u32::try_from(items.len()).ok()? };
        self.items.extend_from_slice(items);
        Some(span)
    }

    pub(crate) fn get_mut(&mut self, id: ObjectId) -> &mut Object<'p> {
        self.chunks
            .get_mut((id.0 >> CHUNK_BITS) as usize)
            .and_then(|chunk| chunk.objects.get_mut(id.0 as usize % CHUNK_OBJECTS))
            .expect("ids come from this heap, which never shrinks")
    }

    /// Records an object that was discarded from the stack, except small objects such as numbers and globals.
    pub(crate) fn record_dropped(&mut self, id: ObjectId) {
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

    /// Returns the changes of an object, to add another change; `None` for types whose contents the heap holds itself.
    pub(crate) fn changes_mut(&mut self, id: ObjectId) -> Option<&mut RecordedChanges> {
        let is_instance = match self.get(id) {
            Object::Instance(_) => true,
            Object::Global(_) | Object::Persistent(_) | Object::Extension(_) | Object::ByteArray(_) => false,
            _ => return None,
        };
        if !is_instance {
            return Some(self.recorded.entry(id).or_default());
        }
        if self.recorded_changes(id).is_none_or(|recorded| recorded.last_change().is_none()) {
            self.changed.push(id);
        }
        self.recorded_mut(id)
    }

    /// Returns the changes and keyword arguments of an instance.
    pub(crate) fn recorded_mut(&mut self, id: ObjectId) -> Option<&mut RecordedChanges> {
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

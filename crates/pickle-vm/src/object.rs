//! Objects that a pickle builds, as inert records: no class or function is looked up or called.
//!
//! Source: the stack objects of CPython's `Lib/pickletools.py`. An `Instance` records the call that REDUCE, NEWOBJ,
//! `NEWOBJ_EX`, INST or OBJ would have made.

use std::fmt;

use crate::integer::Long;
use crate::limits::ALLOCATION;
use crate::value::{ByteString, Text};

/// Identifier of an object in its [`Heap`](crate::Heap). Equal ids are the same object, like `is` in Python.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ObjectId(pub(crate) u32);

impl ObjectId {
    /// Returns the object's position in creation order.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One object of a pickle. Contained objects are ids, so that dropping, cloning and printing never recurse.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Object<'p> {
    /// Python's `None`. A heap has at most one `None`, and at most one of each bool, of the empty tuple and of each int
    /// from 0 to 255.
    None,
    Bool(bool),
    /// An int that fits an `i64`.
    Int(i64),
    /// An int that does not fit an `i64`.
    Long(Long<'p>),
    Float(f64),
    /// A Python 3 `str` or Python 2 `unicode`.
    Text(Text<'p>),
    /// A Python 2 `str`: bytes that may represent text.
    String(ByteString<'p>),
    Bytes(&'p [u8]),
    ByteArray(&'p [u8]),
    /// A tuple; [`Heap::items`](crate::Heap::items) returns its items.
    Tuple(ItemSpan),
    /// A list; [`Heap::items`](crate::Heap::items) returns its items.
    List(ItemList),
    /// A dict; [`Heap::entries`](crate::Heap::entries) returns its entries.
    Dict(DictEntries),
    /// A set; [`Heap::items`](crate::Heap::items) returns its items, duplicates kept.
    Set(ItemList),
    /// A frozenset; [`Heap::items`](crate::Heap::items) returns its items, duplicates kept.
    FrozenSet(ItemSpan),
    /// A class or a function by name; [`Heap::global`](crate::Heap::global) returns its module and name.
    Global(Box<Global<'p>>),
    /// A recorded call that would have produced the object.
    Instance(Instance),
    /// An object outside the pickle, identified by its persistent id.
    Persistent(ObjectId),
    /// A global identified by its code in Python's `copyreg` registry.
    Extension(u32),
    /// An out-of-band buffer, stored outside the pickle (PEP 574).
    Buffer {
        /// Index of the buffer in the order of the `NEXT_BUFFER` opcodes, from 0.
        index: u32,
        /// True if `READONLY_BUFFER` was applied.
        readonly: bool,
    },
}

const _: () = assert!(size_of::<Object<'_>>() <= 24, "the memory figures in the crate docs assume 24 bytes");

impl Object<'_> {
    /// Returns the name of the object's Python type, such as `dict`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Object::None => "None",
            Object::Bool(_) => "bool",
            Object::Int(_) | Object::Long(_) => "int",
            Object::Float(_) => "float",
            Object::Text(_) => "str",
            Object::String(_) => "Python 2 str",
            Object::Bytes(_) => "bytes",
            Object::ByteArray(_) => "bytearray",
            Object::Tuple(_) => "tuple",
            Object::List(_) => "list",
            Object::Dict(_) => "dict",
            Object::Set(_) => "set",
            Object::FrozenSet(_) => "frozenset",
            Object::Global(_) => "global",
            Object::Instance(_) => "instance",
            Object::Persistent(_) => "persistent object",
            Object::Extension(_) => "extension",
            Object::Buffer { .. } => "buffer",
        }
    }
}

impl Object<'_> {
    /// Returns the bytes of the blocks that a new object owns. Later blocks are counted when they grow.
    pub(crate) fn owned_nbytes(&self) -> usize {
        match self {
            Object::Global(_) => size_of::<Global<'_>>().saturating_add(ALLOCATION),
            Object::Text(text) => text.owned_nbytes(),
            Object::String(bytes) => bytes.owned_nbytes(),
            Object::Long(value) => value.owned_nbytes(),
            _ => 0,
        }
    }
}

/// Range of a tuple's or frozenset's items in the heap's item array.
#[derive(Clone, Copy, Debug)]
pub struct ItemSpan {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// Growable list of items; an empty list owns no memory.
#[derive(Clone, Debug, Default)]
pub struct ItemList {
    items: ThinVec<ObjectId>,
    changed: LastChange,
}

/// Dict entries in insertion order, duplicates kept; an empty dict owns no memory.
#[derive(Clone, Debug, Default)]
pub struct DictEntries {
    entries: ThinVec<(ObjectId, ObjectId)>,
    changed: LastChange,
}

/// Offset of the last instruction that changed a container; 0 if no instruction changed it, because the first
/// instruction of a pickle cannot change an object. It does not enlarge an [`Object`], which has 24 bytes anyway.
#[derive(Clone, Copy, Debug, Default)]
struct LastChange(u64);

impl LastChange {
    fn get(self) -> Option<u64> {
        (self.0 != 0).then_some(self.0)
    }
}

/// Vector of eight bytes inline, where `Vec` has 24.
#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "16 bytes fewer in each of a million objects")]
struct ThinVec<T>(Option<Box<Vec<T>>>);

impl<T> Default for ThinVec<T> {
    fn default() -> Self {
        ThinVec(None)
    }
}

impl<T> ThinVec<T> {
    fn get(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Appends `items`. Returns the number of bytes that were allocated for them.
    fn extend(&mut self, items: impl Iterator<Item = T>) -> usize {
        let mut items = items.peekable();
        if items.peek().is_none() {
            return 0;
        }
        let header = if self.0.is_none() { size_of::<Vec<T>>().saturating_add(ALLOCATION) } else { 0 };
        let vec = self.0.get_or_insert_default();
        let before = vec.capacity();
        vec.extend(items);
        let grown = vec.capacity().saturating_sub(before).saturating_mul(size_of::<T>());
        let block = if before == 0 { ALLOCATION } else { 0 };
        header.saturating_add(grown).saturating_add(block)
    }
}

impl ItemList {
    /// Creates a list with its initial items. Returns the bytes that were allocated, too.
    pub(crate) fn new(items: &[ObjectId]) -> (Self, usize) {
        let mut new = ItemList::default();
        let allocated = new.items.extend(items.iter().copied());
        (new, allocated)
    }

    /// Returns the items in insertion order.
    pub fn get(&self) -> &[ObjectId] {
        self.items.get()
    }

    /// Returns the offset of the last instruction that added an item; `None` if all items are initial ones.
    pub fn last_change(&self) -> Option<u64> {
        self.changed.get()
    }

    /// Appends items. Returns the bytes that were allocated.
    pub(crate) fn extend(&mut self, items: &[ObjectId], offset: u64) -> usize {
        self.changed = LastChange(offset);
        self.items.extend(items.iter().copied())
    }
}

impl DictEntries {
    /// Creates a dict with its initial entries; keys and values alternate in `items`. Returns the bytes that were
    /// allocated, too.
    pub(crate) fn new(items: &[ObjectId]) -> (Self, usize) {
        let mut new = DictEntries::default();
        let allocated = new.entries.extend(pairs(items));
        (new, allocated)
    }

    /// Returns the entries in insertion order.
    pub fn get(&self) -> &[(ObjectId, ObjectId)] {
        self.entries.get()
    }

    /// Returns the offset of the last instruction that added an entry; `None` if all entries are initial ones.
    pub fn last_change(&self) -> Option<u64> {
        self.changed.get()
    }

    /// Appends entries; keys and values alternate in `items`. Returns the bytes that were allocated.
    pub(crate) fn extend(&mut self, items: &[ObjectId], offset: u64) -> usize {
        self.changed = LastChange(offset);
        self.entries.extend(pairs(items))
    }
}

/// Module and name of a global.
#[derive(Clone, Debug)]
pub struct Global<'p>(pub(crate) GlobalNames<'p>);

#[derive(Clone, Debug)]
pub(crate) enum GlobalNames<'p> {
    /// Module and name in the argument of GLOBAL or INST.
    Inline { module: &'p str, name: &'p str },
    /// Module and name as objects that `STACK_GLOBAL` popped.
    Stack { module: ObjectId, name: ObjectId },
}

/// The opcode that recorded an instance, which determines the recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Construction {
    /// Recorded by REDUCE: `callable(*args)`.
    Reduce,
    /// Recorded by NEWOBJ: `callable.__new__(callable, *args)`.
    NewObj,
    /// Recorded by `NEWOBJ_EX`: `callable.__new__(callable, *args, **kwargs)`.
    NewObjEx,
    /// Recorded by INST: `callable(*args)`, with the class named by the instruction.
    Inst,
    /// Recorded by OBJ: `callable(*args)`.
    Obj,
}

impl Construction {
    /// Returns the opcode of this construction.
    pub fn opcode(self) -> crate::Opcode {
        match self {
            Construction::Reduce => crate::Opcode::Reduce,
            Construction::NewObj => crate::Opcode::NewObj,
            Construction::NewObjEx => crate::Opcode::NewObjEx,
            Construction::Inst => crate::Opcode::Inst,
            Construction::Obj => crate::Opcode::Obj,
        }
    }
}

impl fmt::Display for Construction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.opcode().name())
    }
}

/// A call that was recorded instead of executed, and the changes that the pickle made to its result.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The object that would have been called: usually a global, but any object is possible.
    pub callable: ObjectId,
    /// Tuple of the arguments, or a recorded instance of a subclass of tuple.
    pub args: ObjectId,
    pub construction: Construction,
    pub(crate) recorded: Option<Box<RecordedChanges>>,
}

impl Instance {
    /// Returns the dict of keyword arguments (or a recorded instance of a dict subclass), which only `NEWOBJ_EX` has.
    pub fn kwargs(&self) -> Option<ObjectId> {
        self.recorded.as_ref()?.kwargs
    }

    /// Returns the entries that SETITEM and SETITEMS set on the object, in order, duplicates kept.
    pub fn items(&self) -> &[(ObjectId, ObjectId)] {
        self.recorded.as_ref().map_or(&[], |recorded| recorded.items())
    }

    /// Returns the items that APPEND, APPENDS and ADDITEMS added to the object, in order.
    pub fn appends(&self) -> &[ObjectId] {
        self.recorded.as_ref().map_or(&[], |recorded| recorded.appends())
    }

    /// Returns the states that BUILD set on the instance, in order: each is a dict, a tuple of a dict and a slots dict,
    /// or any argument of its `__setstate__`.
    pub fn state(&self) -> &[ObjectId] {
        self.recorded.as_ref().map_or(&[], |recorded| recorded.state())
    }
}

/// Changes that a pickle made to an object whose contents only its class knows.
#[derive(Clone, Debug, Default)]
pub struct RecordedChanges {
    pub(crate) kwargs: Option<ObjectId>,
    items: ThinVec<(ObjectId, ObjectId)>,
    appends: ThinVec<ObjectId>,
    state: ThinVec<ObjectId>,
    changed: LastChange,
    /// Offset of each BUILD that is not the last change.
    earlier_builds: ThinVec<u64>,
}

impl RecordedChanges {
    /// Returns the entries that SETITEM and SETITEMS set on the object, in order, duplicates kept.
    pub fn items(&self) -> &[(ObjectId, ObjectId)] {
        self.items.get()
    }

    /// Returns the items that APPEND, APPENDS and ADDITEMS added to the object, in order.
    pub fn appends(&self) -> &[ObjectId] {
        self.appends.get()
    }

    /// Returns the states that BUILD set on the object, in order.
    pub fn state(&self) -> &[ObjectId] {
        self.state.get()
    }

    /// Returns the states that BUILD set on the object, each with the offset of its BUILD. A state object that changed
    /// after that offset had other contents when BUILD took it.
    pub fn states_with_offsets(&self) -> impl Iterator<Item = (ObjectId, u64)> + '_ {
        let offsets = self.earlier_builds.get().iter().copied().chain(self.changed.get());
        self.state().iter().copied().zip(offsets)
    }

    /// Returns the offset of the last instruction that changed the object; `None` if no instruction did. Keyword
    /// arguments are part of the call and not a change.
    pub fn last_change(&self) -> Option<u64> {
        self.changed.get()
    }

    /// Records entries. Returns the bytes that were allocated, as the next two functions do.
    pub(crate) fn add_items(&mut self, items: &[ObjectId], offset: u64) -> usize {
        self.change(offset).saturating_add(self.items.extend(pairs(items)))
    }

    pub(crate) fn append(&mut self, items: &[ObjectId], offset: u64) -> usize {
        self.change(offset).saturating_add(self.appends.extend(items.iter().copied()))
    }

    pub(crate) fn build(&mut self, state: ObjectId, offset: u64) -> usize {
        self.change(offset).saturating_add(self.state.extend(std::iter::once(state)))
    }

    fn change(&mut self, offset: u64) -> usize {
        let is_later_build = self.state.get().len() > self.earlier_builds.get().len();
        let earlier = self.changed.get().filter(|_| is_later_build);
        self.changed = LastChange(offset);
        self.earlier_builds.extend(earlier.into_iter())
    }
}

/// Pairs alternating keys and values.
fn pairs(items: &[ObjectId]) -> impl Iterator<Item = (ObjectId, ObjectId)> + '_ {
    items.as_chunks().0.iter().map(|&[key, value]| (key, value))
}

//! The objects that a pickle builds, as inert records: none was looked up or called.
//!
//! The kinds are those of the stack objects in CPython's `Lib/pickletools.py`; `Instance` is what REDUCE, NEWOBJ,
//! `NEWOBJ_EX`, INST and OBJ would have called.

use std::fmt;

use crate::value::{ByteString, Long, Text};

/// The name of an object in its [`Heap`](crate::Heap): equal ids are the same object, like `is` in Python.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ObjectId(pub(crate) u32);

impl ObjectId {
    /// Its position in the order in which the objects were made.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One object of a pickle. It contains other objects as ids, so that dropping, cloning and printing never recurse.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Object<'p> {
    /// `None`. A heap has at most one, and at most one of each bool, of the empty tuple and of each int from 0 to 255.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An int that fits an `i64`.
    Int(i64),
    /// A larger int.
    Long(Long<'p>),
    /// A float.
    Float(f64),
    /// A `str`.
    Text(Text<'p>),
    /// A Python 2 `str`: bytes that may represent text.
    String(ByteString<'p>),
    /// A `bytes`.
    Bytes(&'p [u8]),
    /// A `bytearray`.
    ByteArray(&'p [u8]),
    /// A tuple; [`Heap::items`](crate::Heap::items) has its items.
    Tuple(Span),
    /// A list; [`Heap::items`](crate::Heap::items) has its items.
    List(Items),
    /// A dict; [`Heap::entries`](crate::Heap::entries) has its entries.
    Dict(Entries),
    /// A set; [`Heap::items`](crate::Heap::items) has its items, duplicates kept.
    Set(Items),
    /// A frozenset; [`Heap::items`](crate::Heap::items) has its items, duplicates kept.
    FrozenSet(Span),
    /// A class or a function by name; [`Heap::global`](crate::Heap::global) has the names.
    Global(Box<Global<'p>>),
    /// The recorded call that would have produced the object.
    Instance(Instance),
    /// An object outside the pickle, by its persistent id.
    Persistent(ObjectId),
    /// A global by its code in Python's `copyreg` registry.
    Extension(u32),
    /// Data stored outside the pickle (PEP 574).
    Buffer {
        /// Its index, counted from 0 in the order of `NEXT_BUFFER`.
        index: u32,
        /// Whether `READONLY_BUFFER` was applied.
        readonly: bool,
    },
}

const _: () = assert!(size_of::<Object<'_>>() <= 24, "the memory figures in the crate docs assume 24 bytes");

impl Object<'_> {
    /// The name of its type in Python, such as `dict`.
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

/// Where a heap keeps the items of an immutable sequence.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// A growable list of items; an empty one owns no memory.
#[derive(Clone, Debug, Default)]
pub struct Items {
    items: Grow<ObjectId>,
    changed: Changed,
}

/// Dict entries in the order of their insertion, duplicates kept; an empty one owns no memory.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    entries: Grow<(ObjectId, ObjectId)>,
    changed: Changed,
}

/// The offset of the last instruction that added something. 0 stands for none: the first instruction of a pickle has
/// nothing to change. It takes room that an [`Object`] has anyway.
#[derive(Clone, Copy, Debug, Default)]
struct Changed(u64);

impl Changed {
    fn get(self) -> Option<u64> {
        (self.0 != 0).then_some(self.0)
    }
}

/// Eight bytes where a `Vec` has 24.
#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "16 bytes fewer in each of a million objects")]
struct Grow<T>(Option<Box<Vec<T>>>);

impl<T> Default for Grow<T> {
    fn default() -> Self {
        Grow(None)
    }
}

impl<T> Grow<T> {
    fn get(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    fn extend(&mut self, items: impl Iterator<Item = T>) {
        let mut items = items.peekable();
        if items.peek().is_some() {
            self.0.get_or_insert_default().extend(items);
        }
    }
}

impl Items {
    /// Items that an instruction made together with the list.
    pub(crate) fn new(items: &[ObjectId]) -> Self {
        let mut new = Items::default();
        new.items.extend(items.iter().copied());
        new
    }

    /// The items.
    pub fn get(&self) -> &[ObjectId] {
        self.items.get()
    }

    /// The offset of the last instruction that added an item, unless all were there from the start.
    pub fn changed(&self) -> Option<u64> {
        self.changed.get()
    }

    pub(crate) fn extend(&mut self, items: &[ObjectId], offset: u64) {
        self.items.extend(items.iter().copied());
        self.changed = Changed(offset);
    }
}

impl Entries {
    /// Entries that an instruction made together with the dict; keys and values alternate.
    pub(crate) fn new(items: &[ObjectId]) -> Self {
        let mut new = Entries::default();
        new.entries.extend(pairs(items));
        new
    }

    /// The entries.
    pub fn get(&self) -> &[(ObjectId, ObjectId)] {
        self.entries.get()
    }

    /// The offset of the last instruction that added an entry, unless all were there from the start.
    pub fn changed(&self) -> Option<u64> {
        self.changed.get()
    }

    /// Adds keys and values that alternate.
    pub(crate) fn extend(&mut self, items: &[ObjectId], offset: u64) {
        self.entries.extend(pairs(items));
        self.changed = Changed(offset);
    }
}

/// The names of a global.
#[derive(Clone, Debug)]
pub struct Global<'p>(pub(crate) Names<'p>);

#[derive(Clone, Debug)]
pub(crate) enum Names<'p> {
    /// In the argument of GLOBAL or INST.
    Inline { module: &'p str, name: &'p str },
    /// `STACK_GLOBAL` takes them from the stack.
    Stack { module: ObjectId, name: ObjectId },
}

/// Which opcode recorded an instance, and so how it would have been created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Construction {
    /// REDUCE: `callable(*args)`.
    Reduce,
    /// NEWOBJ: `callable.__new__(callable, *args)`.
    NewObj,
    /// `NEWOBJ_EX`: `callable.__new__(callable, *args, **kwargs)`.
    NewObjEx,
    /// INST: `callable(*args)`, with the class named by the instruction.
    Inst,
    /// OBJ: `callable(*args)`.
    Obj,
}

impl Construction {
    /// The opcode that makes such an instance.
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
    /// What would have been called: usually a global, but it can be any object.
    pub callable: ObjectId,
    /// The tuple of its arguments, or a recorded instance of a subclass of tuple.
    pub args: ObjectId,
    /// Which opcode recorded it.
    pub how: Construction,
    pub(crate) recorded: Option<Box<Recorded>>,
}

impl Instance {
    /// The dict of keyword arguments (or a recorded instance of a subclass), which only `NEWOBJ_EX` has.
    pub fn kwargs(&self) -> Option<ObjectId> {
        self.recorded.as_ref()?.kwargs
    }

    /// What SETITEM and SETITEMS set on it, in order, duplicates kept.
    pub fn items(&self) -> &[(ObjectId, ObjectId)] {
        self.recorded.as_ref().map_or(&[], |recorded| recorded.items())
    }

    /// What APPEND, APPENDS and ADDITEMS added to it, in order.
    pub fn appends(&self) -> &[ObjectId] {
        self.recorded.as_ref().map_or(&[], |recorded| recorded.appends())
    }

    /// The states that BUILD gave it, in order: each a dict, a tuple of a dict and a slots dict, or whatever its
    /// `__setstate__` takes.
    pub fn state(&self) -> &[ObjectId] {
        self.recorded.as_ref().map_or(&[], |recorded| recorded.state())
    }
}

/// The changes that a pickle made to an object whose contents only its class knows.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    pub(crate) kwargs: Option<ObjectId>,
    items: Grow<(ObjectId, ObjectId)>,
    appends: Grow<ObjectId>,
    state: Grow<ObjectId>,
    changed: Changed,
    /// The offset of each BUILD that is not the last change.
    earlier: Grow<u64>,
}

impl Recorded {
    /// What SETITEM and SETITEMS set on it, in order, duplicates kept.
    pub fn items(&self) -> &[(ObjectId, ObjectId)] {
        self.items.get()
    }

    /// What APPEND, APPENDS and ADDITEMS added to it, in order.
    pub fn appends(&self) -> &[ObjectId] {
        self.appends.get()
    }

    /// The states that BUILD gave it, in order.
    pub fn state(&self) -> &[ObjectId] {
        self.state.get()
    }

    /// The states that BUILD gave it, each with the offset of its BUILD. A state that changed after that offset had other
    /// contents when BUILD took it.
    pub fn built(&self) -> impl Iterator<Item = (ObjectId, u64)> + '_ {
        let offsets = self.earlier.get().iter().copied().chain(self.changed.get());
        self.state().iter().copied().zip(offsets)
    }

    /// The offset of the last instruction that changed the object; `None` if there is none (keyword arguments are not a
    /// change).
    pub fn changed(&self) -> Option<u64> {
        self.changed.get()
    }

    pub(crate) fn add_items(&mut self, items: &[ObjectId], offset: u64) {
        self.change(offset);
        self.items.extend(pairs(items));
    }

    pub(crate) fn append(&mut self, items: &[ObjectId], offset: u64) {
        self.change(offset);
        self.appends.extend(items.iter().copied());
    }

    pub(crate) fn build(&mut self, state: ObjectId, offset: u64) {
        self.change(offset);
        self.state.extend(std::iter::once(state));
    }

    fn change(&mut self, offset: u64) {
        if self.state.get().len() > self.earlier.get().len() {
            self.earlier.extend(self.changed.get().into_iter());
        }
        self.changed = Changed(offset);
    }
}

/// Keys and values that alternate, as pairs.
fn pairs(items: &[ObjectId]) -> impl Iterator<Item = (ObjectId, ObjectId)> + '_ {
    items.as_chunks().0.iter().map(|&[key, value]| (key, value))
}

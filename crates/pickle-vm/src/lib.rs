//! A pickle virtual machine that imports and calls nothing: it turns instructions into inert objects.
//!
//! Python's pickles are programs: `pickle.load` runs them, and they may import and call any function. This crate runs
//! the same programs (protocols 0 to 5, all 68 opcodes) on the same stack, metastack and memo. Where CPython looks up
//! or calls an object, this crate records: a GLOBAL becomes a module and a name, a REDUCE becomes an [`Instance`] with
//! its callable and its arguments, a persistent id stays an id. A pickle cannot reach any code through this crate.
//!
//! ```
//! // {'epoch': 7, 'weights': collections.OrderedDict()}
//! let bytes = b"\x80\x02}(X\x05\0\0\0epochK\x07X\x07\0\0\0weightsccollections\nOrderedDict\n)Ru.";
//!
//! let pickle = pickle_vm::load(bytes)?;
//! let heap = &pickle.heap;
//! let [(_, epoch), (_, weights)] = heap.entries(pickle.root).unwrap_or_default() else { panic!("two entries") };
//! assert_eq!(heap.int(*epoch), Some(7));
//! let instance = heap.instance(*weights).expect("REDUCE records an instance");
//! assert_eq!(heap.global(instance.callable), Some(("collections", "OrderedDict")));
//! assert_eq!(heap.display(pickle.root).to_string(), "{'epoch': 7, 'weights': collections.OrderedDict()}");
//! # Ok::<(), pickle_vm::Error>(())
//! ```
//!
//! # Contents
//!
//! | | | in Python |
//! |---|---|---|
//! | [`load`], [`load_with`] | bytes to a [`Pickle`]: the usual entry point | `pickle.loads` |
//! | [`Heap`], [`Object`], [`ObjectId`] | the objects of a pickle, with queries | the objects |
//! | [`Reader`], [`Instruction`] | bytes to instructions, without executing them | `pickletools.genops` |
//! | [`Machine`] | instructions to objects, one step at a time | `pickle._Unpickler` |
//! | [`trace`] | an execution printed step by step, or a listing | `pickletools.dis` |
//! | [`Opcode`] | the table of opcodes: byte, argument, stack effect, protocol, description | `pickletools.opcodes` |
//! | [`Writer`] | opcodes to bytes, at protocol 2 | `pickle._Pickler` |
//!
//! The example `walk` reads a pickle and walks its objects; the example `trace` prints a pickle in each of the
//! available views.
//!
//! # Objects are ids
//!
//! The memo makes pickles graphs: two names may refer to the same list, and a list may contain itself. Objects
//! therefore live in one arena, the [`Heap`], and contain each other as [`ObjectId`]s of four bytes. Python's `a is b`
//! is `==` on ids. Dropping, cloning and printing never recurse, however deep a pickle nests.
//!
//! Changes that a pickle makes to an object after creating it are recorded on the object, in order and with duplicates:
//! SETITEMS and APPENDS on a dict or a list, and also BUILD on an [`Instance`], where only the class knows their
//! meaning. Text with lone surrogates is kept ([`Text`]), integers have any size ([`Long`]), Python 2 strings stay
//! bytes ([`Object::String`]), extension codes and out-of-band buffers are recorded as such.
//!
//! A call sees its arguments in their state at the time of the call, but the heap holds every object in its final
//! state. Each object therefore has the offset of its last change ([`Heap::last_change`]), and each BUILD state the offset
//! of its BUILD ([`RecordedChanges::states_with_offsets`]): a caller can tell if an argument changed after the call.
//!
//! # Cost of untrusted bytes
//!
//! - No panic, no recursion, no `unsafe`. Each length is checked against the remaining bytes before memory is
//!   allocated. Every error names the instruction and its offset: ``stack underflow at offset 0x4 (REDUCE)``.
//! - Time is linear in the length of the pickle. Text, bytes and long integers are borrowed from the pickle; only
//!   protocol 0 text with escapes is copied. One core reads about 150 MB/s of the pickles that `torch.save` writes (48
//!   million opcodes a second; `cargo bench -p pickle-vm` measures the current machine).
//! - Memory is at most 8 times the length of the pickle plus 16 MB for pickles that `torch.save` writes (measured: 4.1
//!   times), and at most 64 times plus 16 MB for any pickle (the worst case in the tests takes 57 times). An object
//!   takes 24 bytes and its offset 4; a memo key costs the same whatever its value.
//! - [`PickleLimits`] bound the numbers of opcodes, objects, memo entries and bytes of text, and the memory. The defaults
//!   accept a checkpoint of 1,000,000 tensors. A pickle that was compressed is read with
//!   [`PickleLimits::for_stored`], whose limits follow the bytes that store it.
//!
//! # Out of scope
//!
//! PyTorch, NumPy and all other classes: this crate does not know the meaning of an instance. It writes only protocol
//! 2, and it does not join a pickle with its out-of-band buffers.
//!
//! # Sources
//!
//! CPython: `Lib/pickletools.py` for the table of opcodes and the arguments, `Lib/pickle.py` and `Modules/_pickle.c`
//! for the effects of the opcodes. The tests compare the listings and values of thousands of generated pickles with
//! CPython's.

#![forbid(unsafe_code)]

mod error;
mod heap;
mod integer;
mod limits;
mod literal;
mod machine;
mod memo;
mod object;
mod opcode;
mod pickle;
mod reader;
pub mod trace;
mod value;
mod writer;

pub use error::{Error, ErrorKind, Result};
pub use heap::{Heap, Pickle};
pub use integer::Long;
pub use limits::{MEMORY_CHECK_INTERVAL, PickleLimit, PickleLimits};
pub use machine::Machine;
pub use object::{
    Construction, DictEntries, Global, Instance, ItemList, ItemSpan, Object, ObjectId, RecordedChanges,
};
pub use opcode::{ArgKind, Opcode, OpcodeInfo, StackItem};
pub use pickle::{load, load_with};
pub use reader::{Arg, Instruction, Reader};
pub use value::{ByteString, Text};
pub use writer::{MemoId, Writer};

/// The Rust of the README, which the tests compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

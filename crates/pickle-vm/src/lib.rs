//! A pickle virtual machine that executes nothing: instructions in, inert objects out.
//!
//! Python's pickles are programs. A process that loads one with `pickle.load` runs it, and it may import and call whatever
//! it names. This crate runs the same programs, protocols 0 to 5 with all 68 opcodes, on the same stack, metastack and
//! memo. But where CPython looks up or calls, this crate records: a GLOBAL is two names, a REDUCE is an [`Instance`] with
//! its callable and its arguments, a persistent id stays an id. There is nothing in this crate that a pickle could reach.
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
//! # What is here
//!
//! | | | in Python |
//! |---|---|---|
//! | [`load`], [`load_with`] | bytes to a [`Pickle`]: the usual entry point | `pickle.loads` |
//! | [`Heap`], [`Object`], [`ObjectId`] | what a pickle built, and how to query it | the objects |
//! | [`Reader`], [`Instruction`] | bytes to instructions, without executing them | `pickletools.genops` |
//! | [`Machine`] | instructions to objects, one step at a time | `pickle._Unpickler` |
//! | [`trace`] | an execution shown step by step, or a listing | `pickletools.dis` |
//! | [`Opcode`] | the table of opcodes: byte, argument, stack effect, protocol, prose | `pickletools.opcodes` |
//! | [`Writer`] | opcodes to bytes, at protocol 2 | `pickle._Pickler` |
//!
//! The example `walk` reads a pickle and walks its objects; `trace` prints one in each of the available views.
//!
//! # Objects are ids
//!
//! The memo makes pickles graphs: two names may refer to the same list, and a list may contain itself. So objects live in one arena,
//! the [`Heap`], and contain one another as [`ObjectId`]s of four bytes. `a is b` is `==`; dropping, cloning and printing
//! never recurse, however deep a pickle nests.
//!
//! What a pickle does to an object after creating it is recorded on the object, in order and with duplicates: SETITEMS and
//! APPENDS on a dict or a list, and also BUILD on an [`Instance`], where only the class knows what they mean. Text with lone
//! surrogates is kept ([`Text`]), integers have any size ([`Long`]), Python 2's strings stay bytes ([`Object::String`]),
//! extension codes and out-of-band buffers are recorded as such.
//!
//! A call sees its arguments as they are at that time, but the heap has every object in its final state. So each object
//! knows when it changed last ([`Heap::changed`]), and each BUILD when it took its state ([`Recorded::built`]): a reader of
//! a call can tell whether an argument changed afterwards.
//!
//! # What untrusted bytes can cost
//!
//! - No panic, no recursion, no `unsafe`. Lengths are checked against the bytes that are left before anything is
//!   allocated. Every error names the instruction and its offset: ``stack underflow at offset 0x4 (REDUCE)``.
//! - Time is linear in the pickle. Text, bytes and long integers are borrowed from it; only protocol 0 text with escapes is
//!   copied. One core reads about 150 MB/s of what `torch.save` writes (48 million opcodes a second;
//!   `cargo bench -p pickle-vm` measures yours).
//! - Memory is at most 8 times the pickle and 16 MB for what `torch.save` writes (it takes 4.1 times), at most 64 times
//!   and 16 MB for any pickle (the worst case in its tests takes 57 times). An object is 24 bytes and its offset 4;
//!   a memo key costs the same whatever its value.
//! - [`Limits`] bound opcodes, objects, memo entries and bytes of text. The defaults accept a checkpoint of 1,000,000
//!   tensors.
//!
//! # What is not here
//!
//! PyTorch, NumPy or any other class: this crate does not know what an instance means. It writes only protocol 2, and it
//! does not join a pickle with its out-of-band buffers.
//!
//! # Where the facts come from
//!
//! CPython: `Lib/pickletools.py` for the table and the arguments, `Lib/pickle.py` and `Modules/_pickle.c` for what an opcode
//! does. The tests compare the listings and values of thousands of generated pickles with CPython's.

#![forbid(unsafe_code)]

mod error;
mod heap;
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
pub use limits::{Limit, Limits};
pub use machine::Machine;
pub use object::{Construction, Entries, Global, Instance, Items, Object, ObjectId, Recorded, Span};
pub use opcode::{ArgKind, Opcode, OpcodeInfo, StackItem};
pub use pickle::{load, load_with};
pub use reader::{Arg, Instruction, Reader};
pub use value::{ByteString, Long, Text};
pub use writer::{MemoId, Writer};

//! A pickle virtual machine that executes nothing: instructions in, inert objects out.
//!
//! Protocols 0 to 5, all 68 opcodes. A [`Reader`] decodes bytes into [`Instruction`]s, a [`Machine`] runs them on
//! stack, metastack and memo, and what is left is a [`Heap`] of [`Object`]s: a global is two names, a REDUCE is a
//! recorded [`Instance`], a persistent id stays an id. Nothing is looked up, imported or called.
//!
//! ```
//! let pickle = pickle_vm::load(b"\x80\x02}q\x00X\x05\x00\x00\x00epochq\x01K\x07s.")?;
//! let entries = pickle.heap.entries(pickle.root).unwrap_or_default();
//! for &(key, value) in entries {
//!     assert_eq!(pickle.heap.text(key).as_deref(), Some("epoch"));
//!     assert_eq!(pickle.heap.int(value), Some(7));
//! }
//! # Ok::<(), pickle_vm::Error>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod heap;
mod limits;
mod literal;
mod machine;
mod memo;
mod object;
mod opcode;
mod reader;
pub mod trace;
mod value;
mod writer;

pub use error::{Error, ErrorKind, Result};
pub use heap::Heap;
pub use limits::{Limit, Limits};
pub use machine::{Machine, Pickle, load, load_with};
pub use object::{Construction, Entries, Global, Instance, Items, Object, ObjectId, Recorded, Span};
pub use opcode::{ArgKind, Opcode, OpcodeInfo, StackItem};
pub use reader::{Arg, Instruction, Reader};
pub use value::{ByteString, Long, Text};
pub use writer::{MemoId, Writer};

//! Upper bounds on the cost of reading one pickle, checked while it is read.
//!
//! The defaults are enough for a checkpoint of 1,000,000 tensors: `torch.save` writes 30 opcodes, 11 objects and
//! 8 memo entries for each (measured with PyTorch 2.15).

use std::fmt;

/// Upper bounds for reading one pickle; exceeding one is an error that names it.
///
/// Memory needs no separate bound: each object, stack entry and memo entry takes bytes of the pickle to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions that are executed.
    pub opcodes: u64,
    /// Objects that are made.
    pub objects: u32,
    /// Memo entries.
    pub memo: u32,
    /// Bytes of text, byte strings and long integers, all together.
    pub text: u64,
    /// Levels of nesting that a walk, such as printing a value, descends.
    pub depth: u32,
    /// Bytes that may be read or printed more than once for each byte of the file: a view can repeat four bytes
    /// terabytes long, and a listing can print one object at each step. Use [`Limits::repeated_of`].
    pub repeats: u64,
    /// Bytes that may be read or printed more than once whatever the file's length is.
    pub repeated: u64,
}

impl Limits {
    /// Bytes that may be read or printed more than once, of a file of `len` bytes.
    ///
    /// ```
    /// use pickle_vm::Limits;
    ///
    /// let limits = Limits { repeats: 2, repeated: 10, ..Limits::default() };
    /// assert_eq!(limits.repeated_of(100), 210);
    /// ```
    pub fn repeated_of(&self, len: u64) -> u64 {
        len.saturating_mul(self.repeats).saturating_add(self.repeated)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            opcodes: 1 << 28,
            objects: 1 << 27,
            memo: 1 << 26,
            text: 1 << 32,
            depth: 100,
            repeats: 16,
            repeated: 256 << 20,
        }
    }
}

/// Which of the [`Limits`] was exceeded. A walk that reaches [`Limits::depth`] does not fail: it omits what is below.
/// What exceeds [`Limits::repeats`] and [`Limits::repeated`] is left out and reported by the reader that does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::opcodes`].
    Opcodes,
    /// [`Limits::objects`].
    Objects,
    /// [`Limits::memo`].
    Memo,
    /// [`Limits::text`].
    Text,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Opcodes => "opcodes",
            Limit::Objects => "objects",
            Limit::Memo => "memo entries",
            Limit::Text => "bytes of text",
        })
    }
}

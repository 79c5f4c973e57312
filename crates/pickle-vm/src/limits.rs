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
}

impl Default for Limits {
    fn default() -> Self {
        Limits { opcodes: 1 << 28, objects: 1 << 27, memo: 1 << 26, text: 1 << 32, depth: 100 }
    }
}

/// Which of the [`Limits`] was exceeded. (A walk that reaches [`Limits::depth`] does not fail: it omits what is below.)
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

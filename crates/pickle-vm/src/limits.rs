//! Upper bounds on the cost of reading one pickle, checked while it is read.
//!
//! The defaults are enough for a checkpoint of 1,000,000 tensors: `torch.save` writes 30 opcodes, 11 objects and
//! 8 memo entries for each (measured with PyTorch 2.15).

use std::fmt;

/// Upper bounds for reading one pickle. An exceeded limit is an error that names the limit.
///
/// Memory needs no separate bound: each object, stack item and memo entry takes at least one byte of the pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickleLimits {
    /// Maximum number of executed instructions.
    pub opcodes: u64,
    /// Maximum number of created objects.
    pub objects: u32,
    /// Maximum number of memo entries.
    pub memo: u32,
    /// Maximum total bytes of text, byte strings and long integers.
    pub text: u64,
    /// Maximum nesting depth of a walk over objects, such as printing a value.
    pub depth: u32,
    /// Bytes that may be read or printed repeatedly for each byte of the file: a tensor view can expand four bytes to
    /// terabytes, and a listing can print one object at each step. Use [`PickleLimits::repeat_budget`].
    pub repeats_per_byte: u64,
    /// Bytes that may be read or printed repeatedly, in addition, whatever the length of the file.
    pub repeats_base: u64,
}

impl PickleLimits {
    /// Returns the number of bytes that may be read or printed repeatedly for a file of `len` bytes.
    ///
    /// ```
    /// use pickle_vm::PickleLimits;
    ///
    /// let limits = PickleLimits { repeats_per_byte: 2, repeats_base: 10, ..PickleLimits::default() };
    /// assert_eq!(limits.repeat_budget(100), 210);
    /// ```
    pub fn repeat_budget(&self, len: u64) -> u64 {
        len.saturating_mul(self.repeats_per_byte).saturating_add(self.repeats_base)
    }
}

impl Default for PickleLimits {
    fn default() -> Self {
        PickleLimits {
            opcodes: 1 << 28,
            objects: 1 << 27,
            memo: 1 << 26,
            text: 1 << 32,
            depth: 100,
            repeats_per_byte: 16,
            repeats_base: 256 << 20,
        }
    }
}

/// The exceeded one of the [`PickleLimits`]. A walk that reaches [`PickleLimits::depth`] does not fail: it omits deeper objects.
/// Bytes beyond [`PickleLimits::repeats_per_byte`] and [`PickleLimits::repeats_base`] are omitted and reported by the reader of those bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PickleLimit {
    Opcodes,
    Objects,
    Memo,
    Text,
}

impl fmt::Display for PickleLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PickleLimit::Opcodes => "opcodes",
            PickleLimit::Objects => "objects",
            PickleLimit::Memo => "memo entries",
            PickleLimit::Text => "bytes of text",
        })
    }
}

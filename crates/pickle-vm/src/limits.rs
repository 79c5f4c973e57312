//! Upper bounds on the cost of reading one pickle, checked while it is read.
//!
//! The defaults are enough for a checkpoint of 1,000,000 tensors: `torch.save` writes 30 opcodes, 11 objects and
//! 8 memo entries for each (measured with PyTorch 2.15).

use std::fmt;

/// Bytes that an allocator adds to a small block.
pub(crate) const ALLOCATION: usize = 16;

/// Upper bounds for reading one pickle. An exceeded limit is an error that names the limit.
///
/// The defaults bound the work for any pickle by its length, because each object, stack item and memo entry takes at least
/// one byte of the pickle. A compressed pickle can be a thousand times as long as the bytes that store it: use
/// [`PickleLimits::for_stored`].
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
    /// Maximum bytes of memory that the objects, the stack and the memo take. The machine compares them once in
    /// [`MEMORY_CHECK_INTERVAL`] instructions.
    pub memory: u64,
    /// Maximum nesting depth of a walk over objects, such as printing a value.
    pub depth: u32,
    /// Bytes that may be read or printed repeatedly for each byte of the file: a tensor view can expand four bytes to
    /// terabytes, and a listing can print one object at each step. Use [`PickleLimits::repeat_budget`].
    pub repeats_per_byte: u64,
    /// Bytes that may be read or printed repeatedly, in addition, whatever the length of the file.
    pub repeats_base: u64,
}

/// Number of instructions after which the machine compares its memory with [`PickleLimits::memory`] again.
pub const MEMORY_CHECK_INTERVAL: u64 = 1024;

/// Bytes of memory that any pickle may take, and bytes more for each stored byte. `torch.save` needs 4 bytes for each byte
/// of an uncompressed pickle; a list with one item needs 31.
const MEMORY_BASE: u64 = 48 << 20;
const MEMORY_PER_STORED_BYTE: u64 = 16;
/// Instructions that any pickle may have, and instructions more for each stored byte.
const OPCODES_BASE: u64 = 4 << 20;
const OPCODES_PER_STORED_BYTE: u64 = 8;

impl PickleLimits {
    /// Returns the limits for a pickle that takes `stored` bytes of a file: fewer than its length if it is compressed.
    ///
    /// ```
    /// use pickle_vm::{PickleLimits, load_with};
    ///
    /// let dicts = [b"}".repeat(2_000_000), b".".to_vec()].concat();
    /// assert!(load_with(&dicts, &PickleLimits::for_stored(dicts.len() as u64)).is_ok());
    /// let error = load_with(&dicts, &PickleLimits::for_stored(10_000)).err().map(|error| error.to_string());
    /// assert!(error.is_some_and(|error| error.starts_with("more than 50491648 bytes of memory")));
    /// ```
    pub fn for_stored(stored: u64) -> Self {
        let per_byte = |times: u64, base: u64| stored.saturating_mul(times).saturating_add(base);
        let limits = PickleLimits::default();
        PickleLimits {
            opcodes: limits.opcodes.min(per_byte(OPCODES_PER_STORED_BYTE, OPCODES_BASE)),
            memory: limits.memory.min(per_byte(MEMORY_PER_STORED_BYTE, MEMORY_BASE)),
            ..limits
        }
    }

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
            memory: u64::MAX,
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
    Memory,
}

impl fmt::Display for PickleLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PickleLimit::Opcodes => "opcodes",
            PickleLimit::Objects => "objects",
            PickleLimit::Memo => "memo entries",
            PickleLimit::Text => "bytes of text",
            PickleLimit::Memory => "bytes of memory",
        })
    }
}

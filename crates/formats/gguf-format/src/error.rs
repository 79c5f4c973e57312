//! Errors of a GGUF file, and of tensors to be written into one.
//!
//! Each text is complete: a cause is printed within its error, so errors here have no `source`.

use byte_source::{ErrorKind, details};

use crate::{ALIGNMENT_KEY, MAX_DIMS, MAX_HEADER};

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a GGUF file is invalid, or why tensors cannot be written into one. Offsets are bytes from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that does not start with the letters GGUF.
    #[error("it does not start with `GGUF`")]
    Magic,
    /// A version that is not read.
    #[error("it has version {version} of GGUF, and only versions 2 and 3 are read")]
    Version { version: u32 },
    /// A file that ends within its header, or a header of which more must be read.
    #[error("it ends within its header, where bytes {at} to {end} are expected")]
    TruncatedHeader { at: u64, end: u64 },
    /// A text, an array or a list that is longer than the file.
    #[error("the header is damaged: {len} bytes are announced at byte {at}, more than the file has")]
    TooLong { at: u64, len: u64 },
    /// A header that is longer than the limit.
    #[error("the header has more than {MAX_HEADER} bytes")]
    HeaderSize,
    /// A name that is not UTF-8.
    #[error("the header is damaged: the name at byte {at} is not UTF-8")]
    NotText { at: u64 },
    /// A type of values that is not known.
    #[error("the header is damaged: there is no type of values with the number {id}, at byte {at}")]
    ValueType { at: u64, id: u32 },
    /// Arrays in arrays in arrays.
    #[error("arrays are nested too deep at byte {at} of the header")]
    Nested { at: u64 },
    /// A key that appears twice.
    #[error("the header is damaged: key `{}` appears twice", key.escape_debug())]
    DuplicateKey { key: String },
    /// A name that two tensors have.
    #[error("two tensors have the name `{}`", tensor.escape_debug())]
    DuplicateTensor { tensor: String },
    /// An alignment that is not a power of two in 32 bits.
    #[error("the header is damaged: `{ALIGNMENT_KEY}` is not a power of two of type uint32")]
    Alignment,
    /// An entry of a tensor that is invalid.
    #[error("tensor `{}`: {reason}", name.escape_debug())]
    Entry { name: String, reason: EntryError },
    /// A file that ends before its last tensor ends.
    #[error(
        "its header describes {described} bytes of tensors and {missing} of them are missing, from tensor `{}` on",
        first.escape_debug()
    )]
    TruncatedTensors {
        described: u64,
        missing: u64,
        /// Name of the first incomplete tensor.
        first: String,
    },
    /// A file with bytes after its last tensor.
    #[error("the file is damaged: {bytes} bytes follow the last tensor")]
    Trailing { bytes: u64 },
}

/// Reason why the entry of a tensor is invalid. Offsets are bytes from the start of the tensors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// A type that is not known.
    #[error("the type with the number {id} is not known")]
    Type { id: u32 },
    /// Blocks in a big-endian file whose byte order nothing defines.
    #[error("the file is big-endian, and nothing defines the byte order of {kind}")]
    ByteOrder { kind: &'static str },
    /// More dimensions than the format has.
    #[error("it has {dims} dimensions, more than {MAX_DIMS}")]
    Dimensions { dims: u64 },
    /// A row that does not consist of whole blocks, or a length of more than 63 bits.
    #[error("shape {shape:?} does not consist of whole blocks of {kind}, or is too large")]
    Shape { shape: Vec<u64>, kind: &'static str },
    /// A tensor that does not start where the previous one ends.
    #[error(
        "it starts at byte {start} of the data, and {expected} is expected: tensors follow each other without holes or overlaps"
    )]
    Offset { start: u64, expected: u64 },
    /// Data to be written with another length than the shape needs.
    #[error("its data has {found} bytes, and {needed} are needed")]
    Length { found: u64, needed: u64 },
}

details! {
    Error {
        Unsupported: Version, HeaderSize, Nested;
        Input: DuplicateTensor;
        Damaged: Magic, TruncatedHeader, TooLong, NotText, ValueType, DuplicateKey, Alignment, TruncatedTensors, Trailing;
        {entry_kind => reason}: Entry;
    }
}

fn entry_kind(error: &EntryError) -> ErrorKind {
    match error {
        EntryError::Type { .. } | EntryError::ByteOrder { .. } | EntryError::Dimensions { .. } => {
            ErrorKind::Unsupported
        }
        _ => ErrorKind::Damaged,
    }
}

impl Error {
    /// Returns true if the file ends too early, as an unfinished download does.
    pub fn is_truncated(&self) -> bool {
        matches!(self, Self::TruncatedHeader { .. } | Self::TruncatedTensors { .. })
    }
}

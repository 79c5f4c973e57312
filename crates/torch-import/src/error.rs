//! What can stand between a file and its tensors.

//!
//! The texts are whole: a cause is printed within its error, so errors here have no `source`.

use std::io;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a checkpoint, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be mapped.
    #[error(transparent)]
    Map(#[from] mapped::Error),
    /// The zip container is damaged or ambiguous.
    #[error("damaged zip archive: {0}")]
    Zip(zip_index::Error),
    /// The pickle cannot be read.
    #[error("`{}`: {reason}", record.escape_debug())]
    Pickle {
        /// The record that holds the pickle.
        record: String,
        /// What is wrong with it.
        reason: pickle_vm::Error,
    },
    /// Another kind of file.
    #[error("{what}, not a PyTorch checkpoint{}", if hint.is_empty() { String::new() } else { format!(": {hint}") })]
    Format {
        /// What the file is instead, with its article.
        what: &'static str,
        /// What to do about it; may be empty.
        hint: &'static str,
    },
    /// A zip archive without a pickle, or with two.
    #[error("{found} in the zip archive, expected one `data.pkl` in one folder")]
    Root {
        /// What is there instead.
        found: String,
    },
    /// A record is missing from the container.
    #[error("record `{}` is missing", record.escape_debug())]
    MissingRecord {
        /// The record's path in the archive.
        record: String,
    },
    /// A record's bytes are not those that were written.
    #[error("record `{}` is damaged: its CRC-32 is {found:08x}, the file says {expected:08x}", record.escape_debug())]
    Checksum {
        /// The record's path in the archive.
        record: String,
        /// The CRC-32 in the zip directory.
        expected: u32,
        /// The CRC-32 of the bytes.
        found: u32,
    },
    /// A record's compressed bytes cannot be decompressed.
    #[error("record `{}` cannot be inflated: {reason}", record.escape_debug())]
    Inflate {
        /// The record's path in the archive.
        record: String,
        /// Why.
        reason: String,
    },
    /// The record `byteorder` says something unknown.
    #[error("record `byteorder` says `{}`, expected `little` or `big`", found.escape_debug())]
    ByteOrder {
        /// What it says.
        found: String,
    },
    /// Fewer pickles than asked for.
    #[error("`{}` holds {count} pickles, counted from 0", record.escape_debug())]
    NoPickle {
        /// What holds them.
        record: String,
        /// How many there are.
        count: usize,
    },
    /// No storage has this key.
    #[error("storage `{}` is named by the pickle and not in the file", key.escape_debug())]
    MissingStorage {
        /// The storage's key.
        key: String,
    },
    /// The file ends too early.
    #[error("{reason}: the file is cut short; download or copy it again")]
    Cut {
        /// Where it ends, and how much is missing where that can be told.
        reason: String,
    },
    /// The file is of a known format and says something that the format does not allow.
    #[error("{record} is damaged: {reason}")]
    Layout {
        /// The part of the file.
        record: String,
        /// What is wrong.
        reason: String,
    },
    /// The tar archive is damaged or ambiguous.
    #[error("damaged tar archive: {0}")]
    Tar(String),
    /// A persistent id is none that PyTorch writes.
    #[error("persistent id at offset 0x{offset:x}: {reason}")]
    PersistentId {
        /// Where in the pickle.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A storage's record is shorter than the storage.
    #[error("storage `{}` needs {needed} bytes, its record has {available}", key.escape_debug())]
    ShortRecord {
        /// The storage's key.
        key: String,
        /// Bytes that its elements need.
        needed: u64,
        /// Bytes of the record.
        available: u64,
    },
    /// A rebuild call has other arguments than PyTorch gives it.
    #[error("{function} at offset 0x{offset:x}: {reason}")]
    Rebuild {
        /// The function that was to be called.
        function: String,
        /// Where in the pickle.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// A view does not fit its storage.
    #[error(transparent)]
    View(#[from] tensor::Error),
    /// Something is wrong with one tensor.
    #[error("tensor `{}`: {reason}", name.escape_debug())]
    Tensor {
        /// Its name in the checkpoint.
        name: String,
        /// What is wrong.
        reason: Box<Error>,
    },
    /// Two tensors come out under one name.
    #[error("two tensors are called `{}`: {first} and {second}", name.escape_debug())]
    Duplicate {
        /// The name.
        name: String,
        /// The path of the first, as Python subscripts.
        first: String,
        /// The path of the second.
        second: String,
    },
    /// Containers nest deeper, or are shared more often, than any real checkpoint's.
    #[error("more than {limit} {what} at offset 0x{offset:x}")]
    Limit {
        /// What there is too much of, in the plural.
        what: &'static str,
        /// Where in the pickle.
        offset: u64,
        /// How much is read.
        limit: usize,
    },
    /// A temporary file cannot be written.
    #[error("cannot inflate into a temporary file: {0}")]
    Spill(io::Error),
}

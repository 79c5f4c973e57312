//! Why a file cannot be read as a checkpoint.
//!
//! The texts are whole: a cause is printed within its error, so errors here have no `source`.

use std::io;

use byte_source::{Cancelled, ErrorKind, ReadError};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a checkpoint, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller stopped the work.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// The file cannot be mapped.
    #[error(transparent)]
    Map(#[from] byte_source::Error),
    /// A source that is not in memory cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
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
    /// The file is of another kind.
    #[error("{what}, not a PyTorch checkpoint{}", if hint.is_empty() { String::new() } else { format!(": {hint}") })]
    Format {
        /// What the file is instead, with its article.
        what: &'static str,
        /// What to do about it; may be empty.
        hint: &'static str,
    },
    /// The zip archive has no pickle, or two.
    #[error("{found} in the zip archive, expected one `data.pkl` in one folder")]
    Root {
        /// What was found instead.
        found: String,
    },
    /// The names of two records differ only in capital letters.
    #[error(
        "records `{}` and `{}` differ only in capital letters: versions of PyTorch read one or the other",
        first.escape_debug(),
        second.escape_debug()
    )]
    Twins {
        /// The first.
        first: String,
        /// The second.
        second: String,
    },
    /// A record is a symbolic link: programs that unpack the archive see another file than PyTorch, which reads the path.
    #[error("record `{}` is a symbolic link, expected a file", record.escape_debug())]
    Link {
        /// The record's path in the archive.
        record: String,
    },
    /// A record is missing from the container.
    #[error("record `{}` is missing", record.escape_debug())]
    MissingRecord {
        /// The record's path in the archive.
        record: String,
    },
    /// A record's bytes are not those that were written.
    #[error("record `{}` is damaged: its CRC-32 is {found:08x}, the archive records {expected:08x}", record.escape_debug())]
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
    /// The record `byteorder` has an unknown value.
    #[error("record `byteorder` is `{}`, expected `little` or `big`", found.escape_debug())]
    ByteOrder {
        /// Its value.
        found: String,
    },
    /// The file has fewer pickles than the requested number.
    #[error("`{}` holds {count} pickles; numbers start at 0", record.escape_debug())]
    NoPickle {
        /// What holds them.
        record: String,
        /// How many there are.
        count: usize,
    },
    /// No storage has this key.
    #[error("the pickle refers to storage `{}`, which is not in the file", key.escape_debug())]
    MissingStorage {
        /// The storage's key.
        key: String,
    },
    /// The file ends too early.
    #[error("{reason}: the file is cut short; download or copy it again")]
    Cut {
        /// Where it ends, and how much is missing if that is known.
        reason: String,
    },
    /// The file violates its format.
    #[error("{record} is damaged: {reason}")]
    Layout {
        /// The part of the file.
        record: String,
        /// What is wrong.
        reason: String,
    },
    /// The header of a safetensors file is damaged.
    #[error(transparent)]
    Safetensors(safetensors_format::Error),
    /// The tar archive is damaged or ambiguous.
    #[error("damaged tar archive: {0}")]
    Tar(String),
    /// PyTorch does not write such a persistent id.
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
    /// A rebuild call has arguments that PyTorch does not write.
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
    /// Two tensors have the same name.
    #[error("two tensors have the name `{}`: {first} and {second}", name.escape_debug())]
    Duplicate {
        /// The name.
        name: String,
        /// The path of the first, as Python subscripts.
        first: String,
        /// The path of the second.
        second: String,
    },
    /// Containers nest deeper, or are shared more often, than in any real checkpoint.
    #[error("more than {limit} {what} at offset 0x{offset:x}")]
    Limit {
        /// What there is too much of, in the plural.
        what: &'static str,
        /// Where in the pickle.
        offset: u64,
        /// The limit.
        limit: usize,
    },
    /// A temporary file cannot be written.
    #[error("cannot inflate into a temporary file: {0}")]
    Spill(io::Error),
    /// There are fewer files than the tensors were split into.
    #[error("{file} is missing: `{tensor}` was split into {shards} shards, found {found}")]
    MissingShard {
        /// The first missing file.
        file: String,
        /// The tensor whose shape shows it.
        tensor: String,
        /// How many shards there should be.
        shards: u64,
        /// How many there are.
        found: u64,
    },
    /// There are more files than shards.
    #[error("{file} is one shard too many: `{tensor}` was split into {shards} shards")]
    ExtraShard {
        /// The first superfluous file.
        file: String,
        /// The tensor whose shape shows it.
        tensor: String,
        /// How many shards there should be.
        shards: u64,
    },
    /// A tensor is missing from one file and present in another.
    #[error("{file} has no tensor `{}`, which {other} has", tensor.escape_debug())]
    MissingTensor {
        /// The file without it.
        file: String,
        /// The tensor.
        tensor: String,
        /// The file with it.
        other: String,
    },
    /// Two files have different parts of a tensor.
    #[error("tensor `{}` is {found} in {file}, and {expected} in {other}", tensor.escape_debug())]
    PartsDisagree {
        /// The tensor.
        tensor: String,
        /// One file.
        file: String,
        /// The dtype and shape of its part.
        found: Box<str>,
        /// Another file.
        other: String,
        /// The dtype and shape of that one's part.
        expected: Box<str>,
    },
    /// Copies of one tensor differ.
    #[error("tensor `{}` is copied to each shard, but its values in {file} differ from those in {other}", tensor.escape_debug())]
    CopiesDiffer {
        /// The tensor.
        tensor: String,
        /// One file.
        file: String,
        /// The other one.
        other: String,
    },
    /// A file has the parts of another file.
    #[error("{file} is a copy of {other}: their parts of `{}`, and of all other tensors that were split, are equal bit for bit", tensor.escape_debug())]
    EqualShards {
        /// The file with the higher number.
        file: String,
        /// The other one.
        other: String,
        /// A tensor whose elements are not all the same.
        tensor: String,
    },
    /// A part that is to be joined with others, or compared with them, repeats its storage too often.
    #[error("tensor `{}` is an expanded view of {nbytes} bytes over a storage of {stored}, too many to merge", tensor.escape_debug())]
    Expanded {
        /// The tensor.
        tensor: String,
        /// Bytes of the elements of one part.
        nbytes: u64,
        /// Bytes of its storage.
        stored: u64,
    },
    /// The model's sizes cannot be split into this shape.
    #[error("tensor `{}` is {shape:?} in each of {shards} shards: {reason}", tensor.escape_debug())]
    WrongSplit {
        /// The tensor.
        tensor: String,
        /// The shape of each part, in elements.
        shape: Vec<u64>,
        /// The number of shards.
        shards: u64,
        /// What it should be.
        reason: String,
    },
    /// The tensor belongs to another architecture.
    #[error("tensor `{}` is not a LLaMA tensor: how it was split over {shards} shards is unknown", tensor.escape_debug())]
    UnknownSplit {
        /// The tensor.
        tensor: String,
        /// The number of shards.
        shards: u64,
    },
    /// Two files of a set hold tensors of one name.
    #[error("{first} and {second} both hold a tensor `{}`", tensor.escape_debug())]
    HeldTwice {
        /// The tensor.
        tensor: String,
        /// The first file.
        first: String,
        /// The second one.
        second: String,
    },
    /// An index disagrees with the files.
    #[error("{index} lists `{}` in {}; {found}", tensor.escape_debug(), file.escape_debug())]
    IndexDisagrees {
        /// The index.
        index: String,
        /// The tensor.
        tensor: String,
        /// Where the index has it.
        file: String,
        /// What the files have.
        found: String,
    },
    /// A tensor that the index does not list.
    #[error("{file} holds a tensor `{}`, which {index} does not list", tensor.escape_debug())]
    Unlisted {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// The index.
        index: String,
    },
    /// An index or params.json cannot be read.
    #[error("{file}: {reason}")]
    Document {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Parts cannot be joined.
    #[error("tensor `{}`: {reason}", tensor.escape_debug())]
    Join {
        /// The tensor.
        tensor: String,
        /// Why.
        reason: tensor::Error,
    },
    /// The bytes of a part cannot be read.
    #[error("tensor `{}`: {reason}", tensor.escape_debug())]
    ReadPart {
        /// The tensor.
        tensor: String,
        /// Why.
        reason: ReadError,
    },
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Cancelled(_) => ErrorKind::Cancelled,
            Self::Map(reason) => reason.kind(),
            Self::Read(reason) | Self::ReadPart { reason, .. } => reason.kind(),
            Self::Zip(reason) => reason.kind(),
            Self::Pickle { reason, .. } => pickle_kind(reason),
            Self::Safetensors(reason) => reason.kind(),
            Self::Tensor { reason, .. } => reason.kind(),
            Self::Spill(reason) => reason.into(),
            Self::NoPickle { .. } => ErrorKind::Option,
            Self::Format { .. }
            | Self::Root { .. }
            | Self::Duplicate { .. }
            | Self::MissingShard { .. }
            | Self::ExtraShard { .. }
            | Self::MissingTensor { .. }
            | Self::PartsDisagree { .. }
            | Self::CopiesDiffer { .. }
            | Self::EqualShards { .. }
            | Self::WrongSplit { .. }
            | Self::HeldTwice { .. }
            | Self::IndexDisagrees { .. }
            | Self::Unlisted { .. }
            | Self::Join { .. } => ErrorKind::Input,
            Self::Limit { .. } | Self::Expanded { .. } | Self::UnknownSplit { .. } => ErrorKind::Unsupported,
            Self::Twins { .. }
            | Self::Link { .. }
            | Self::MissingRecord { .. }
            | Self::Checksum { .. }
            | Self::Inflate { .. }
            | Self::ByteOrder { .. }
            | Self::MissingStorage { .. }
            | Self::Cut { .. }
            | Self::Layout { .. }
            | Self::Tar(_)
            | Self::PersistentId { .. }
            | Self::ShortRecord { .. }
            | Self::Rebuild { .. }
            | Self::View(_)
            | Self::Document { .. } => ErrorKind::Damaged,
        }
    }
}

/// Returns what an error of a pickle means for a caller.
pub fn pickle_kind(error: &pickle_vm::Error) -> ErrorKind {
    if error.kind.is_unsupported() { ErrorKind::Unsupported } else { ErrorKind::Damaged }
}

impl From<safetensors_format::Error> for Error {
    fn from(error: safetensors_format::Error) -> Self {
        if error.is_cut() { Self::Cut { reason: error.to_string() } } else { Self::Safetensors(error) }
    }
}

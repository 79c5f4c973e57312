//! The error type of this crate.
//!
//! The message of an error includes its cause, so errors here have no `source`.

use std::io;

use byte_source::{Error, ErrorKind, Place, details};

/// Errors of reading, scanning and merging checkpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The zip archive is damaged or ambiguous.
    #[error("{}", zip_text(.0))]
    Zip(zip_format::Error),
    /// A pickle is damaged or not supported.
    #[error("`{}`: {reason}", record.escape_debug())]
    Pickle {
        /// Record that holds the pickle.
        record: String,
        reason: pickle_vm::Error,
    },
    /// A compressed pickle exceeds the limits for the bytes that store it.
    #[error(
        "`{}`: {reason}: it inflates to {found} bytes, and its limits are those of {stored}; store the archive without \
         compression (`zip -0`)",
        record.escape_debug()
    )]
    CompressedPickle {
        /// Record that holds the pickle.
        record: String,
        reason: pickle_vm::Error,
        /// Bytes of the file that count as those of the pickle.
        stored: u64,
        /// Length of the pickle in bytes.
        found: u64,
    },
    /// The file has another format.
    #[error("{what}, not a PyTorch checkpoint{}{}", after(": ", hint), after("; it says ", first_line))]
    Format {
        /// Format of the file, with its article.
        what: &'static str,
        /// Advice for the user; may be empty.
        hint: &'static str,
        /// First line of a text, which may be the answer of a server, as a quoted string; empty for other files.
        first_line: String,
    },
    /// The file is a zip archive of checkpoints.
    #[error("a zip archive of files, not a PyTorch checkpoint: it has {}", first_names(members))]
    Archive {
        /// Names of the checkpoints in it.
        members: Vec<String>,
    },
    /// The zip archive has no `data.pkl`, or two.
    #[error("{found} in the zip archive, expected one `data.pkl` in one folder")]
    PickleCount {
        /// Description of what the archive has instead.
        found: String,
    },
    /// The names of two records differ only in case.
    #[error(
        "records `{}` and `{}` differ only in capital letters: versions of PyTorch read one or the other",
        first.escape_debug(),
        second.escape_debug()
    )]
    CaseInsensitiveDuplicate { first: String, second: String },
    /// A record is a symbolic link: programs that unpack the archive see the link's target, while PyTorch reads the
    /// path of the target as the content.
    #[error("record `{}` is a symbolic link, expected a file", record.escape_debug())]
    Link {
        /// Path of the record in the archive.
        record: String,
    },
    /// A record is missing from the container.
    #[error("record `{}` is missing", record.escape_debug())]
    MissingRecord {
        /// Path of the record in the archive.
        record: String,
    },
    /// A record cannot be inflated.
    #[error("record `{}` cannot be inflated: {reason}", record.escape_debug())]
    Inflate {
        /// Path of the record in the archive.
        record: String,
        reason: String,
    },
    /// Compressed records inflate to many times the bytes that store them.
    #[error(
        "{what} inflate{} from {stored} bytes to {found}, more than the {limit} that this file may have; store the \
         archive without compression (`zip -0`)",
        if *is_one { "s" } else { "" }
    )]
    Expansion {
        /// The records, escaped; singular if `is_one`.
        what: String,
        is_one: bool,
        /// Bytes that store the records.
        stored: u64,
        /// Bytes to which the records inflate.
        found: u64,
        /// Most bytes to which they may inflate.
        limit: u64,
    },
    /// The record `byteorder` has an unknown value.
    #[error("record `byteorder` is `{}`, expected `little` or `big`", found.escape_debug())]
    ByteOrder {
        /// Value of the record, truncated.
        found: String,
    },
    /// The file has fewer pickles than the requested index.
    #[error("`{}` holds {count} pickles; numbers start at 0", record.escape_debug())]
    NoPickle {
        /// Record or file that holds the pickles.
        record: String,
        /// Number of pickles in the record or file.
        count: usize,
    },
    /// No storage has the key that the pickle refers to.
    #[error("the pickle refers to storage `{}`, which is not in the file", key.escape_debug())]
    MissingStorage { key: String },
    /// The file is truncated.
    #[error("{reason}: the file is cut short; download or copy it again")]
    TruncatedFile {
        /// Where the file ends, and the number of missing bytes if known.
        reason: String,
    },
    /// The file violates its format.
    #[error("{record} is damaged: {reason}")]
    Layout {
        /// Damaged part of the file.
        record: String,
        reason: String,
    },
    /// The tar archive is damaged or ambiguous.
    #[error("damaged tar archive: {0}")]
    Tar(String),
    /// A persistent id does not have a form that PyTorch writes.
    #[error("persistent id at offset 0x{offset:x}: {reason}")]
    PersistentId {
        /// Offset in the pickle, in bytes.
        offset: u64,
        reason: String,
    },
    /// The record of a storage is shorter than the storage.
    #[error("storage `{}` needs {needed} bytes, its record has {available}", key.escape_debug())]
    ShortRecord {
        key: String,
        /// Bytes that the storage's elements need.
        needed: u64,
        /// Length of the record in bytes.
        available: u64,
    },
    /// A rebuild call has arguments that PyTorch does not write.
    #[error("{function} at offset 0x{offset:x}: {reason}")]
    Rebuild {
        /// Function that was to be called.
        function: String,
        /// Offset in the pickle, in bytes.
        offset: u64,
        reason: String,
    },
    /// Two parts of a checkpoint hold an item of the same name.
    #[error("two parts of the checkpoint have the name `{}`", name.escape_debug())]
    DuplicateInParts { name: String },
    /// Two tensors have the same name.
    #[error("two tensors have the name `{}`: {first} and {second}", name.escape_debug())]
    Duplicate {
        name: String,
        /// Path of the first tensor, as Python subscripts.
        first: String,
        /// Path of the second tensor, as Python subscripts.
        second: String,
    },
    /// Containers nest deeper, or are shared more often, than in any real checkpoint.
    #[error("more than {limit} {what} at offset 0x{offset:x}")]
    Limit {
        /// Quantity that exceeds the limit, in the plural.
        what: &'static str,
        /// Offset in the pickle, in bytes.
        offset: u64,
        limit: usize,
    },
    /// A temporary file cannot be written.
    #[error("cannot inflate into a temporary file: {0}")]
    TemporaryFile(io::Error),
    /// There are fewer files than shards of the tensors.
    #[error("{file} is missing: `{tensor}` was split into {shards} shards, found {found}")]
    MissingShard {
        /// Name of the first missing file.
        file: String,
        /// Tensor whose shape implies the number of shards.
        tensor: String,
        /// Number of shards that the shape implies.
        shards: u64,
        /// Number of files in the set.
        found: u64,
    },
    /// The set has more files than its tensors have shards.
    #[error("{file} is one shard too many: `{tensor}` was split into {shards} shards")]
    ExtraShard {
        /// Name of the first superfluous file.
        file: String,
        /// Tensor whose shape implies the number of shards.
        tensor: String,
        /// Number of shards that the shape implies.
        shards: u64,
    },
    /// A tensor is missing from one file and present in another.
    #[error("{file} has no tensor `{}`, which {other} has", tensor.escape_debug())]
    MissingTensor {
        /// File without the tensor.
        file: String,
        tensor: String,
        /// File with the tensor.
        other: String,
    },
    /// The parts of a tensor in two files differ in dtype or shape.
    #[error("tensor `{}` is {found} in {file}, and {expected} in {other}", tensor.escape_debug())]
    PartsDisagree {
        tensor: String,
        file: String,
        /// Dtype and shape of the part in `file`.
        found: Box<str>,
        other: String,
        /// Dtype and shape of the part in `other`.
        expected: Box<str>,
    },
    /// The copies of a replicated tensor differ between shards.
    #[error("tensor `{}` is copied to each shard, but its values in {file} differ from those in {other}", tensor.escape_debug())]
    CopiesDiffer { tensor: String, file: String, other: String },
    /// All split tensors of two files are equal, so one file is a copy of the other.
    #[error("{file} is a copy of {other}: their parts of `{}`, and of all other tensors that were split, are equal bit for bit", tensor.escape_debug())]
    EqualShards {
        /// File with the higher shard number.
        file: String,
        other: String,
        /// A tensor whose elements are not all the same.
        tensor: String,
    },
    /// An expanded part, to be joined or compared with other parts, repeats its storage too often.
    #[error("tensor `{}` is an expanded view of {nbytes} bytes over a storage of {stored}, too many to merge", tensor.escape_debug())]
    Expanded {
        tensor: String,
        /// Bytes of the elements of one part.
        nbytes: u64,
        /// Bytes of the part's storage.
        stored: u64,
    },
    /// The shape of a part contradicts the sizes of the model.
    #[error("tensor `{}` is {shape:?} in each of {shards} shards: {reason}", tensor.escape_debug())]
    WrongSplit {
        tensor: String,
        /// Shape of each part, in elements.
        shape: Vec<u64>,
        /// Number of shards in the set.
        shards: u64,
        reason: String,
    },
    /// The tensor belongs to another architecture than LLaMA.
    #[error("tensor `{}` is not a LLaMA tensor: how it was split over {shards} shards is unknown", tensor.escape_debug())]
    UnknownSplit {
        tensor: String,
        /// Number of shards in the set.
        shards: u64,
    },
    /// A tensor of a safetensors file has a dtype that PyTorch and the format do not share.
    #[error("{reason}")]
    OtherDtype { tensor: String, reason: safetensors_format::Error },
    /// What an exported program says about a tensor contradicts its records.
    #[error("tensor `{}`: {reason}", tensor.escape_debug())]
    DamagedTensor { tensor: String, reason: String },
    /// A tensor of an exported program has no numbers that could be read.
    #[error("tensor `{}`: {reason}", tensor.escape_debug())]
    UnsupportedTensor { tensor: String, reason: String },
    /// The file is damaged, as by a program that changes the line ends of texts.
    #[error(
        "{reason}; {how}, so that a transfer as text, or Git, has changed its line ends: copy it again as binary"
    )]
    LineEnds {
        reason: Box<Error>,
        /// What is seen in the bytes, as a clause.
        how: &'static str,
    },
    /// Two files of a set hold tensors of the same name.
    #[error("{first} and {second} both hold a tensor `{}`", tensor.escape_debug())]
    TensorInTwoFiles { tensor: String, first: String, second: String },
    /// An index disagrees with the files.
    #[error("{index} lists `{}` in {}; {found}", tensor.escape_debug(), file.escape_debug())]
    IndexDisagrees {
        /// Name of the index file.
        index: String,
        tensor: String,
        /// File in which the index lists the tensor.
        file: String,
        /// Where the tensor is instead.
        found: String,
    },
    /// The index does not list a tensor of a file.
    #[error("{file} holds a tensor `{}`, which {index} does not list", tensor.escape_debug())]
    Unlisted {
        file: String,
        tensor: String,
        /// Name of the index file.
        index: String,
    },
    /// An index or `params.json` cannot be read.
    #[error("{file}: {reason}")]
    Document { file: String, reason: String },
}

/// Returns `text` after `start`; nothing if the text is empty.
fn after(start: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{start}{text}") }
}

fn zip_text(error: &zip_format::Error) -> String {
    match error {
        zip_format::Error::Encrypted { .. } => {
            format!(
                "zip archive with a password: {error}; unpack it with the password, then pass what is in it"
            )
        }
        error => format!("damaged zip archive: {error}"),
    }
}

/// Formats the first names of a list.
fn first_names(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = names.iter().take(SHOWN).map(|name| format!("`{}`", name.escape_debug()));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

details! {
    Problem => Problem::place {
        Option: NoPickle;
        Input: Format, Archive, PickleCount, Duplicate, DuplicateInParts, MissingShard, ExtraShard, MissingTensor, PartsDisagree,
            CopiesDiffer, EqualShards, WrongSplit, TensorInTwoFiles, IndexDisagrees, Unlisted;
        Unsupported: Limit, CompressedPickle, Expansion, Expanded, UnknownSplit, OtherDtype, UnsupportedTensor;
        Damaged: CaseInsensitiveDuplicate, Link, MissingRecord, Inflate, ByteOrder, MissingStorage, TruncatedFile,
            Layout, Tar, PersistentId, ShortRecord, Rebuild, Document, LineEnds, DamagedTensor;
        [0]: Zip, TemporaryFile;
        {pickle_kind => reason}: Pickle;
    }
}

/// Returns the kind of an error in a pickle.
pub fn pickle_kind(error: &pickle_vm::Error) -> ErrorKind {
    if error.kind.is_unsupported() { ErrorKind::Unsupported } else { ErrorKind::Damaged }
}

impl Problem {
    fn place(&self) -> Place {
        match self {
            Self::Pickle { reason, .. } => Place::offset(reason.offset),
            Self::PersistentId { offset, .. } | Self::Rebuild { offset, .. } | Self::Limit { offset, .. } => {
                Place::offset(*offset)
            }
            Self::Duplicate { name: tensor, .. }
            | Self::MissingTensor { tensor, .. }
            | Self::PartsDisagree { tensor, .. }
            | Self::CopiesDiffer { tensor, .. }
            | Self::Expanded { tensor, .. }
            | Self::DamagedTensor { tensor, .. }
            | Self::UnsupportedTensor { tensor, .. }
            | Self::WrongSplit { tensor, .. }
            | Self::UnknownSplit { tensor, .. } => Place::tensor(tensor),
            _ => Place::default(),
        }
    }
}

/// Converts an error of reading a safetensors file, which may be an unfinished download.
pub(crate) fn safetensors_error(error: safetensors_format::Error) -> Error {
    if error.is_truncated() {
        Problem::TruncatedFile { reason: error.to_string() }.into()
    } else {
        error.into()
    }
}

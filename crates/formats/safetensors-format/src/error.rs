//! Errors of a safetensors file, and of tensors to be written into one.
//!
//! Each text is complete: a cause is printed within its error, so errors here have no `source`.

use byte_source::{ErrorKind, details};
use tensor::Dtype;

use crate::{MAX_HEADER, METADATA_KEY};

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a safetensors file is invalid, or why tensors cannot be written into one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A header that is longer than the format allows.
    #[error(
        "the header has {len} bytes, more than the {MAX_HEADER} that the format allows: the file is damaged, or its tensors have to be saved in several files"
    )]
    TooLong {
        /// Length of the header in bytes.
        len: u64,
    },
    /// A tensor to be written has a dtype that the format lacks.
    #[error("tensor `{}`: safetensors has no {dtype}", tensor.escape_debug())]
    NoDtype { tensor: String, dtype: Dtype },
    /// A tensor to be written has half-byte elements, which come in pairs, but no dimension that counts the pairs.
    #[error("tensor `{}`: the two values of a float4_e2m1fn_x2 need a dimension", tensor.escape_debug())]
    HalfElement { tensor: String },
    /// Two tensors to be written have the same name.
    #[error("two tensors have the name `{}`", tensor.escape_debug())]
    Duplicate { tensor: String },
    /// A dimension or offset of a tensor to be written does not fit `usize`.
    #[error("tensor `{}` is too large", tensor.escape_debug())]
    TooLarge { tensor: String },
    /// A tensor to be written has the name of the metadata.
    #[error("a tensor cannot be called `{METADATA_KEY}`: the header uses that name for its metadata")]
    Reserved,
    /// A file that ends within its header.
    #[error("it ends within its header of {len} bytes and {missing} of them are missing")]
    TruncatedHeader {
        /// Length of the header in bytes, according to the file.
        len: u64,
        /// Number of missing header bytes.
        missing: u64,
    },
    /// A header that is not UTF-8.
    #[error("the header is damaged: it is not UTF-8 from byte {at} on")]
    NotText {
        /// Offset of the first invalid byte, from the start of the header.
        at: usize,
    },
    /// A header that is not the JSON object of the format.
    #[error("the header is damaged: {0}")]
    Json(serde_json::Error),
    /// A header entry of a tensor that is invalid.
    #[error("tensor `{}`: {}{reason}", name.escape_debug(), damage_text(reason))]
    Entry {
        /// Name of the tensor.
        name: String,
        reason: EntryError,
    },
    /// Metadata with a value that is not a text.
    #[error("`{}` in `{METADATA_KEY}` is {found}, and not a text", key.escape_debug())]
    NotMetadataText {
        key: String,
        /// What the value is, with its article.
        found: &'static str,
    },
    /// A file that ends before its last tensor ends.
    #[error(
        "its header describes {described} bytes of tensors and {missing} of them are missing, from tensor `{}` on",
        first.escape_debug()
    )]
    TruncatedTensors {
        /// Total length of all tensors in bytes, according to the header.
        described: u64,
        /// Number of missing tensor bytes.
        missing: u64,
        /// Name of the first incomplete tensor.
        first: String,
    },
    /// A file with bytes after its last tensor.
    #[error("the file is damaged: {bytes} bytes follow the last tensor")]
    Trailing {
        /// Number of bytes after the last tensor.
        bytes: u64,
    },
}

details! {
    Error {
        Unsupported: NoDtype, HalfElement, TooLarge, Reserved;
        Input: Duplicate;
        Damaged: TooLong, TruncatedHeader, NotText, NotMetadataText, Json, TruncatedTensors, Trailing;
        {entry_kind => reason}: Entry;
    }
}

fn entry_kind(error: &EntryError) -> ErrorKind {
    match error {
        EntryError::Dtype { .. } | EntryError::Dimension { .. } => ErrorKind::Unsupported,
        _ => ErrorKind::Damaged,
    }
}

impl Error {
    /// Returns true if the file ends too early, as an unfinished download does.
    pub fn is_truncated(&self) -> bool {
        matches!(self, Self::TruncatedHeader { .. } | Self::TruncatedTensors { .. })
    }
}

/// Reason why the header's entry of a tensor is invalid. Offsets are bytes from the end of the header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// A tensor that ends before it starts.
    #[error("it ends at byte {end}, before its start at byte {start}")]
    EndBeforeStart {
        /// Start offset in bytes.
        start: u64,
        /// End offset in bytes.
        end: u64,
    },
    /// A tensor that does not start at the end of the previous tensor or of the header.
    #[error("it starts at byte {start} and {}, which ends at byte {end}", gap_text(*start, *end, before.as_deref()))]
    Gap {
        /// Start offset in bytes.
        start: u64,
        /// End offset of the previous tensor, where this tensor should start.
        end: u64,
        /// Previous tensor; `None` for the first tensor, which follows the header.
        before: Option<String>,
    },
    /// A dtype that PyTorch does not have.
    #[error("its dtype `{}` {}", dtype.escape_debug(), dtype_text(dtype))]
    Dtype {
        /// Name of the dtype in the header.
        dtype: String,
    },
    /// A dimension of 2^63 or more, beyond PyTorch's integers. Only a tensor without elements can have one.
    #[error("shape {shape:?} has a dimension of 2^63 elements or more")]
    Dimension {
        /// Shape in elements of the format's dtype.
        shape: Vec<u64>,
    },
    /// Elements smaller than a byte that do not fill their last byte.
    #[error("shape {shape:?} of {dtype} does not end in whole bytes")]
    HalfByte {
        /// Shape in elements of the format's dtype.
        shape: Vec<u64>,
        /// Name of the dtype in the header.
        dtype: String,
    },
    /// A shape that does not match the length of the tensor's data.
    #[error("shape {shape:?} of {dtype} needs {} bytes, it has {found}", needed.map_or_else(|| "more than 2^64".to_owned(), |n| n.to_string()))]
    Size {
        /// Shape in elements of the format's dtype.
        shape: Vec<u64>,
        /// Name of the dtype in the header.
        dtype: String,
        /// Length in bytes that the shape needs; `None` for more than 2^64.
        needed: Option<u64>,
        /// Length in bytes of the tensor's data.
        found: u64,
    },
}

fn damage_text(reason: &EntryError) -> &'static str {
    if matches!(reason, EntryError::Dtype { .. }) { "" } else { "its entry in the header is damaged: " }
}

/// Says what a dtype means that programs write, and that PyTorch or the format lacks.
fn dtype_text(dtype: &str) -> &'static str {
    match dtype {
        "F6_E2M3" | "F6_E3M2" => "means floats of 6 bits, which PyTorch does not have",
        "I4" | "U4" => "means integers of 4 bits, which neither PyTorch nor safetensors has",
        "C128" => "means complex numbers of 128 bits, which safetensors does not have",
        "F4_E2M1" => "means floats of 4 bits, which safetensors calls F4",
        _ => "is not one of PyTorch's",
    }
}

fn gap_text(start: u64, end: u64, before: Option<&str>) -> String {
    let what = if start < end { "overlaps" } else { "leaves a hole after" };
    match before {
        Some(before) => format!("{what} tensor `{}`", before.escape_debug()),
        None => "leaves a hole after the header".to_owned(),
    }
}

//! What can be wrong with a safetensors file, or with tensors that should become one.
//!
//! The texts are whole: a cause is printed within its error, so errors here have no `source`.

use byte_source::ErrorKind;
use tensor::Dtype;

use crate::{MAX_HEADER, METADATA};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a safetensors file or its tensors, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The header is longer than the format allows.
    #[error("the header has {len} bytes, more than the {MAX_HEADER} that the format allows")]
    TooLong {
        /// Its length in bytes.
        len: u64,
    },
    /// The format has no name for the dtype of a tensor that is to be written.
    #[error("tensor `{}`: safetensors has no {dtype}", tensor.escape_debug())]
    NoDtype {
        /// The tensor.
        tensor: String,
        /// Its dtype.
        dtype: Dtype,
    },
    /// A tensor that is to be written has half-byte elements, which come in pairs, and no dimension to count them.
    #[error("tensor `{}`: the two values of a float4_e2m1fn_x2 need a dimension", tensor.escape_debug())]
    HalfElement {
        /// The tensor.
        tensor: String,
    },
    /// Two tensors that are to be written have the same name.
    #[error("two tensors have the name `{}`", tensor.escape_debug())]
    Duplicate {
        /// The name.
        tensor: String,
    },
    /// A size of a tensor that is to be written does not fit the machine's words.
    #[error("tensor `{}` is too large", tensor.escape_debug())]
    TooLarge {
        /// The tensor.
        tensor: String,
    },
    /// A tensor that is to be written has the name of the metadata.
    #[error("a tensor cannot be called `{METADATA}`: the header uses that name for its metadata")]
    Reserved,
    /// The file ends before its header does.
    #[error("it ends within its header of {len} bytes and {missing} of them are missing")]
    CutHeader {
        /// The header's length in bytes, as the file gives it.
        len: u64,
        /// How many of them are missing.
        missing: u64,
    },
    /// The header is not text.
    #[error("the header is damaged: it is not UTF-8 from byte {at} on")]
    NotText {
        /// Where, from the start of the header.
        at: usize,
    },
    /// The header is not the JSON object that the format describes.
    #[error("the header is damaged: {0}")]
    Json(serde_json::Error),
    /// The header's entry of a tensor is wrong.
    #[error("tensor `{}`: its entry in the header is damaged: {reason}", name.escape_debug())]
    Entry {
        /// The tensor.
        name: String,
        /// What is wrong.
        reason: EntryError,
    },
    /// The file ends before its tensors do.
    #[error(
        "its header describes {described} bytes of tensors and {missing} of them are missing, from tensor `{}` on",
        first.escape_debug()
    )]
    CutTensors {
        /// Bytes of all tensors.
        described: u64,
        /// How many of them are missing.
        missing: u64,
        /// The first tensor that is not whole.
        first: String,
    },
    /// The file goes on after its last tensor.
    #[error("the file is damaged: {bytes} bytes follow the last tensor")]
    Trailing {
        /// How many bytes follow.
        bytes: u64,
    },
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoDtype { .. }
            | Self::HalfElement { .. }
            | Self::TooLarge { .. }
            | Self::Reserved
            | Self::Entry { reason: EntryError::Dtype { .. } | EntryError::Dimension { .. }, .. } => {
                ErrorKind::Unsupported
            }
            Self::Duplicate { .. } => ErrorKind::Input,
            Self::TooLong { .. }
            | Self::CutHeader { .. }
            | Self::NotText { .. }
            | Self::Json(_)
            | Self::Entry { .. }
            | Self::CutTensors { .. }
            | Self::Trailing { .. } => ErrorKind::Damaged,
        }
    }
}

impl Error {
    /// Whether the file ends too early, as an unfinished download does.
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::CutHeader { .. } | Self::CutTensors { .. })
    }
}

/// What is wrong with the header's entry of a tensor. Offsets are bytes from the end of the header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The tensor ends before it starts.
    #[error("it ends at byte {end}, before its start at byte {start}")]
    Backwards {
        /// Where it starts.
        start: u64,
        /// Where it ends.
        end: u64,
    },
    /// The tensor does not start where the one before it, or the header, ends.
    #[error("it starts at byte {start} and {}, which ends at byte {end}", gap_text(*start, *end, before.as_deref()))]
    Gap {
        /// Where it starts.
        start: u64,
        /// Where it should start.
        end: u64,
        /// The tensor before it; `None` for the first one, which follows the header.
        before: Option<String>,
    },
    /// The dtype is unknown.
    #[error("its dtype `{}` is not one of PyTorch's", dtype.escape_debug())]
    Dtype {
        /// The dtype, as the header has it.
        dtype: String,
    },
    /// A size is larger than PyTorch's integers, which only a tensor without elements can have.
    #[error("shape {shape:?} has a dimension of 2^63 elements or more")]
    Dimension {
        /// The shape, in elements of the format's dtype.
        shape: Vec<u64>,
    },
    /// Elements smaller than a byte do not fill their last byte.
    #[error("shape {shape:?} of {dtype} does not end in whole bytes")]
    HalfByte {
        /// The shape, in elements of the format's dtype.
        shape: Vec<u64>,
        /// The dtype, as the header has it.
        dtype: String,
    },
    /// The shape needs another number of bytes than the tensor has.
    #[error("shape {shape:?} of {dtype} needs {} bytes, it has {found}", needed.map_or_else(|| "more than 2^64".to_owned(), |n| n.to_string()))]
    Size {
        /// The shape, in elements of the format's dtype.
        shape: Vec<u64>,
        /// The dtype, as the header has it.
        dtype: String,
        /// Bytes that the shape needs; `None` for more than 2^64.
        needed: Option<u64>,
        /// Bytes that the tensor has.
        found: u64,
    },
}

fn gap_text(start: u64, end: u64, before: Option<&str>) -> String {
    let what = if start < end { "overlaps" } else { "leaves a hole after" };
    match before {
        Some(before) => format!("{what} tensor `{}`", before.escape_debug()),
        None => "leaves a hole after the header".to_owned(),
    }
}

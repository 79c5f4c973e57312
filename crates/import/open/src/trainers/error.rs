//! Problems of finding and joining the parts of a checkpoint.
//!
//! Errors about a file have its path in the folder as their place. The caller adds the folder.

use std::path::PathBuf;

use byte_source::{Place, details};

/// Reasons for which the parts of a trainer do not make a checkpoint. The texts do not contain the folder, except for
/// problems of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The trainer has not finished the folder.
    #[error("{} is not complete: {reason}", folder.display())]
    Unfinished {
        folder: PathBuf,
        /// File by which an unfinished save was recognised.
        reason: String,
    },
    /// The objects of a metadata file are not those of the format.
    #[error("{reason}, at offset 0x{offset:x}")]
    Metadata {
        /// Offset in the pickle.
        offset: u64,
        reason: String,
    },
    /// The metadata repeats names, sizes or parts more often than its length allows.
    #[error("it repeats more {what} than its length of {len} bytes allows")]
    MetadataSize {
        what: &'static str,
        /// Length of the file in bytes.
        len: u64,
    },
    /// The metadata name a file that is not in the folder.
    #[error("{}: {metadata} names the file `{}`, which is missing", what(tensor), file.escape_debug())]
    MissingFile { tensor: String, metadata: String, file: String },
    /// The metadata name a file in another folder.
    #[error("{}: {metadata} names the file `{}`, which is outside of the folder", what(tensor), file.escape_debug())]
    OutsideFolder { tensor: String, metadata: String, file: String },
    /// A part is not inside its file.
    #[error(
        "{}: {file} has {found} bytes, and its part of {len} bytes is at offset {offset}: the file is truncated or of another save",
        what(tensor)
    )]
    OutsideFile {
        tensor: String,
        file: String,
        /// Offset of the part in bytes.
        offset: u64,
        /// Length of the part in bytes.
        len: u64,
        /// Length of the file in bytes.
        found: u64,
    },
    /// The metadata list a part, and say not where it is.
    #[error("{}: {metadata} does not say where its part at {start:?} is", what(tensor))]
    NoPlace { tensor: String, metadata: String, start: Vec<u64> },
    /// The bytes of a part cannot be read as a tensor or value.
    #[error("{}: its part at offset {offset} of {file}: {reason}", what(tensor))]
    Part { tensor: String, file: String, offset: u64, reason: torch_import::Error },
    /// A part holds something other than one tensor, or cannot be decompressed.
    #[error("{}: its part at offset {offset} of {file} {problem}", what(tensor))]
    BadPart {
        tensor: String,
        file: String,
        offset: u64,
        /// What is wrong with the part, as the end of a sentence about it.
        problem: String,
    },
    /// A part was stored with a transformation that is not known.
    #[error("{}: its part in {file} is stored as `{}`, which is not supported", what(tensor), transform.escape_debug())]
    Transform { tensor: String, file: String, transform: String },
    /// A part has another shape or dtype than the metadata say.
    #[error("{}: its part at {start:?}, in {file}, is {found}, expected {expected}", what(tensor))]
    PartMismatch {
        tensor: String,
        file: Box<str>,
        /// Index of the part's first element.
        start: Vec<u64>,
        /// Dtype and shape in the metadata.
        expected: Box<str>,
        /// Dtype and shape of the part.
        found: Box<str>,
    },
    /// The parts of a tensor do not cover it once.
    #[error("{}: {reason}", what(tensor))]
    Join { tensor: String, reason: Box<tensor::Error> },
    /// The file of a rank does not exist.
    #[error("{file} is missing: {other} is of {}", ranks_text(*ranks))]
    MissingRank {
        file: String,
        /// File that says how many ranks there are.
        other: String,
        ranks: u64,
    },
    /// A file is of a kind that is not joined.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A folder has the files of more ranks than one of them says.
    #[error("{file} is of {}, and the folder has the files of {found}", ranks_text(*ranks))]
    ExtraRanks { file: String, ranks: u64, found: u64 },
    /// The flat weights have another number of elements than the parameters.
    #[error("the flat weights have {found} elements, and the parameters {expected}")]
    Elements { expected: u64, found: u64 },
    /// Files are of saves with different numbers of ranks.
    #[error("{first} and {second} are of different numbers of ranks: the folder has files of two saves")]
    WorldSizes { first: String, second: String },
    /// A rank's file has a tensor that another one lacks.
    #[error("{}: {first} has it, {second} does not", what(tensor))]
    MissingInRank { tensor: String, first: String, second: String },
    /// A shard does not say where in its tensor it is, in a way that is known.
    #[error("{}: its shard in {file} cannot be joined: {reason}", what(tensor))]
    Shard { tensor: String, file: String, reason: String },
    /// Files of different ranks describe a tensor in different ways.
    #[error("{}: {first} says {first_found}, {second} says {second_found}", what(tensor))]
    RanksDisagree {
        tensor: String,
        first: Box<str>,
        first_found: Box<str>,
        second: Box<str>,
        second_found: Box<str>,
    },
}

details! {
    Problem => Problem::place {
        Input: Unfinished, MissingFile, OutsideFolder, MissingRank, WorldSizes, ExtraRanks, MissingInRank, RanksDisagree;
        Unsupported: Transform, Shard, Unsupported;
        Damaged: Metadata, MetadataSize, Elements, OutsideFile, NoPlace, BadPart, PartMismatch, Join;
        [reason]: Part;
    }
}

impl Problem {
    fn place(&self) -> Place {
        match self {
            Self::Unfinished { folder, .. } => Place::file(folder),
            Self::Metadata { offset, .. } => Place::offset(*offset),
            Self::MissingFile { tensor, .. }
            | Self::OutsideFolder { tensor, .. }
            | Self::OutsideFile { tensor, .. }
            | Self::NoPlace { tensor, .. }
            | Self::Part { tensor, .. }
            | Self::BadPart { tensor, .. }
            | Self::Transform { tensor, .. }
            | Self::PartMismatch { tensor, .. }
            | Self::Join { tensor, .. }
            | Self::MissingInRank { tensor, .. }
            | Self::Shard { tensor, .. }
            | Self::RanksDisagree { tensor, .. } => Place::tensor(tensor),
            _ => Place::default(),
        }
    }
}

/// Formats the name of a tensor or value at the start of a message.
fn what(name: &str) -> String {
    format!("`{}`", name.escape_debug())
}

fn ranks_text(ranks: u64) -> String {
    if ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") }
}

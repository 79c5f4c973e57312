//! Why paths do not name a checkpoint.
//!
//! The texts are whole: a cause is printed within its error, so errors here have no `source`. They say what is wrong;
//! the program that prints them adds what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::ErrorKind;

use crate::contents::{Contents, listed};
use crate::deepspeed::DeepSpeed;
use output::{file_name, folder};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why paths do not name a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// A document is larger than any real one.
    #[error("{} has {len} bytes, more than the {limit} that are read", path.display())]
    DocumentTooLarge {
        /// The document.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// The most bytes that are read.
        limit: u64,
    },
    /// A file is not a checkpoint, or is damaged.
    #[error("{}", with_path(path, reason))]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Box<torch_import::Error>,
    },
    /// The files of a set, or the documents that belong to it, do not fit together.
    #[error("{}: {reason}", folder.display())]
    Set {
        /// The folder of the files.
        folder: PathBuf,
        /// What does not fit.
        reason: Box<torch_import::Error>,
    },
    /// No path was given.
    #[error("no path was given")]
    NoPaths,
    /// There is nothing at a path.
    #[error("there is no file {}", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// A file is one of several that hold a checkpoint together.
    #[error("{} is shard {number} of {of}", file_name(path))]
    LoneShard {
        /// The file.
        path: PathBuf,
        /// The shard's number, counted from 1.
        number: usize,
        /// The number of shards.
        of: usize,
    },
    /// Files that do not hold one checkpoint together.
    #[error("{} are not shards of one checkpoint", list(paths))]
    NotASet {
        /// The files; there are at least two.
        paths: Vec<PathBuf>,
    },
    /// An index names a file that is not there.
    #[error("{} names {file}, which is not in {}", file_name(index), folder(index).display())]
    NotInFolder {
        /// The index.
        index: PathBuf,
        /// The name of the file.
        file: String,
    },
    /// Two files of a set have the same number.
    #[error("{} and {} have the same number, {number}", first.display(), second.display())]
    SameNumber {
        /// One file.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
        /// The number in their names.
        number: usize,
    },
    /// Two names in a set lead to one file.
    #[error("{} and {} are the same file", first.display(), second.display())]
    OneFileTwice {
        /// One path.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
    },
    /// A file of a numbered set is not there.
    #[error("{} is missing: the folder has {found} of its set's files", path.display())]
    MissingShard {
        /// Where the file should be.
        path: PathBuf,
        /// The number of files that are there.
        found: usize,
    },
    /// A file has a higher number than its set has files.
    #[error("{} is one shard too many: its name says that there are {of}", path.display())]
    ExtraShard {
        /// The file.
        path: PathBuf,
        /// The number of shards that its name gives.
        of: usize,
    },
    /// A folder that `torch.distributed.checkpoint` wrote.
    #[error("{} is a distributed checkpoint", folder.display())]
    Distributed {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder that `DeepSpeed` wrote with `ZeRO`: the weights are in the state of the optimizer, split over files.
    #[error("{} is a DeepSpeed ZeRO checkpoint, whose weights are split over files", folder.display())]
    DeepSpeed {
        /// The folder that was given.
        folder: PathBuf,
        /// What `DeepSpeed`'s own script takes.
        found: DeepSpeed,
        /// Files with the whole model in the same folder, if the training wrote them too.
        candidates: Vec<Candidate>,
    },
    /// A file of a folder is a link that leads to nothing.
    #[error("{} is a link to {}, which is not there", path.display(), target.display())]
    LostLink {
        /// The link.
        path: PathBuf,
        /// What it leads to, as the link says it.
        target: PathBuf,
    },
    /// A folder holds several checkpoints, and none of them is preferred.
    #[error("{} holds {} checkpoints", folder.display(), candidates.len())]
    Several {
        /// The folder.
        folder: PathBuf,
        /// The checkpoints.
        candidates: Vec<Candidate>,
    },
    /// A folder holds no checkpoint.
    #[error("{} {contents}", folder.display())]
    NoCheckpoint {
        /// The folder.
        folder: PathBuf,
        /// What it holds instead.
        contents: Contents,
    },
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { reason, .. } => reason.into(),
            Self::NotFound { .. } | Self::LostLink { .. } => ErrorKind::Io,
            Self::Checkpoint { reason, .. } | Self::Set { reason, .. } => reason.kind(),
            Self::NoPaths => ErrorKind::Option,
            Self::LoneShard { .. }
            | Self::NotASet { .. }
            | Self::NotInFolder { .. }
            | Self::SameNumber { .. }
            | Self::OneFileTwice { .. }
            | Self::MissingShard { .. }
            | Self::ExtraShard { .. }
            | Self::Several { .. }
            | Self::NoCheckpoint { .. } => ErrorKind::Input,
            Self::DocumentTooLarge { .. } | Self::Distributed { .. } | Self::DeepSpeed { .. } => {
                ErrorKind::Unsupported
            }
        }
    }
}

impl Error {
    pub(crate) fn checkpoint(path: &Path, reason: torch_import::Error) -> Self {
        Self::Checkpoint { path: path.to_owned(), reason: Box::new(reason) }
    }

    /// Files in the folder of `path` do not fit together.
    pub(crate) fn set(path: &Path, reason: torch_import::Error) -> Self {
        Self::Set { folder: folder(path).to_owned(), reason: Box::new(reason) }
    }
}

/// One of several checkpoints in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The paths that name it for [`Sources::find`](crate::Sources::find).
    pub paths: Vec<PathBuf>,
}

/// The reason after the path, which some reasons name already.
fn with_path(path: &Path, reason: &torch_import::Error) -> String {
    match reason {
        torch_import::Error::Map(reason) => reason.to_string(),
        reason => format!("{}: {reason}", path.display()),
    }
}

/// Paths as part of a sentence.
fn list(paths: &[PathBuf]) -> String {
    listed(&paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>())
}

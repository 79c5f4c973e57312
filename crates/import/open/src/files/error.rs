//! Errors of finding and reading the files of a checkpoint.
//!
//! Each text is complete: it contains the text of its cause, so these errors have no `source`. It describes the problem; the
//! program that prints it adds the remedy.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::ErrorKind;

use crate::files::deepspeed::ZeroCheckpoint;
use crate::files::diagnosis::{FolderDiagnosis, enumerate_names};
use output::{file_name, parent_folder};

/// Result type with the error of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons for which paths do not lead to one readable checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("{}: {reason}", path.display())]
    Io { path: PathBuf, reason: io::Error },
    /// A file at an address cannot be read. The reason names the address.
    #[error("{reason}")]
    Remote { path: PathBuf, reason: byte_source::Error },
    /// A document is larger than the limit, which no real document reaches.
    #[error("{} has {len} bytes, more than the {limit} that are read", path.display())]
    DocumentTooLarge {
        path: PathBuf,
        /// Document length in bytes.
        len: u64,
        /// Maximum length in bytes.
        limit: u64,
    },
    /// A file is not a checkpoint, or is damaged.
    #[error("{}", with_path(path, reason))]
    Checkpoint { path: PathBuf, reason: torch_import::Error },
    /// The files of a set do not fit together, or do not fit the set's index or `params.json`.
    #[error("{}: {reason}", folder.display())]
    InconsistentSet {
        /// Folder that contains the shards.
        folder: PathBuf,
        reason: torch_import::Error,
    },
    /// The list of paths is empty.
    #[error("no path was given")]
    NoPaths,
    /// A path does not exist.
    #[error("there is no file {}", path.display())]
    NotFound { path: PathBuf },
    /// A single file is one of several shards, and the others were not given.
    #[error("{} is shard {number} of {of}", file_name(path))]
    LoneShard {
        path: PathBuf,
        /// Shard number, counted from 1.
        number: usize,
        /// Number of shards in the set.
        of: usize,
    },
    /// The file is one rank's part of a checkpoint, and the others were not given.
    #[error("{} is one rank's part of {what}", path.display())]
    RankPart {
        path: PathBuf,
        /// Description of the whole, with its article.
        what: &'static str,
    },
    /// Several files are not shards of one checkpoint.
    #[error("{} are not shards of one checkpoint", enumerate_paths(paths))]
    NotASet {
        /// Paths that were given; at least two.
        paths: Vec<PathBuf>,
    },
    /// An index names a file that does not exist.
    #[error("{} names {file}, which is not in {}", file_name(index), parent_folder(index).display())]
    NotInFolder {
        index: PathBuf,
        /// Name of the missing file, as the index gives it.
        file: String,
    },
    /// Two shards of a set have the same number.
    #[error("{} and {} have the same number, {number}", first.display(), second.display())]
    SameNumber {
        first: PathBuf,
        second: PathBuf,
        /// Shard number in both names.
        number: usize,
    },
    /// Two paths of a set lead to the same file.
    #[error("{} and {} are the same file", first.display(), second.display())]
    SameFileTwice { first: PathBuf, second: PathBuf },
    /// A shard of a numbered set does not exist.
    #[error("{} is missing: the folder has {found} of its set's files", path.display())]
    MissingShard {
        /// Expected path of the shard.
        path: PathBuf,
        /// Number of shards that exist.
        found: usize,
    },
    /// The number of a shard exceeds the number of shards in its name.
    #[error("{} is one shard too many: its name says that there are {of}", path.display())]
    ExtraShard {
        path: PathBuf,
        /// Number of shards according to the file name.
        of: usize,
    },
    /// The parts that the ranks of a training wrote cannot be joined.
    #[error("{}", in_folder(folder, reason))]
    Trainer { folder: PathBuf, reason: Box<crate::trainers::Error> },
    /// The folder was written by `DeepSpeed` with `ZeRO`: the weights are part of the optimizer state, which is split over
    /// files.
    #[error("{} is a DeepSpeed ZeRO checkpoint, whose weights are split over files", folder.display())]
    DeepSpeed {
        folder: PathBuf,
        /// Arguments for `DeepSpeed`'s own conversion script.
        found: ZeroCheckpoint,
        /// Checkpoints of the whole model in the same folder, if the training also wrote some.
        candidates: Vec<CheckpointCandidate>,
    },
    /// A checkpoint file or document in the folder is a dangling symbolic link.
    #[error("{} is a link to {}, which is not there", path.display(), target.display())]
    DanglingLink {
        path: PathBuf,
        /// Link target, as stored in the link.
        target: PathBuf,
    },
    /// A folder holds several checkpoints, and no rule prefers one of them.
    #[error("{} contains {} checkpoints", folder.display(), candidates.len())]
    SeveralCheckpoints { folder: PathBuf, candidates: Vec<CheckpointCandidate> },
    /// The folder holds no checkpoint.
    #[error("{} {contents}", folder.display())]
    NoCheckpoint { folder: PathBuf, contents: FolderDiagnosis },
}

impl Error {
    /// Returns the category of the error, by which a caller can react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { reason, .. } => reason.into(),
            Self::NotFound { .. } | Self::DanglingLink { .. } => ErrorKind::Io,
            Self::Checkpoint { reason, .. }
            | Self::InconsistentSet { reason, .. }
            | Self::Remote { reason, .. } => reason.kind(),
            Self::NoPaths => ErrorKind::Option,
            Self::LoneShard { .. }
            | Self::RankPart { .. }
            | Self::NotASet { .. }
            | Self::NotInFolder { .. }
            | Self::SameNumber { .. }
            | Self::SameFileTwice { .. }
            | Self::MissingShard { .. }
            | Self::ExtraShard { .. }
            | Self::SeveralCheckpoints { .. }
            | Self::NoCheckpoint { .. } => ErrorKind::Input,
            Self::Trainer { reason, .. } => reason.kind(),
            Self::DocumentTooLarge { .. } | Self::DeepSpeed { .. } => ErrorKind::Unsupported,
        }
    }
}

impl Error {
    pub(crate) fn checkpoint(path: &Path, reason: torch_import::Error) -> Self {
        Self::Checkpoint { path: path.to_owned(), reason }
    }

    /// Creates the error for a file that cannot be opened or read.
    pub(crate) fn unread(path: &Path, reason: byte_source::Error) -> Self {
        if reason.detail::<byte_source::FileError>().is_some() {
            return Self::checkpoint(path, reason);
        }
        Self::Remote { path: path.to_owned(), reason }
    }

    pub(crate) fn trainer(folder: &Path, reason: crate::trainers::Error) -> Self {
        Self::Trainer { folder: folder.to_owned(), reason: Box::new(reason) }
    }

    /// Creates [`Error::InconsistentSet`] for the shards in the folder of `path`.
    pub(crate) fn inconsistent_set(path: &Path, reason: torch_import::Error) -> Self {
        Self::InconsistentSet { folder: parent_folder(path).to_owned(), reason }
    }
}

/// One of several checkpoints in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointCandidate {
    /// Paths that select the checkpoint in [`CheckpointSources::find`](crate::files::CheckpointSources::find).
    pub paths: Vec<PathBuf>,
}

/// Formats `path: reason`, or the reason alone if it contains the path already.
fn with_path(path: &Path, reason: &torch_import::Error) -> String {
    match reason.location().path {
        Some(_) => reason.to_string(),
        None => format!("{}: {reason}", path.display()),
    }
}

/// Formats `folder: reason`, or the reason alone if it contains the folder already.
fn in_folder(folder: &Path, reason: &crate::trainers::Error) -> String {
    match reason {
        crate::trainers::Error::Io { .. } | crate::trainers::Error::Unfinished { .. } => reason.to_string(),
        reason => format!("{}: {reason}", folder.display()),
    }
}

/// Joins paths into an enumeration for a sentence.
fn enumerate_paths(paths: &[PathBuf]) -> String {
    enumerate_names(&paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>())
}

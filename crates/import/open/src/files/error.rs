//! Problems of finding and reading the files of a checkpoint.
//!
//! Each text is complete without the place of the error. The program that prints it adds the remedy.

use std::path::PathBuf;

use byte_source::{Place, details};
use output::{file_name, parent_folder};

use crate::files::deepspeed::ZeroCheckpoint;
use crate::files::diagnosis::{FolderDiagnosis, enumerate_names};

/// Reasons for which paths do not lead to one readable checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A document is larger than the limit, which no real document reaches.
    #[error("{} has {len} bytes, more than the {limit} that are read", path.display())]
    DocumentTooLarge {
        path: PathBuf,
        /// Document length in bytes.
        len: u64,
        /// Maximum length in bytes.
        limit: u64,
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
    /// An index does not name a file of the set whose other files it names.
    #[error("{} does not name {file}, a file of the same set", index.display())]
    NotInIndex { index: PathBuf, file: String },
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

details! {
    Problem => Problem::place {
        Io: NotFound, DanglingLink;
        Option: NoPaths;
        Input: LoneShard, RankPart, NotASet, NotInFolder, NotInIndex, SameNumber, SameFileTwice, MissingShard, ExtraShard,
            SeveralCheckpoints, NoCheckpoint;
        Unsupported: DocumentTooLarge, DeepSpeed;
    }
}

impl Problem {
    fn place(&self) -> Place {
        match self {
            Self::NoPaths | Self::NotASet { .. } => Place::default(),
            Self::DocumentTooLarge { path, .. }
            | Self::NotFound { path }
            | Self::LoneShard { path, .. }
            | Self::RankPart { path, .. }
            | Self::NotInFolder { index: path, .. }
            | Self::NotInIndex { index: path, .. }
            | Self::SameNumber { first: path, .. }
            | Self::SameFileTwice { first: path, .. }
            | Self::MissingShard { path, .. }
            | Self::ExtraShard { path, .. }
            | Self::DeepSpeed { folder: path, .. }
            | Self::DanglingLink { path, .. }
            | Self::SeveralCheckpoints { folder: path, .. }
            | Self::NoCheckpoint { folder: path, .. } => Place::file(path),
        }
    }
}

/// One of several checkpoints in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointCandidate {
    /// Paths that select the checkpoint in [`CheckpointSources::find`](crate::files::CheckpointSources::find).
    pub paths: Vec<PathBuf>,
}

/// Joins paths into an enumeration for a sentence.
fn enumerate_paths(paths: &[PathBuf]) -> String {
    enumerate_names(&paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>())
}

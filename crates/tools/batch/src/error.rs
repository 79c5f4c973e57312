//! Problems that end a batch. An input that fails does not.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{ErrorKind, Place, details};

use crate::ManifestProblem;

/// Reason for which a batch ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A line of the manifest is refused.
    #[error("{}, line {line}: {problem}", manifest_name(path))]
    Manifest { path: PathBuf, line: u64, problem: ManifestProblem },
    /// There are results of an earlier batch, which is not to be resumed.
    #[error("{} has the results of an earlier batch", path.display())]
    ResultsExist { path: PathBuf },
    /// Another process writes to the same results.
    #[error("{} is in use by another batch", path.display())]
    ResultsInUse { path: PathBuf },
    /// The file to resume from has a line that is not the result of a batch.
    #[error("{}, line {line}: it is not a result of a batch: {reason}", path.display())]
    NotAResult { path: PathBuf, line: u64, reason: String },
    /// A temporary file with what is known about the inputs cannot be written or read.
    #[error("cannot use a temporary file: {0}")]
    Index(io::Error),
}

details! {
    Problem => Problem::place {
        Io: ResultsInUse;
        Option: ResultsExist, NotAResult;
        [0]: Index;
        {manifest_kind => problem}: Manifest;
    }
}

impl Problem {
    fn place(&self) -> Place {
        match self {
            Self::Manifest { path, .. }
            | Self::ResultsExist { path }
            | Self::ResultsInUse { path }
            | Self::NotAResult { path, .. } => Place::file(path),
            Self::Index(_) => Place::default(),
        }
    }
}

fn manifest_kind(problem: &ManifestProblem) -> ErrorKind {
    if matches!(problem, ManifestProblem::Read(_)) { ErrorKind::Io } else { ErrorKind::Input }
}

fn manifest_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

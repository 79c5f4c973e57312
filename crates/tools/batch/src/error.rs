//! Errors that end a batch. An input that fails does not.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{Cancelled, ErrorKind};

use crate::ManifestProblem;

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason for which a batch ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The manifest cannot be opened.
    #[error("cannot read {}: {reason}", path.display())]
    OpenManifest { path: PathBuf, reason: io::Error },
    /// A line of the manifest is refused.
    #[error("{}, line {line}: {problem}", manifest_name(path))]
    Manifest { path: PathBuf, line: u64, problem: ManifestProblem },
    /// The results cannot be read or written.
    #[error("{}: {reason}", path.display())]
    Results { path: PathBuf, reason: io::Error },
    /// There are results of an earlier batch, which is not to be resumed.
    #[error("{} has the results of an earlier batch", path.display())]
    ResultsExist { path: PathBuf },
    /// Another process writes to the same results.
    #[error("{} is in use by another batch", path.display())]
    ResultsInUse { path: PathBuf },
    /// The file to resume from has a line that is not the result of a batch.
    #[error("{}, line {line}: it is not a result of a batch: {reason}", path.display())]
    NotAResult { path: PathBuf, line: u64, reason: String },
    /// The new file of results cannot replace the old one, or the observer stopped the batch.
    #[error(transparent)]
    Located(#[from] byte_source::Error),
    /// A result cannot be passed on.
    #[error("cannot write a result: {0}")]
    Output(io::Error),
    /// A temporary file with what is known about the inputs cannot be written or read.
    #[error("cannot use a temporary file: {0}")]
    Index(io::Error),
    /// The folder for outputs cannot be created.
    #[error("cannot create the folder {}: {reason}", path.display())]
    CreateFolder { path: PathBuf, reason: io::Error },
}

fn manifest_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

impl Error {
    /// Returns the file or folder that the error is about.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::OpenManifest { path, .. }
            | Self::Manifest { path, .. }
            | Self::Results { path, .. }
            | Self::ResultsExist { path }
            | Self::ResultsInUse { path }
            | Self::NotAResult { path, .. }
            | Self::CreateFolder { path, .. } => Some(path),
            Self::Located(_) | Self::Output(_) | Self::Index(_) => None,
        }
    }

    /// Returns the category of the error, by which a caller can react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Manifest { problem: ManifestProblem::Read(_), .. } | Self::ResultsInUse { .. } => {
                ErrorKind::Io
            }
            Self::Manifest { .. } => ErrorKind::Input,
            Self::ResultsExist { .. } | Self::NotAResult { .. } => ErrorKind::Option,
            Self::Located(reason) => reason.kind(),
            Self::OpenManifest { reason, .. }
            | Self::Results { reason, .. }
            | Self::CreateFolder { reason, .. }
            | Self::Output(reason)
            | Self::Index(reason) => reason.into(),
        }
    }
}

impl From<Cancelled> for Error {
    fn from(cancelled: Cancelled) -> Self {
        Self::Located(cancelled.into())
    }
}

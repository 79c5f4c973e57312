//! Detection of changes of a file while it is read.
//!
//! Source: `st_size`, `st_mtim`, `st_dev` and `st_ino` of stat(2). `st_ctim` is not compared, because it also changes
//! when the file is renamed or linked or its permissions change, which does not affect its bytes.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::Place;
use crate::error::detail;

/// Error of a file that changed while it was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} changed while it was read: {change}", path.display())]
pub struct FileChanged {
    /// Path of the file, as given by the caller.
    pub path: PathBuf,
    pub change: FileChange,
}

detail!(FileChanged is Changed, |changed| Place::file(&changed.path));

/// Kind of change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileChange {
    /// The length of the file changed.
    #[error("expected {expected} bytes, found {found}")]
    Length {
        /// Length in bytes when the file was opened.
        expected: u64,
        /// Current length in bytes.
        found: u64,
    },
    /// The modification time changed: a program wrote to the file.
    #[error("its modification time is another one")]
    Written,
    /// Another file has replaced the file at its path.
    #[error("another file has taken its place")]
    Replaced,
}

/// Metadata that identify the state of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    len: u64,
    /// Modification time; `None` if the system does not report it.
    modified: Option<SystemTime>,
    /// Device and inode numbers; zeros if the system has none.
    id: (u64, u64),
}

impl FileStamp {
    pub(crate) fn from_metadata(metadata: &Metadata) -> Self {
        Self { len: metadata.len(), modified: metadata.modified().ok(), id: id(metadata) }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Compares this stamp with the current metadata of the file at `path`. Fails if they differ.
    pub(crate) fn compare(&self, path: &Path, now: &Metadata) -> Result<(), FileChanged> {
        let now = Self::from_metadata(now);
        let change = if now.id != self.id {
            FileChange::Replaced
        } else if now.len != self.len {
            FileChange::Length { expected: self.len, found: now.len }
        } else if now.modified != self.modified {
            FileChange::Written
        } else {
            return Ok(());
        };
        Err(FileChanged { path: path.to_owned(), change })
    }
}

#[cfg(unix)]
fn id(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn id(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

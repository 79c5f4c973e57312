//! How it is noticed that a file changes while it is read.
//!
//! Facts: `st_size`, `st_mtim`, `st_dev` and `st_ino` of stat(2). `st_ctim` is not compared: it also changes when the
//! file is renamed, linked or given other permissions, which leaves its bytes as they are.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file changed while it was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} changed while it was read: {change}", path.display())]
pub struct Changed {
    /// The file, as it was given.
    pub path: PathBuf,
    /// What changed.
    pub change: Change,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Change {
    /// Its length, in bytes.
    #[error("expected {expected} bytes, found {found}")]
    Length {
        /// The length when it was opened.
        expected: u64,
        /// Its length now.
        found: u64,
    },
    /// Its bytes, as the time of the last change shows.
    #[error("its modification time is another one")]
    Written,
    /// Another file has its name.
    #[error("another file has taken its place")]
    Replaced,
}

/// What a file's metadata say about its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    len: u64,
    /// `None` where the system does not report it.
    modified: Option<SystemTime>,
    /// The filesystem and the file in it; zeros where files have no numbers.
    id: (u64, u64),
}

impl Stamp {
    pub(crate) fn from_metadata(metadata: &Metadata) -> Self {
        Self { len: metadata.len(), modified: metadata.modified().ok(), id: id(metadata) }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fails when a file that had this stamp has another one now.
    pub(crate) fn compare(&self, path: &Path, now: &Metadata) -> Result<(), Changed> {
        let now = Self::from_metadata(now);
        let change = if now.id != self.id {
            Change::Replaced
        } else if now.len != self.len {
            Change::Length { expected: self.len, found: now.len }
        } else if now.modified != self.modified {
            Change::Written
        } else {
            return Ok(());
        };
        Err(Changed { path: path.to_owned(), change })
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

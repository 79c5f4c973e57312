//! Places for outputs that are not folders of this machine, such as buckets.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::{ReadError, Source};

/// Service that stores outputs, such as a bucket. A target is a path that spells an address.
pub trait OutputStore: Debug + Send + Sync {
    /// Returns what is at `target`; `None` if nothing is.
    ///
    /// # Errors
    /// When the service cannot be reached or refuses access, or the target cannot be an output.
    fn find(&self, target: &Path) -> io::Result<Option<StoredFile>>;

    /// Returns the names of the files directly in a folder.
    ///
    /// # Errors
    /// When the service cannot be reached or refuses access.
    fn files_in(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Opens the file at `target`.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    fn open(&self, target: &Path) -> Result<Arc<dyn Source>, ReadError>;

    /// Starts a file of `len` bytes at `target`. Nothing can be seen there before the upload is completed.
    ///
    /// # Errors
    /// When the service cannot be reached or refuses access, or the target cannot be an output.
    fn create(&self, target: &Path, len: u64) -> io::Result<Box<dyn Upload>>;
}

/// File in an [`OutputStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Length in bytes.
    pub len: u64,
    /// True if this program wrote it.
    pub is_own: bool,
    /// What tells its version from others of the same name, in the service's words.
    pub etag: Option<String>,
    /// Number of its version, if the service counts them.
    pub version: Option<String>,
}

/// What may be at the target when an upload is completed. The service decides it at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Anything, which is replaced.
    Anything,
    /// Nothing.
    Nothing,
    /// This version of a file, which is replaced.
    Version(StoredFile),
}

/// File that is being sent to an [`OutputStore`]. Dropping it before it is completed aborts it at the service.
pub trait Upload: io::Write + Debug + Send {
    /// Completes the file, if what is at its target may be replaced.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when something else is at the target, and other kinds when the service cannot be
    /// reached or refuses the file.
    fn complete(self: Box<Self>, replaced: &Replaced) -> io::Result<()>;

    /// Returns a function that aborts the upload from another thread, for a program that is about to end.
    fn abort_handle(&self) -> Arc<dyn Fn() + Send + Sync>;
}

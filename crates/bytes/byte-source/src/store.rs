//! Stores of files: a disk, memory, and the services that other crates add, such as a bucket.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Error, Source};

/// Files at paths. A path of a service spells an address, such as `s3://bucket/a/model.pth`, so that joining and splitting
/// paths works for all stores.
pub trait Store: Debug + Send + Sync {
    /// Lists the files and folders directly in a folder.
    ///
    /// # Errors
    /// When the folder cannot be read, and [`io::ErrorKind::Unsupported`] when the store has no listings.
    fn list(&self, folder: &Path) -> io::Result<Listing>;

    /// Returns what is at a path; `None` if nothing is.
    ///
    /// # Errors
    /// When the service cannot be reached or refuses access, or nothing can have the path.
    fn stat(&self, path: &Path) -> io::Result<Option<Stat>>;

    /// Opens files, those of a service in parallel, and returns them in the same order.
    ///
    /// # Errors
    /// When a file does not exist or cannot be read.
    fn open(&self, files: &[PathBuf]) -> Result<Vec<Arc<dyn Source>>, Error>;

    /// Starts a file of `len` bytes. Nothing can be seen at the path before the upload is completed.
    ///
    /// # Errors
    /// When the service cannot be reached or refuses access, and [`io::ErrorKind::Unsupported`] when the store is only read.
    fn create(&self, path: &Path, len: u64) -> io::Result<Box<dyn Upload>> {
        let _ = (path, len);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns true if the paths are those of this machine's disks.
    fn is_local(&self) -> bool {
        false
    }

    /// Returns true if each read is a request, so that a file is judged by its name instead of its contents.
    fn has_latency(&self) -> bool {
        !self.is_local()
    }

    /// Returns the name of a folder, such as that of a model.
    fn folder_name(&self, folder: &Path) -> String {
        folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Names of the files and folders directly in a folder. Names that are not UTF-8 are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Names of files, sorted.
    pub files: Vec<String>,
    /// Names of folders, sorted.
    pub folders: Vec<String>,
    /// Names of the files and folders that are symbolic links, sorted.
    pub links: Vec<String>,
    /// Names of symbolic links that lead nowhere, sorted.
    pub dangling_links: Vec<String>,
}

impl Listing {
    /// Returns the names directly in a folder of a store that knows all its files. `paths` are those of the files, sorted and
    /// relative to the folder.
    pub fn from_paths<'p>(paths: impl IntoIterator<Item = &'p str>) -> Self {
        let mut listing = Self::default();
        for path in paths {
            match path.split_once('/') {
                Some((name, _)) => listing.folders.push(name.to_owned()),
                None => listing.files.push(path.to_owned()),
            }
        }
        listing.folders.sort_unstable();
        listing.folders.dedup();
        listing
    }

    /// Returns true if there is a file of this name.
    pub fn has_file(&self, name: &str) -> bool {
        self.files.binary_search_by(|file| file.as_str().cmp(name)).is_ok()
    }

    /// Returns true if there is a folder of this name.
    pub fn has_folder(&self, name: &str) -> bool {
        self.folders.binary_search_by(|folder| folder.as_str().cmp(name)).is_ok()
    }
}

/// What is at a path of a [`Store`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stat {
    File(FileStat),
    Folder,
    /// A pipe, a device, or a link that leads nowhere.
    Other,
}

impl Stat {
    /// Returns true for a file.
    pub fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Returns the file; `None` for a folder.
    pub fn file(self) -> Option<FileStat> {
        match self {
            Self::File(file) => Some(file),
            Self::Folder | Self::Other => None,
        }
    }
}

/// File in a [`Store`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStat {
    /// Length in bytes, if the store knows it before the file is opened.
    pub len: Option<u64>,
    /// True if this program wrote it and the store keeps a mark of that.
    pub is_own: bool,
    /// What tells its version from others at the same path, in the service's words: an entity tag or a commit.
    pub etag: Option<String>,
    /// Number of its version, if the service counts them.
    pub version: Option<String>,
}

/// What may be at the target when an upload is completed. The store decides it at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Anything, which is replaced.
    Anything,
    /// Nothing.
    Nothing,
    /// This version of a file, which is replaced.
    Version(FileStat),
}

/// File that is being sent to a [`Store`]. Dropping it before it is completed aborts it at the service.
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

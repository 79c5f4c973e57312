//! Where something is: a path in a store.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use crate::{Error, FileStat, Listing, LocalStore, Source, Stat, Store};

/// Path in a [`Store`]. A path of this machine converts into a location, and so does an open [`Source`], which has nothing
/// next to it.
#[derive(Clone)]
pub struct Location {
    store: Arc<dyn Store>,
    path: PathBuf,
}

static LOCAL: LazyLock<Arc<dyn Store>> = LazyLock::new(|| Arc::new(LocalStore::default()));

impl Location {
    /// Creates the location of a path in a store.
    pub fn new(store: Arc<dyn Store>, path: impl Into<PathBuf>) -> Self {
        Self { store, path: path.into() }
    }

    /// Creates the location of a path of this machine.
    pub fn local(path: impl Into<PathBuf>) -> Self {
        Self::new(Arc::clone(&LOCAL), path)
    }

    /// Returns the path in the store, which messages show.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the store that has the path.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns true if the path is one of this machine's disks.
    pub fn is_local(&self) -> bool {
        self.store.is_local()
    }

    /// Returns the location of another path in the same store.
    #[must_use]
    pub fn at(&self, path: impl Into<PathBuf>) -> Self {
        Self::new(Arc::clone(&self.store), path)
    }

    /// Returns the location of a path below this folder.
    #[must_use]
    pub fn join(&self, path: impl AsRef<Path>) -> Self {
        self.at(self.path.join(path))
    }

    /// Returns the folder that has the file or folder, as typed; `.` for a bare name. Symbolic links are not resolved.
    #[must_use]
    pub fn parent(&self) -> Self {
        self.at(match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        })
    }

    /// Returns the name of the folder, such as that of a model.
    pub fn folder_name(&self) -> String {
        self.store.folder_name(&self.path)
    }

    /// Returns what is here; `None` if nothing is.
    ///
    /// # Errors
    /// Those of [`Store::stat`].
    pub fn stat(&self) -> io::Result<Option<Stat>> {
        self.store.stat(&self.path)
    }

    /// Returns true if a file is here.
    pub fn is_file(&self) -> bool {
        matches!(self.stat(), Ok(Some(Stat::File(_))))
    }

    /// Returns true if a folder is here.
    pub fn is_folder(&self) -> bool {
        matches!(self.stat(), Ok(Some(Stat::Folder)))
    }

    /// Opens the file.
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub fn open(&self) -> Result<Arc<dyn Source>, Error> {
        let opened = self.store.open(std::slice::from_ref(&self.path))?.into_iter().next();
        opened.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Lists the folder.
    ///
    /// # Errors
    /// Those of [`Store::list`].
    pub fn list(&self) -> io::Result<Folder> {
        Ok(Folder { listing: self.store.list(&self.path)?, location: self.clone() })
    }

    /// Returns the paths of all files below the folder, relative to it, sorted.
    ///
    /// # Errors
    /// When a folder cannot be listed.
    pub fn files_below(&self) -> io::Result<Vec<String>> {
        let (mut folders, mut files) = (vec![String::new()], Vec::new());
        while let Some(folder) = folders.pop() {
            let listing = self.store.list(&self.path.join(&folder))?;
            files.extend(listing.files.into_iter().map(|name| format!("{folder}{name}")));
            folders.extend(listing.folders.into_iter().map(|name| format!("{folder}{name}/")));
        }
        files.sort_unstable();
        Ok(files)
    }
}

/// Folder that was listed.
#[derive(Clone, Debug)]
pub struct Folder {
    pub location: Location,
    pub listing: Listing,
}

impl Folder {
    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.location.path()
    }

    /// Lists a folder in this one.
    ///
    /// # Errors
    /// Those of [`Location::list`].
    pub fn below(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        self.location.join(name).list()
    }
}

/// Writes the path alone: neither bytes of a source nor what may be secret.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl PartialEq for Location {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && Arc::ptr_eq(&self.store, &other.store)
    }
}

impl Eq for Location {}

impl Default for Location {
    fn default() -> Self {
        Self::local("")
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Self {
        Self::local(path)
    }
}

impl<P: AsRef<std::ffi::OsStr> + ?Sized> From<&P> for Location {
    fn from(path: &P) -> Self {
        Self::local(path)
    }
}

impl From<String> for Location {
    fn from(path: String) -> Self {
        Self::local(path)
    }
}

impl From<Arc<dyn Source>> for Location {
    fn from(source: Arc<dyn Source>) -> Self {
        let path = source.path().to_owned();
        Self::new(Arc::new(OneSource(source)), path)
    }
}

/// Store of one open source. What is next to it is not known, so that there are no listings.
#[derive(Debug)]
struct OneSource(Arc<dyn Source>);

impl Store for OneSource {
    fn list(&self, _folder: &Path) -> io::Result<Listing> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        let stat = || Stat::File(FileStat { len: Some(self.0.len()), ..FileStat::default() });
        Ok((path == self.0.path()).then(stat))
    }

    fn open(&self, files: &[PathBuf]) -> Result<Vec<Arc<dyn Source>>, Error> {
        let open = |path: &PathBuf| {
            if path == self.0.path() { Ok(Arc::clone(&self.0)) } else { Err(io::ErrorKind::NotFound.into()) }
        };
        files.iter().map(open).collect()
    }
}

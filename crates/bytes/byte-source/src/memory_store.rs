//! A store in memory, or of sources that are open.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{BufferSource, Error, FileStat, Listing, Replaced, Source, Stat, Store, Upload};

/// Sources at paths. A folder exists while there is a file below it. Clones share the files.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    files: Arc<Mutex<BTreeMap<PathBuf, StoredSource>>>,
}

#[derive(Clone, Debug)]
struct StoredSource {
    source: Arc<dyn Source>,
    /// True if it was uploaded.
    is_own: bool,
    /// Number of its version, which no other file of the store has.
    etag: u64,
}

impl MemoryStore {
    /// Adds a file, which has the path of the source.
    pub fn insert(&self, source: Arc<dyn Source>) {
        self.with_files(|files| put(files, source, false));
    }

    /// Removes a file.
    pub fn remove(&self, path: &Path) {
        self.with_files(|files| drop(files.remove(path)));
    }

    fn with_files<T>(&self, work: impl FnOnce(&mut BTreeMap<PathBuf, StoredSource>) -> T) -> T {
        work(&mut self.files.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn put(files: &mut BTreeMap<PathBuf, StoredSource>, source: Arc<dyn Source>, is_own: bool) {
    let etag = files.values().map(|file| file.etag).max().unwrap_or(0).saturating_add(1);
    files.insert(source.path().to_owned(), StoredSource { source, is_own, etag });
}

impl FromIterator<Arc<dyn Source>> for MemoryStore {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Source>>>(sources: I) -> Self {
        let store = Self::default();
        sources.into_iter().for_each(|source| store.insert(source));
        store
    }
}

impl StoredSource {
    fn stat(&self) -> FileStat {
        FileStat {
            len: Some(self.source.len()),
            is_own: self.is_own,
            etag: Some(self.etag.to_string()),
            version: None,
        }
    }
}

impl Store for MemoryStore {
    fn list(&self, folder: &Path) -> io::Result<Listing> {
        let mut below: Vec<String> = self.with_files(|files| {
            let inside = files.keys().filter_map(|path| path.strip_prefix(folder).ok()?.to_str());
            inside.filter(|path| !path.is_empty()).map(str::to_owned).collect()
        });
        below.sort_unstable();
        Ok(Listing::from_paths(below.iter().map(String::as_str)))
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        Ok(self.with_files(|files| match files.get(path) {
            Some(file) => Some(Stat::File(file.stat())),
            None => files.keys().any(|known| known.starts_with(path)).then_some(Stat::Folder),
        }))
    }

    fn open(&self, files: &[PathBuf]) -> Result<Vec<Arc<dyn Source>>, Error> {
        let open = |path: &PathBuf| {
            let found = self.with_files(|files| files.get(path).map(|file| Arc::clone(&file.source)));
            let missing =
                || io::Error::new(io::ErrorKind::NotFound, format!("there is no file {}", path.display()));
            Ok(found.ok_or_else(missing)?)
        };
        files.iter().map(open).collect()
    }

    fn create(&self, path: &Path, _len: u64) -> io::Result<Box<dyn Upload>> {
        Ok(Box::new(MemoryUpload { store: self.clone(), path: path.to_owned(), bytes: Vec::new() }))
    }
}

#[derive(Debug)]
struct MemoryUpload {
    store: MemoryStore,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Write for MemoryUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for MemoryUpload {
    fn complete(self: Box<Self>, replaced: &Replaced) -> io::Result<()> {
        let Self { store, path, bytes } = *self;
        store.with_files(|files| {
            let found = files.get(&path).map(StoredSource::stat);
            let may_replace = match replaced {
                Replaced::Anything => true,
                Replaced::Nothing => found.is_none(),
                Replaced::Version(version) => found.as_ref() == Some(version),
            };
            if !may_replace {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            put(files, Arc::new(BufferSource::new(path, bytes)), true);
            Ok(())
        })
    }

    fn abort_handle(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::new(|| {})
    }
}

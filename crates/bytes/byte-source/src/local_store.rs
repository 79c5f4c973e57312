//! The disks of this machine as a store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Error, FileStat, Listing, OpenedFile, Source, Stat, Store};

/// Files of this machine. Links are followed, and paths are used as given.
///
/// The store does not create files: outputs are written next to their targets and renamed, with the permissions of what they
/// replace, by the crate `output`.
#[derive(Clone, Debug)]
pub struct LocalStore {
    open: fn(&Path) -> OpenedFile,
}

impl Default for LocalStore {
    /// Maps the files that it opens.
    fn default() -> Self {
        Self { open: crate::map_file }
    }
}

impl LocalStore {
    /// Creates a store that opens each file with `open`, such as [`map_file_lazily`](crate::map_file_lazily).
    pub fn with_open(open: fn(&Path) -> OpenedFile) -> Self {
        Self { open }
    }
}

impl Store for LocalStore {
    fn list(&self, folder: &Path) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for entry in folder.read_dir()? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            // The folder has the type of most entries, so that only links take a system call each.
            let kind = entry.file_type()?;
            let is_link = kind.is_symlink();
            let target =
                if is_link { entry.path().metadata().ok().map(|it| it.file_type()) } else { Some(kind) };
            let Some(kind) = target else {
                listing.dangling_links.push(name.to_owned());
                continue;
            };
            if kind.is_dir() {
                listing.folders.push(name.to_owned());
            } else if kind.is_file() {
                listing.files.push(name.to_owned());
            } else {
                continue;
            }
            listing.links.extend(is_link.then(|| name.to_owned()));
        }
        listing.files.sort_unstable();
        listing.folders.sort_unstable();
        listing.links.sort_unstable();
        listing.dangling_links.sort_unstable();
        Ok(listing)
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        let Ok(metadata) = path.metadata() else { return Ok(path.is_symlink().then_some(Stat::Other)) };
        Ok(Some(if metadata.is_dir() {
            Stat::Folder
        } else if metadata.is_file() {
            Stat::File(FileStat { len: Some(metadata.len()), ..FileStat::default() })
        } else {
            Stat::Other
        }))
    }

    fn open(&self, files: &[PathBuf]) -> Result<Vec<Arc<dyn Source>>, Error> {
        files.iter().map(|path| (self.open)(path)).collect()
    }

    fn is_local(&self) -> bool {
        true
    }

    fn folder_name(&self, folder: &Path) -> String {
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let absolute =
            if folder.file_name().is_none() { folder.canonicalize().unwrap_or(absolute) } else { absolute };
        absolute.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

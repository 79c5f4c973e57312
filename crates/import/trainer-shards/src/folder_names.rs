//! Names of the files in a folder, by which a layout recognises it.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Names of the regular files and of the folders in a folder, sorted.
#[derive(Debug)]
pub struct FolderNames {
    pub(crate) folder: PathBuf,
    pub(crate) files: Vec<String>,
    pub(crate) folders: Vec<String>,
}

impl FolderNames {
    /// Reads the names in a folder.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let io = |reason: io::Error| Error::Io { path: folder.to_owned(), reason };
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for entry in folder.read_dir().map_err(io)? {
            let path = entry.map_err(io)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if path.is_dir() {
                folders.push(name.to_owned());
            } else if path.is_file() {
                files.push(name.to_owned());
            }
        }
        files.sort_unstable();
        folders.sort_unstable();
        Ok(Self { folder: folder.to_owned(), files, folders })
    }

    /// Reads the names in a folder below this one.
    pub(crate) fn below(&self, name: &str) -> Result<Self> {
        Self::read(&self.folder.join(name))
    }

    /// Returns true if there is a file of this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.files.binary_search_by(|file| file.as_str().cmp(name)).is_ok()
    }
}

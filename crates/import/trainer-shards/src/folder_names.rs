//! Names of the files in a folder, by which a layout recognises it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Error, Result};

/// Names of the regular files and of the folders in a folder, sorted.
#[derive(Debug)]
pub struct FolderNames {
    pub(crate) folder: PathBuf,
    pub(crate) files: Vec<String>,
    pub(crate) folders: Vec<String>,
    /// For a folder in an archive: the paths of all files of the archive, and the start of those in the folder.
    archive: Option<(Arc<[String]>, String)>,
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
        Ok(Self { folder: folder.to_owned(), files, folders, archive: None })
    }

    pub(crate) fn below(&self, name: &str) -> Result<Self> {
        let folder = self.folder.join(name);
        match &self.archive {
            Some((paths, prefix)) => Ok(Self::in_archive(folder, &format!("{prefix}{name}/"), paths)),
            None => Self::read(&folder),
        }
    }

    /// Returns the names at the top of the archive at `path`, whose files have these paths.
    pub(crate) fn of_members(path: &Path, paths: &Arc<[String]>) -> Self {
        Self::in_archive(path.to_owned(), "", paths)
    }

    fn in_archive(folder: PathBuf, prefix: &str, paths: &Arc<[String]>) -> Self {
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for path in paths.iter().filter_map(|path| path.strip_prefix(prefix)) {
            match path.split_once('/') {
                Some((name, _)) => folders.push(name.to_owned()),
                None => files.push(path.to_owned()),
            }
        }
        files.sort_unstable();
        folders.sort_unstable();
        folders.dedup();
        Self { folder, files, folders, archive: Some((Arc::clone(paths), prefix.to_owned())) }
    }

    /// Returns true if there is a file of this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.files.binary_search_by(|file| file.as_str().cmp(name)).is_ok()
    }
}

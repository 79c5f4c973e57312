//! Listings of a trainer's folders.

use byte_source::{Folder, Location};

use crate::trainers::{Error, Result};

/// Lists a folder.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn list(folder: &Location) -> Result<Folder> {
    folder.list().map_err(|reason| Error::Io { path: folder.path().to_owned(), reason })
}

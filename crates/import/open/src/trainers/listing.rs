//! Listings of a trainer's folders.

use byte_source::{Error, Folder, Location};

use crate::trainers::Result;

/// Lists a folder.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn list(folder: &Location) -> Result<Folder> {
    folder.list().map_err(|error| Error::from(error).in_file(folder.path()))
}

//! Cartons whose large files are in a folder that the outputs of a batch share, so that equal files are stored once.

use std::path::{Path, PathBuf};

use byte_source::{Cancelled, Location, Observer, OwnedBlob, Region, hex, sha256};
use carton_tools::{Error, ShrinkOptions};
use output::{FileRecord, IfExists};

/// Folder for the large files of cartons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlobFolder {
    /// Path of the folder. The name of a file in it is its SHA-256.
    pub(crate) path: PathBuf,
    /// http or https URL below which its files will be served.
    pub(crate) base: String,
}

impl BlobFolder {
    /// Returns the digest of what a carton without its large files is made from; `conversion` is that of the whole one.
    pub(super) fn made_from(&self, conversion: &str) -> Option<String> {
        let text = format!("{conversion} {}\n{}", self.path.display(), self.base);
        sha256(&OwnedBlob(text.into_bytes()), &()).ok().map(|hash| hex(&hash))
    }

    /// Moves the large files of a carton into the folder, and returns the record of the smaller carton.
    pub(super) fn shrink(&self, carton: &Path, observer: &dyn Observer) -> Result<Vec<FileRecord>, Error> {
        let mut options = ShrinkOptions::new(carton, carton, &self.base, &self.path);
        options.in_place = true;
        options.if_exists = IfExists::Replace;
        carton_tools::shrink(&options, observer)?;
        let metadata = carton.symlink_metadata().ok();
        let record = |metadata| FileRecord::new(output::file_name(carton), &metadata, None);
        Ok(metadata.map(record).into_iter().collect())
    }

    /// Returns true if the folder has all files that a carton lacks.
    pub(super) fn has_files_of(&self, carton: &Path) -> bool {
        let absent = carton_tools::open(&carton.into()).map(|carton| carton.absent());
        absent.is_ok_and(|absent| absent.iter().all(|(_, hash)| self.path.join(hex(hash)).is_file()))
    }

    /// Returns true if the files that a carton lacks have their hashes.
    pub(super) fn verify(&self, carton: &Path, observer: &dyn Observer) -> Result<bool, Cancelled> {
        let Ok(carton) = carton_tools::open(&carton.into()) else { return Ok(false) };
        for (_, expected) in carton.absent() {
            let Ok(source) = Location::from(&self.path.join(hex(&expected))).open() else { return Ok(false) };
            match sha256(&Region::whole(&source), observer) {
                Err(error) if error.is_cancelled() => return Err(Cancelled),
                Ok(hash) if hash == expected => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

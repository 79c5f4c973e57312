//! Cartons whose large files are in a folder that the outputs of a batch share, so that equal files are stored once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{MappedFile, Observer, OwnedBlob, Region, Source, hex, sha256};
use carton_tools::ShrinkOptions;
use output::{FileRecord, IfExists};

use crate::TaskError;

/// Folder for the large files of cartons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobFolder {
    /// Path of the folder. The name of a file in it is its SHA-256.
    pub path: PathBuf,
    /// http or https URL below which its files will be served.
    pub base: String,
}

impl BlobFolder {
    /// Returns the digest of what a carton without its large files is made from; `conversion` is that of the whole one.
    pub(crate) fn made_from(&self, conversion: &str) -> Option<String> {
        let text = format!("{conversion} {}\n{}", self.path.display(), self.base);
        sha256(&OwnedBlob(text.into_bytes()), &()).ok().map(|hash| hex(&hash))
    }

    /// Moves the large files of a carton into the folder, and returns the record of the smaller carton.
    ///
    /// # Errors
    /// Those of [`carton_tools::shrink`].
    pub(crate) fn shrink(
        &self,
        carton: &Path,
        observer: &dyn Observer,
    ) -> Result<Vec<FileRecord>, TaskError> {
        let mut options = ShrinkOptions::new(carton, carton, &self.base, &self.path);
        options.in_place = true;
        options.if_exists = IfExists::Replace;
        carton_tools::shrink(&options, observer)?;
        let metadata = carton.symlink_metadata().ok();
        let record = |metadata| FileRecord::new(output::file_name(carton), &metadata, None);
        Ok(metadata.map(record).into_iter().collect())
    }

    /// Returns true if a carton is as it was recorded, and the folder has all files that it lacks. With `verify`, their hashes
    /// are compared.
    pub(crate) fn is_complete(
        &self,
        carton: &Path,
        files: &[FileRecord],
        verify: bool,
        observer: &dyn Observer,
    ) -> bool {
        let [file] = files else { return false };
        let is_untouched = carton.symlink_metadata().is_ok_and(|metadata| file.is_untouched(&metadata));
        let absent = carton_tools::open(&carton.into()).map(|carton| carton.absent());
        let Ok(absent) = absent else { return false };
        is_untouched
            && absent.iter().all(|(_, hash)| {
                let blob = self.path.join(hex(hash));
                if verify { has_hash(&blob, hash, observer) } else { blob.is_file() }
            })
    }
}

fn has_hash(path: &Path, expected: &[u8; 32], observer: &dyn Observer) -> bool {
    let Ok(file) = MappedFile::open(path) else { return false };
    let source: Arc<dyn Source> = Arc::new(file);
    sha256(&Region::whole(&source), observer).is_ok_and(|hash| hash == *expected)
}

//! Recognises cartons.

use byte_source::{Location, MappedFile, Source};
use zip_format::ZipIndex;

use crate::{Carton, Config, Manifest, Result};

/// Length of the file's tail in which entry names of a damaged zip file are searched, in bytes.
const TAIL_LEN: u64 = 1 << 20;

impl Carton {
    /// Extension of packed cartons.
    pub const EXTENSION: &str = "carton";

    /// Opens an input if it is a carton: see [`is_at`](Self::is_at).
    ///
    /// # Errors
    /// When the input is a carton that cannot be read.
    pub fn find(input: &Location) -> Result<Option<Self>> {
        match input {
            input if !Self::is_at(input) => Ok(None),
            input if input.is_local() => Self::open(input.path()).map(Some),
            input => Self::from_source(input.open()?).map(Some),
        }
    }

    /// Returns true if a file or folder of this machine is a carton, judged by its content. A damaged carton counts. A file
    /// whose reads are requests is judged by its extension, because its contents would be read twice.
    pub fn is_at(input: &Location) -> bool {
        let path = input.path();
        if !input.is_local() {
            let is_one = if input.store().has_latency() {
                path.extension().is_some_and(|extension| extension == Self::EXTENSION)
            } else {
                input.open().is_ok_and(|file| Self::is_in(&*file))
            };
            return is_one && !input.is_folder();
        }
        if path.is_dir() {
            return path.join(Config::PATH).is_file();
        }
        MappedFile::open(path).is_ok_and(|file| Self::is_in(&file))
    }

    /// Returns true if a file is a carton, judged by its content. A damaged carton counts.
    pub fn is_in(file: &dyn Source) -> bool {
        // A small read costs less than touching a page of a map.
        let mut start = [0; 2];
        file.read_at(&mut start, 0).is_ok() && start == *b"PK" && Self::documents_are_in(file)
    }

    /// Returns true if the central directory of a zip file, which may be damaged, lists the documents of a carton.
    pub fn documents_are_in(file: &dyn Source) -> bool {
        if let Some(has_both) = ZipIndex::directory_lists(file, &[Config::PATH, Manifest::PATH]) {
            return has_both;
        }
        // With a damaged directory, both names in the tail make the file a damaged carton, which the reader diagnoses.
        let Ok(tail) = file.read_range(file.len().saturating_sub(TAIL_LEN)..file.len()) else { return false };
        let names = |name: &str| tail.windows(name.len()).any(|found| found == name.as_bytes());
        names(Config::PATH) && names(Manifest::PATH)
    }
}

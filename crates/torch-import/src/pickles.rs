//! The pickles of a file, for those who want to watch the machine: of a checkpoint the one that holds its
//! root object, of any other file the pickles that follow one another from its first byte.
//!
//! Facts: `_legacy_load` in `torch/serialization.py` for the order of the pickles before PyTorch 1.6.

use std::path::Path;

use mapped::MappedFile;
use pickle_vm::{Opcode, Reader};

use crate::container::sniff;
use crate::{Container, Error, Result};

/// Magic number, protocol version and system information come before a legacy file's root object.
const LEGACY_ROOT: usize = 3;

/// A file that holds pickles.
#[derive(Debug)]
pub struct Pickles {
    source: Source,
    root: usize,
}

#[derive(Debug)]
enum Source {
    Container(Box<Container>),
    Bare(MappedFile),
}

impl Pickles {
    /// Opens a checkpoint or a bare pickle.
    ///
    /// # Errors
    /// When the file cannot be read, or its zip archive is damaged.
    pub fn open(path: &Path) -> Result<Self> {
        let file = MappedFile::open(path)?;
        if sniff::is_zip(file.bytes()) {
            drop(file);
            return Ok(Self { source: Source::Container(Box::new(Container::open(path)?)), root: 0 });
        }
        let root = if sniff::is_legacy(file.bytes()) { LEGACY_ROOT } else { 0 };
        Ok(Self { source: Source::Bare(file), root })
    }

    /// The checkpoint whose storages the pickle refers to.
    pub fn container(&self) -> Option<&Container> {
        match &self.source {
            Source::Container(container) => Some(container),
            Source::Bare(_) => None,
        }
    }

    /// What the file calls its pickles.
    fn record(&self) -> String {
        match &self.source {
            Source::Container(container) => container.pickle_record().to_owned(),
            Source::Bare(file) => file.path().display().to_string(),
        }
    }

    /// The bytes from the start of the pickle number `index` (from 0) on, or of the one that holds the
    /// root object.
    ///
    /// # Errors
    /// When there are fewer pickles, or one before it cannot be read.
    pub fn pickle(&self, index: Option<usize>) -> Result<&[u8]> {
        let mut bytes = match &self.source {
            Source::Container(container) => container.pickle(),
            Source::Bare(file) => file.bytes(),
        };
        for before in 0..index.unwrap_or(self.root) {
            let len = self.len_of_first(bytes)?;
            bytes = bytes
                .get(len..)
                .filter(|rest| !rest.is_empty())
                .ok_or_else(|| Error::NoPickle { record: self.record(), count: before.saturating_add(1) })?;
        }
        Ok(bytes)
    }

    fn len_of_first(&self, bytes: &[u8]) -> Result<usize> {
        let mut reader = Reader::new(bytes);
        for instruction in reader.by_ref() {
            let instruction =
                instruction.map_err(|reason| Error::Pickle { record: self.record(), reason })?;
            if instruction.opcode == Opcode::Stop {
                break;
            }
        }
        // The reader stands inside the bytes.
        Ok(usize::try_from(reader.offset()).unwrap_or(bytes.len()))
    }
}

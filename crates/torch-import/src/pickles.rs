//! Access to the pickles of a file, for callers that run the pickle machine step by step. A zip archive has one, with
//! its root object; a bare pickle or a legacy checkpoint has a sequence of pickles from its first byte on.
//!
//! Facts: `_legacy_load` in `torch/serialization.py` for the order of the pickles before PyTorch 1.6.

use std::path::Path;

use byte_source::MappedFile;
use pickle_vm::{Opcode, PickleLimits, Reader};

use crate::container::{legacy, sniff};
use crate::{Container, ContainerFormat, Error, Result};

/// A file that holds pickles.
#[derive(Debug)]
pub struct Pickles {
    source: PickleSource,
    root: usize,
}

#[derive(Debug)]
enum PickleSource {
    Container(Box<Container>),
    /// Mapped file that starts with pickles, readable even if the container is damaged or absent.
    PickleSequence(MappedFile, Option<Box<Container>>),
}

impl Pickles {
    /// Opens a checkpoint or a bare pickle.
    ///
    /// # Errors
    /// When the file cannot be read, its container is damaged, or it holds no pickle.
    pub fn open(path: &Path) -> Result<Self> {
        let file = MappedFile::open(path)?;
        if !sniff::starts_with_pickles(file.bytes()) {
            drop(file);
            let container = Box::new(Container::open(path)?);
            if container.format() == ContainerFormat::Safetensors {
                return Err(Error::Format {
                    what: "a safetensors file",
                    hint: "it holds tensors and no pickle",
                    first_line: String::new(),
                });
            }
            return Ok(Self { source: PickleSource::Container(container), root: 0 });
        }
        if legacy::recognises(file.bytes()) {
            let container = Container::open(path).ok().map(Box::new);
            return Ok(Self {
                source: PickleSource::PickleSequence(file, container),
                root: legacy::ROOT_INDEX,
            });
        }
        sniff::reject_unreadable_formats(file.bytes())?;
        Ok(Self { source: PickleSource::PickleSequence(file, None), root: 0 })
    }

    /// Returns the checkpoint whose storages the pickle refers to.
    pub fn container(&self) -> Option<&Container> {
        match &self.source {
            PickleSource::Container(container) => Some(container),
            PickleSource::PickleSequence(_, container) => container.as_deref(),
        }
    }

    /// Returns the limits for reading the pickle.
    pub fn limits(&self) -> PickleLimits {
        match &self.source {
            PickleSource::Container(container) => container.pickle_limits(),
            PickleSource::PickleSequence(file, _) => PickleLimits::for_stored(file.bytes().len() as u64),
        }
    }

    /// Returns the name of the file or record for messages.
    fn record(&self) -> String {
        match &self.source {
            PickleSource::Container(container) => container.pickle_record().to_owned(),
            PickleSource::PickleSequence(file, _) => file.path().display().to_string(),
        }
    }

    /// Returns the bytes from the start of pickle `index` (from 0) on; without `index`, from the pickle of the root
    /// object on.
    ///
    /// # Errors
    /// When the file has fewer pickles, or an earlier one cannot be read.
    pub fn pickle(&self, index: Option<usize>) -> Result<&[u8]> {
        let mut bytes = match &self.source {
            PickleSource::Container(container) => container.pickle(),
            PickleSource::PickleSequence(file, _) => file.bytes(),
        };
        let index = index.unwrap_or(self.root);
        let none = |count| Error::NoPickle { record: self.record(), count };
        for before in 0..index {
            let len = self.first_pickle_len(bytes)?;
            let next = before.saturating_add(1);
            let ends = self.root == legacy::ROOT_INDEX && next == legacy::LEGACY_PICKLES;
            bytes = bytes.get(len..).filter(|rest| !rest.is_empty() && !ends).ok_or_else(|| none(next))?;
        }
        Ok(bytes)
    }

    fn first_pickle_len(&self, bytes: &[u8]) -> Result<usize> {
        let mut reader = Reader::new(bytes);
        for instruction in reader.by_ref() {
            let instruction =
                instruction.map_err(|reason| Error::Pickle { record: self.record(), reason })?;
            if instruction.opcode == Opcode::Stop {
                break;
            }
        }
        // The reader's offset is inside the bytes.
        Ok(usize::try_from(reader.offset()).unwrap_or(bytes.len()))
    }
}

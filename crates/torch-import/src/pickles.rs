//! Access to the pickles of a file, for callers that run the pickle machine step by step. A zip archive has one, with
//! its root object; a bare pickle or a legacy checkpoint has a sequence of pickles from its first byte on.
//!
//! Facts: `_legacy_load` in `torch/serialization.py` for the order of the pickles before PyTorch 1.6.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{MappedFile, Source};
use bytes::Bytes;
use pickle_vm::{Opcode, PickleLimits, Reader};

use crate::container::formats::legacy;
use crate::container::{inflate, sniff};
use crate::{Container, Problem, Result};

/// A file that holds pickles.
#[derive(Debug)]
pub struct Pickles {
    source: PickleSource,
    root: usize,
}

#[derive(Debug)]
enum PickleSource {
    Container(Box<Container>),
    /// File that starts with pickles, and its bytes or those of its pickles, readable even if the container is damaged or absent.
    PickleSequence(PathBuf, Bytes, Option<Box<Container>>),
}

impl Pickles {
    /// Opens a checkpoint or a bare pickle.
    ///
    /// # Errors
    /// When the file cannot be read, its container is damaged, or it holds no pickle.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_source(Arc::new(MappedFile::open(path)?))
    }

    /// Reads a checkpoint or a bare pickle from a source. Of one that is not in memory, only the pickles are read; a bare pickle
    /// is copied into an unlinked temporary file.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn from_source(source: Arc<dyn Source>) -> Result<Self> {
        let head = sniff::read_head(&*source)?;
        if !sniff::starts_with_pickles(&head) {
            let container = Box::new(Container::from_source(source)?);
            if container.contents().as_named().is_some() {
                return Err(Problem::Format {
                    what: match container.format() {
                        "safetensors" => "a safetensors file",
                        _ => "a file of tensors",
                    },
                    hint: "it holds tensors and no pickle, so there is nothing to trace; `inspect` lists the tensors",
                    first_line: String::new(),
                }
                .into());
            }
            return Ok(Self { source: PickleSource::Container(container), root: 0 });
        }
        let path = source.path().to_owned();
        if legacy::recognises(&head) {
            let is_whole = head.len() as u64 == source.len();
            let pickles = if is_whole { Some(head.clone()) } else { legacy::read_pickles(&*source)? };
            let container = Container::from_source(source);
            // What is damaged cannot be told from what is missing.
            let Some(pickles) = pickles else {
                return Err(container.err().unwrap_or_else(|| sniff::unknown_format_error(&head)));
            };
            return Ok(Self {
                source: PickleSource::PickleSequence(path, pickles, container.ok().map(Box::new)),
                root: legacy::ROOT_INDEX,
            });
        }
        sniff::reject_unreadable_formats(&head)?;
        let source = inflate::mappable(source)?;
        let pickles = source.share(0..source.len())?;
        Ok(Self { source: PickleSource::PickleSequence(path, pickles, None), root: 0 })
    }

    /// Returns the checkpoint whose storages the pickle refers to.
    pub fn container(&self) -> Option<&Container> {
        match &self.source {
            PickleSource::Container(container) => Some(container),
            PickleSource::PickleSequence(_, _, container) => container.as_deref(),
        }
    }

    /// Returns the limits for reading the pickle.
    pub fn limits(&self) -> PickleLimits {
        match &self.source {
            PickleSource::Container(container) => container.pickle_limits(),
            PickleSource::PickleSequence(_, pickles, _) => PickleLimits::for_stored(pickles.len() as u64),
        }
    }

    /// Returns the name of the file or record for messages.
    fn record(&self) -> String {
        match &self.source {
            PickleSource::Container(container) => container.pickle_record().to_owned(),
            PickleSource::PickleSequence(path, ..) => path.display().to_string(),
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
            PickleSource::PickleSequence(_, pickles, _) => pickles,
        };
        let index = index.unwrap_or(self.root);
        let none = |count| Problem::NoPickle { record: self.record(), count };
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
                instruction.map_err(|reason| Problem::Pickle { record: self.record(), reason })?;
            if instruction.opcode == Opcode::Stop {
                break;
            }
        }
        // The reader's offset is inside the bytes.
        Ok(usize::try_from(reader.offset()).unwrap_or(bytes.len()))
    }
}

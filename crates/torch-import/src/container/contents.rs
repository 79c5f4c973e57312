//! What the reader of a format finds in a file; each format makes one of these, and a [`Container`](super::Container)
//! answers from it.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use byte_source::{ReadError, Region, Source};
use foldhash::{HashMap, HashMapExt};
use pickle_vm::Pickle;
use safetensors_format::View;
use tensor::{ByteOrder, Records, Storage};
use zip_index::Index;

use super::inflate::Inflated;
use crate::omission::Omission;
use crate::persistent::PersistentTensor;
use crate::{Error, Note, Result};

/// The container formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// A zip archive with `data.pkl` and one record a storage: `torch.save` since PyTorch 1.6.
    Zip,
    /// The same with code: `torch.jit.save`.
    TorchScript,
    /// A sequence of pickles followed by the storages: `torch.save` before PyTorch 1.6.
    Legacy,
    /// A tar archive: `torch.save` in PyTorch 0.1.
    Tar,
    /// A bare pickle.
    Pickle,
    /// A JSON header followed by the tensors.
    Safetensors,
}

impl Format {
    /// The name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zip => "zip",
            Self::TorchScript => "torchscript",
            Self::Legacy => "legacy",
            Self::Tar => "tar",
            Self::Pickle => "pickle",
            Self::Safetensors => "safetensors",
        }
    }
}

/// What the reader of a format found in a file.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(super) file: Arc<dyn Source>,
    pub(super) format: Format,
    /// By their keys; none if a header names the tensors.
    pub(super) storages: Arc<Records>,
    /// The records that are not read.
    pub(super) unread: Vec<Omission>,
    pub(super) notes: Vec<Note>,
    pub(super) names: Names,
}

/// What names the tensors of a file.
#[derive(Debug)]
pub(super) enum Names {
    /// A pickle, whose tensors are views of storages.
    Pickled(Box<Pickled>),
    /// A header.
    Named(Named),
}

/// A pickle, and what is needed to find the storages that it refers to.
#[derive(Debug)]
pub(super) struct Pickled {
    pub(super) pickle: Bytes,
    pub(super) pickle_record: String,
    /// The directory of a zip archive that is not in memory.
    pub(super) index: Option<Index>,
    /// The part of a record's name before the storage's key.
    pub(super) prefix: String,
    /// Deflated storages, inflated once.
    pub(super) inflated: Option<Arc<dyn Source>>,
    pub(super) byte_order: ByteOrder,
    /// The tensors of a 0.1 checkpoint, by their persistent ids.
    pub(super) described: HashMap<String, PersistentTensor>,
    /// All pickles but the one that holds the root object, and the record of each.
    pub(super) more_pickles: Vec<(&'static str, Range<usize>)>,
}

impl Pickled {
    /// A pickle without storages, for the formats to complete.
    pub(super) fn new(pickle: Bytes) -> Self {
        Self {
            pickle,
            pickle_record: String::new(),
            index: None,
            prefix: String::new(),
            inflated: None,
            byte_order: ByteOrder::Little,
            described: HashMap::new(),
            more_pickles: Vec::new(),
        }
    }
}

/// Tensors that a header names, and its metadata.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// The tensors, in the header's order.
    pub(super) tensors: Vec<(String, View)>,
    /// More names of them, each with the position of its tensor.
    pub(super) ties: Vec<(String, usize)>,
    /// The metadata besides those names, in the header's order.
    pub(crate) metadata: Vec<(String, String)>,
}

/// All bytes of a source that is in memory or mapped; none of another one.
pub(crate) fn in_memory(source: &dyn Source) -> &[u8] {
    source.in_memory().unwrap_or_default()
}

/// A range in memory as a range of a source.
pub(crate) fn wide(range: &Range<usize>) -> Range<u64> {
    range.start as u64..range.end as u64
}

/// Bytes of the file, or bytes that were made from it.
#[derive(Debug)]
pub(super) enum Bytes {
    Mapped(Range<usize>),
    Inflated(Inflated),
}

impl Contents {
    /// A container whose tensors a pickle names.
    pub(super) fn pickled(
        file: Arc<dyn Source>,
        format: Format,
        mut storages: Records,
        pickled: Pickled,
    ) -> Self {
        storages.set_sources(&file, pickled.inflated.as_ref());
        let (storages, names) = (Arc::new(storages), Names::Pickled(Box::new(pickled)));
        Self { file, format, storages, unread: Vec::new(), notes: Vec::new(), names }
    }

    /// The pickle that names the tensors; `None` if a header does.
    pub(super) fn as_pickled(&self) -> Option<&Pickled> {
        match &self.names {
            Names::Pickled(pickled) => Some(pickled),
            Names::Named(_) => None,
        }
    }

    /// The header that names the tensors; `None` if a pickle does.
    pub(crate) fn as_named(&self) -> Option<&Named> {
        match &self.names {
            Names::Named(named) => Some(named),
            Names::Pickled(_) => None,
        }
    }

    /// The directory of a zip archive. One that is in memory is read again, because it may have a million entries.
    ///
    /// # Errors
    /// When the file is not such an archive.
    pub(crate) fn index(&self) -> Result<Cow<'_, Index>> {
        match self.as_pickled().and_then(|pickled| pickled.index.as_ref()) {
            Some(index) => Ok(Cow::Borrowed(index)),
            None => Index::read(&*self.file).map(Cow::Owned).map_err(Error::Zip),
        }
    }

    /// Bytes of the file; they are copied if the file is not in memory.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(&self, range: &Range<u64>) -> Result<Cow<'_, [u8]>, ReadError> {
        Ok(match self.file.in_memory() {
            Some(bytes) => Cow::Borrowed(byte_source::part(bytes, range).unwrap_or_default()),
            None => Cow::Owned(self.file.read_range(range.clone())?.into()),
        })
    }

    /// The pickle that holds the root object; empty if a header names the tensors.
    pub(crate) fn pickle(&self) -> &[u8] {
        match self.as_pickled().map(|pickled| &pickled.pickle) {
            None => &[],
            // The format that made the range proved that it is inside the file.
            Some(Bytes::Mapped(range)) => in_memory(&*self.file).get(range.clone()).unwrap_or_default(),
            Some(Bytes::Inflated(bytes)) => bytes,
        }
    }

    /// Reads the pickle into inert objects.
    ///
    /// # Errors
    /// When the pickle is damaged.
    pub(crate) fn load(&self) -> Result<Pickle<'_>> {
        let loaded = pickle_vm::load(self.pickle());
        self.release_pickle();
        loaded.map_err(|reason| {
            let record = self.as_pickled().map_or_else(String::new, |it| it.pickle_record.clone());
            Error::Pickle { record, reason }
        })
    }

    /// The storage over a range of the pickle, without a copy; `None` if the pickle is not mapped.
    pub(crate) fn pickle_storage(&self, range: &Range<usize>) -> Option<Storage> {
        let Bytes::Mapped(pickle) = &self.as_pickled()?.pickle else { return None };
        let at = |n: usize| pickle.start.checked_add(n).filter(|at| *at <= pickle.end);
        let range = at(range.start)?..at(range.end)?;
        Some(Storage::stored(Region::new(&self.file, wide(&range))?, None))
    }

    /// Gives the memory of the mapped pickle back to the system, which reads what is needed again.
    pub(crate) fn release_pickle(&self) {
        if let Some(Pickled { pickle: Bytes::Mapped(range), .. }) = self.as_pickled() {
            self.file.release(wide(range));
        }
    }
}

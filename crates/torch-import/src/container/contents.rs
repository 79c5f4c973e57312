//! `ContainerContents` of a container file, in a form common to all formats: the reader of each format builds a [`ContainerContents`], and
//! a [`Container`](super::Container) answers from it.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use byte_source::{Observer, Source};
use foldhash::{HashMap, HashMapExt};
use pickle_vm::{ErrorKind, Machine, Pickle, PickleLimits, Reader};
use safetensors_format::{EntryError, TensorLocation};
use tensor::{ByteOrder, Storage, StorageRecords, Tensors};
use zip_format::ZipIndex;

use super::formats::exported::signature::ExportedModel;
use super::inflate::RecordBytes;
use super::pickled_part::PickledPart;
use crate::omission::Omission;
use crate::persistent::PersistentTensor;
use crate::script_modules::ScriptModules;
use crate::{CheckpointNote, CheckpointValue, Error, Problem, Result};

/// What the reader of a [`ContainerFormat`](crate::ContainerFormat) found in a file.
#[derive(Debug)]
pub struct ContainerContents {
    pub(super) file: Arc<dyn Source>,
    /// Name of the format, which whoever calls its reader sets.
    pub(super) format: &'static str,
    /// Storages by key; empty if a header names the tensors.
    pub(super) storages: Arc<StorageRecords>,
    /// Records of the archive that are not read.
    pub(super) unread_records: Vec<Omission>,
    pub(super) notes: Vec<CheckpointNote>,
    pub(super) tensor_source: TensorSource,
}

/// The part of a file that names its tensors.
#[derive(Debug)]
pub(super) enum TensorSource {
    /// Pickle whose tensors are views of storages.
    PickleNames(Box<PickledTensors>),
    /// Header without a pickle, such as that of a safetensors file.
    HeaderNames(Box<HeaderTensors>),
}

/// A pickle, and the data needed to find the storages that it refers to.
#[derive(Debug)]
pub(super) struct PickledTensors {
    pub(super) pickle: RecordBytes,
    pub(super) pickle_record: String,
    /// True if the file has TorchScript code.
    pub(super) is_torchscript: bool,
    /// Bytes of the file that count as those of the pickle: its length, or less if it is compressed.
    pub(super) counted_len: u64,
    /// Central directory of a zip archive whose local headers are read with the records.
    pub(super) index: Option<ZipIndex>,
    /// Prefix of a storage's record name, before the key.
    pub(super) prefix: String,
    /// Temporary file with the inflated content of Deflate-compressed storages.
    pub(super) inflated: Option<Arc<dyn Source>>,
    pub(super) byte_order: ByteOrder,
    /// Tensors of a 0.1 checkpoint by persistent id.
    pub(super) persistent_tensors: HashMap<String, PersistentTensor>,
    /// Record and file range of each pickle other than the root object's.
    pub(super) more_pickles: Vec<RecordPickle>,
}

/// Record of a pickle, and its range in the file.
pub(super) type RecordPickle = (&'static str, Range<usize>);

impl PickledTensors {
    /// Returns true if the storages are records of a zip archive, whose names have a prefix.
    pub(super) fn is_zip(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// Starts from a pickle without storages; the reader of each format fills in the rest.
    pub(super) fn new(pickle: RecordBytes) -> Self {
        Self {
            counted_len: pickle.len() as u64,
            pickle,
            pickle_record: String::new(),
            is_torchscript: false,
            index: None,
            prefix: String::new(),
            inflated: None,
            byte_order: ByteOrder::Little,
            persistent_tensors: HashMap::new(),
            more_pickles: Vec::new(),
        }
    }
}

/// Tensors that a header names, and the header's metadata.
#[derive(Debug, Default)]
pub(crate) struct HeaderTensors {
    /// Tensors in the header's order, each a range of the file. They become tensors when the checkpoint is read: it
    /// is faster than to keep 100,000 tensors and copy them.
    pub(super) located: Vec<(String, TensorLocation)>,
    /// Further names of tied tensors, each with the index of its tensor in `located`.
    pub(super) ties: Vec<(String, usize)>,
    /// Tensors that follow those.
    pub(crate) tensors: Tensors,
    /// Metadata without the entries that became `ties`, in the header's order.
    pub(crate) metadata: Vec<(String, CheckpointValue)>,
    /// Tensors that cannot be read, and why.
    pub(crate) unread: Vec<(String, UnreadTensor)>,
    /// Archives in the file that hold further tensors.
    pub(crate) parts: Vec<PickledPart>,
    /// Models of an exported program.
    pub(super) models: Vec<ExportedModel>,
}

/// Reason for which a tensor that a document names cannot be read.
#[derive(Clone, Debug)]
pub(crate) enum UnreadTensor {
    /// Entry of the header of a safetensors file.
    Entry(EntryError),
    /// The file contradicts itself; with the reason, as the end of a sentence.
    Damaged(String),
    /// Tensor of a kind that is not read; with the reason, as the end of a sentence.
    Unsupported(String),
}

impl UnreadTensor {
    /// Creates the error for a tensor of this name.
    pub(crate) fn problem(&self, tensor: &str) -> Problem {
        let tensor = tensor.to_owned();
        match self.clone() {
            Self::Entry(reason) => {
                let reason = safetensors_format::Error::Entry { name: tensor.clone(), reason };
                Problem::OtherDtype { tensor, reason }
            }
            Self::Damaged(reason) => Problem::DamagedTensor { tensor, reason },
            Self::Unsupported(reason) => Problem::UnsupportedTensor { tensor, reason },
        }
    }
}

/// Converts texts with their keys to values.
pub(super) fn text_values(texts: Vec<(String, String)>) -> Vec<(String, CheckpointValue)> {
    texts.into_iter().map(|(key, text)| (key, CheckpointValue::Text(text.into()))).collect()
}

/// Converts an error of reading the directory.
pub(super) fn index_error(error: Error) -> Error {
    match error.downcast() {
        Ok(zip_format::Error::NoEnd { len }) => {
            let reason = format!("a zip archive of {len} bytes without the directory at its end");
            Problem::TruncatedFile { reason }.into()
        }
        Ok(error) => Problem::Zip(error).into(),
        Err(error) => error,
    }
}

/// Creates the error for a pickle of `len` bytes that counts as `counted` bytes of its file.
pub(super) fn pickle_error(record: String, reason: pickle_vm::Error, counted: u64, len: u64) -> Error {
    if counted < len && matches!(reason.kind, ErrorKind::LimitExceeded { .. }) {
        return Problem::CompressedPickle { record, reason, stored: counted, found: len }.into();
    }
    Problem::Pickle { record, reason }.into()
}

/// Converts a range in memory to a range of a source.
pub(crate) fn to_u64_range(range: &Range<usize>) -> Range<u64> {
    range.start as u64..range.end as u64
}

/// Bytes of a pickle between two looks at the observer.
const CHECKED_AT_ONCE: u64 = 1 << 20;
/// Number of records between two looks at the observer.
pub(super) const RECORDS_PER_CHECK: usize = 1 << 14;

/// Bytes of a mapped pickle that may stay in memory after the machine has read them.
const RELEASED_AT_ONCE: u64 = 8 << 20;

/// Reads a pickle. Returns it with the error of its frames, which matters if another pickle follows. `check` is called with the number of bytes read, about once for each [`CHECKED_AT_ONCE`] bytes, and can stop the
/// machine.
pub(super) fn load_checked<'p>(
    bytes: &'p [u8],
    limits: &PickleLimits,
    damaged: impl Fn(pickle_vm::Error) -> Error,
    mut check: impl FnMut(u64) -> Result<()>,
) -> Result<(Pickle<'p>, Option<pickle_vm::Error>)> {
    let mut reader = Reader::new(bytes);
    let mut machine = Machine::new(*limits);
    let mut next_check = CHECKED_AT_ONCE;
    while let Some(instruction) = reader.next() {
        // Combinators of `Result` would write each instruction to memory.
        let stepped = match instruction {
            Ok(instruction) => machine.step(instruction),
            Err(error) => return Err(damaged(error)),
        };
        match stepped {
            Ok(None) => {}
            Ok(Some(root)) => {
                return Ok((machine.finish(root, reader.offset()), reader.frame_error().cloned()));
            }
            Err(error) => return Err(damaged(error)),
        }
        if reader.offset() >= next_check {
            next_check = reader.offset().saturating_add(CHECKED_AT_ONCE);
            check(reader.offset())?;
        }
    }
    let offset = reader.offset();
    Err(damaged(pickle_vm::Error { kind: ErrorKind::NoStop, offset, opcode: None }))
}

impl ContainerContents {
    /// Creates the contents of a file whose header names its tensors.
    ///
    /// # Errors
    /// When two tensors have the same name.
    pub fn new(file: Arc<dyn Source>, tensors: Tensors) -> Result<Self> {
        if let Some(name) = tensors.duplicate_name() {
            let reason = format!("two tensors have the name `{}`", name.escape_debug());
            return Err(Problem::Layout { record: "the header".to_owned(), reason }.into());
        }
        Ok(Self::named(file, HeaderTensors { tensors, ..HeaderTensors::default() }))
    }

    /// Adds metadata: keys and texts, which are values of the checkpoint.
    #[must_use]
    pub fn with_metadata(self, metadata: Vec<(String, String)>) -> Self {
        self.with_values(text_values(metadata))
    }

    /// Adds values with their keys.
    pub(super) fn with_values(mut self, metadata: Vec<(String, CheckpointValue)>) -> Self {
        if let TensorSource::HeaderNames(named) = &mut self.tensor_source {
            named.metadata = metadata;
        }
        self
    }

    /// Adds a note: a sentence for people about the file, without a period.
    #[must_use]
    pub fn with_note(mut self, text: String) -> Self {
        self.notes.push(CheckpointNote::Format { text });
        self
    }

    /// Creates the contents like [`new`](Self::new), of tensors whose names are known to differ.
    pub(super) fn named(file: Arc<dyn Source>, named: HeaderTensors) -> Self {
        Self {
            file,
            format: "",
            storages: Arc::default(),
            unread_records: Vec::new(),
            notes: Vec::new(),
            tensor_source: TensorSource::HeaderNames(Box::new(named)),
        }
    }

    pub(super) fn pickled(
        file: Arc<dyn Source>,
        mut storages: StorageRecords,
        pickled: PickledTensors,
    ) -> Self {
        storages.set_sources(&file, pickled.inflated.as_ref());
        let tensor_source = TensorSource::PickleNames(Box::new(pickled));
        Self { storages: Arc::new(storages), tensor_source, ..Self::named(file, HeaderTensors::default()) }
    }

    pub(super) fn is_torchscript(&self) -> bool {
        self.as_pickled().is_some_and(|pickled| pickled.is_torchscript)
    }

    /// Returns the pickle that names the tensors; `None` if a header does.
    pub(super) fn as_pickled(&self) -> Option<&PickledTensors> {
        match &self.tensor_source {
            TensorSource::PickleNames(pickled) => Some(pickled),
            TensorSource::HeaderNames(_) => None,
        }
    }

    /// Returns the header that names the tensors; `None` if a pickle does.
    pub(crate) fn as_named(&self) -> Option<&HeaderTensors> {
        match &self.tensor_source {
            TensorSource::HeaderNames(named) => Some(named),
            TensorSource::PickleNames(_) => None,
        }
    }

    /// Returns the central directory of a zip archive. Unless local headers are read with the records, it is not kept but parsed
    /// again, because it may have a million entries.
    ///
    /// # Errors
    /// When the file is not a zip archive.
    pub(crate) fn index(&self) -> Result<Cow<'_, ZipIndex>> {
        match self.as_pickled().and_then(|pickled| pickled.index.as_ref()) {
            Some(index) => Ok(Cow::Borrowed(index)),
            None => ZipIndex::read(&*self.file).map(Cow::Owned).map_err(index_error),
        }
    }

    /// Returns the modules of the archive's TorchScript code.
    pub(crate) fn script_modules(&self) -> ScriptModules {
        if !self.is_torchscript() {
            return ScriptModules::default();
        }
        let names = |index: &ZipIndex| {
            ScriptModules::in_records(index.entries.iter().map(|entry| entry.name.as_str()))
        };
        self.index().map_or_else(|_| ScriptModules::default(), |index| names(&index))
    }

    /// Returns the pickle that holds the root object; empty if a header names the tensors.
    pub(crate) fn pickle(&self) -> &[u8] {
        self.as_pickled().map_or(&[], |pickled| &pickled.pickle)
    }

    /// Reads the pickle into inert objects.
    ///
    /// # Errors
    /// When the pickle is damaged, or `observer` stops the machine.
    pub(crate) fn load(&self, observer: &dyn Observer) -> Result<Pickle<'_>> {
        let loaded = self.run_pickle(observer);
        self.release_pickle();
        loaded
    }

    pub(crate) fn pickle_limits(&self) -> PickleLimits {
        PickleLimits::for_stored(self.counted_len())
    }

    /// Returns the bytes of the file that count as those of the pickle; 0 if there is none.
    pub(crate) fn counted_len(&self) -> u64 {
        self.as_pickled().map_or(0, |pickled| pickled.counted_len)
    }

    /// Runs the machine over the pickle, and releases the pages that it has read.
    fn run_pickle(&self, observer: &dyn Observer) -> Result<Pickle<'_>> {
        let damaged = |reason| {
            let record = self.as_pickled().map_or_else(String::new, |it| it.pickle_record.clone());
            pickle_error(record, reason, self.counted_len(), self.pickle().len() as u64)
        };
        let mut released = 0;
        load_checked(self.pickle(), &self.pickle_limits(), damaged, |checked| {
            observer.check()?;
            if checked.saturating_sub(released) >= RELEASED_AT_ONCE {
                self.release_in_pickle(released..checked);
                released = checked;
            }
            Ok(())
        })
        .map(|(pickle, _)| pickle)
    }

    fn release_in_pickle(&self, range: Range<u64>) {
        if let Some(pickled) = self.as_pickled() {
            pickled.pickle.release(range);
        }
    }

    /// Returns a storage over a range of the pickle without copying; `None` if the pickle was copied from the file.
    pub(crate) fn pickle_storage(&self, range: &Range<usize>) -> Option<Storage> {
        let pickle = self.as_pickled()?.pickle.region()?;
        let region =
            pickle.slice(to_u64_range(range)).filter(|region| Arc::ptr_eq(region.source(), &self.file));
        Some(Storage::stored(region?, None))
    }

    /// Releases the pages of the pickle, which the system loads again on access.
    pub(crate) fn release_pickle(&self) {
        self.release_in_pickle(0..self.pickle().len() as u64);
    }
}

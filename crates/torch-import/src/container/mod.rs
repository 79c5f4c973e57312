//! Finds the pickle and the storages in a file. Recognises a container by its content, not by its name.

mod contents;
mod cursor;
mod format;
pub(crate) mod formats;
pub(crate) mod inflate;
mod joined;
pub(crate) mod line_ends;
pub(crate) mod pickled_part;
pub(crate) mod sniff;
pub(crate) mod tar_members;
mod tar_paths;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use byte_source::{Checks, MappedFile, Observer, Region, Source};
use bytes::Bytes;
use pickle_vm::{Heap, ObjectId, PickleLimits};
use tensor::{ByteOrder, Checksum, Dtype, Storage, StorageRecords, Tensor};
use zip_format::{CompressionMethod, Entry};

pub use contents::ContainerContents;
use contents::PickledTensors;
pub(crate) use contents::{HeaderTensors, UnreadTensor, to_u64_range};
pub use format::ContainerFormat;
pub use formats::exported::signature::{ExportedModel, GraphArgument, GraphSignature};
use formats::safetensors;
pub(crate) use pickled_part::{PartContent, PickledPart};

use crate::omission::Omission;
use crate::persistent::{PersistentTensor, StorageRef, key_text};
use crate::{CheckpointNote, Problem, Result};

/// Largest record of code, in bytes, that is decompressed.
const CODE_MAX: u64 = 16 << 20;

/// A checkpoint file: one pickle, and storages by key. Clones share the source.
#[derive(Clone, Debug)]
pub struct Container(Arc<ContainerContents>);

impl Container {
    /// Opens the checkpoint at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, is of another format, or its container is damaged.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_source(Arc::new(MappedFile::open(path)?))
    }

    /// Reads a checkpoint from a source: a whole file, a range of a file (such as the model in a carton), or a buffer.
    /// What describes the tensors is read now, in a few ranges, and the elements on demand. A bare pickle that is not in memory is
    /// copied into an unlinked temporary file. If each read is a request, the local headers of an archive are read with the records.
    ///
    /// # Errors
    /// When the source cannot be read, is of another format, or its container is damaged.
    pub fn from_source(source: Arc<dyn Source>) -> Result<Self> {
        Self::from_source_with_observer(source, &())
    }

    /// Reads a checkpoint like [`from_source`](Self::from_source), with an observer that can stop the reading.
    ///
    /// # Errors
    /// Those of [`from_source`](Self::from_source), and [`Cancelled`](byte_source::Cancelled).
    pub fn from_source_with_observer(source: Arc<dyn Source>, observer: &dyn Observer) -> Result<Self> {
        let checks = Checks::for_source(&*source);
        Self::with_checks(source, checks, observer)
    }

    /// Reads a checkpoint like [`from_source_with_observer`](Self::from_source_with_observer), but of any zip archive,
    /// the local header of a storage is read and compared when its bytes are needed. A caller that lists tensors is faster,
    /// and one that reads all is slower.
    ///
    /// # Errors
    /// Those of [`from_source_with_observer`](Self::from_source_with_observer), except for local headers.
    pub fn from_source_lazily(source: Arc<dyn Source>, observer: &dyn Observer) -> Result<Self> {
        Self::with_checks(source, Checks::WhenRead, observer)
    }

    fn with_checks(source: Arc<dyn Source>, checks: Checks, observer: &dyn Observer) -> Result<Self> {
        let kept = Arc::clone(&source);
        let contents = sniff::open(source, checks, observer);
        let contents = contents.map_err(|error| line_ends::explain(error, &*kept))?;
        Ok(Self(Arc::new(contents)))
    }

    /// Reads a checkpoint whose archive was unpacked into the folder `path`, from the files in it, each with its name relative to the
    /// folder: `data.pkl`, which comes first, those in `data/`, and `byteorder` if there is one.
    ///
    /// # Errors
    /// When a file cannot be read, or `byteorder` is wrong.
    pub fn from_unpacked(path: &Path, files: Vec<(String, Arc<dyn Source>)>) -> Result<Self> {
        Ok(Self(Arc::new(formats::unpacked::open(path, files)?)))
    }

    /// Opens an archive in the file of an exported program.
    ///
    /// # Errors
    /// When it is no archive that `torch.save` wrote, or is damaged.
    pub(crate) fn from_part(part: &PickledPart, observer: &dyn Observer) -> Result<Self> {
        let checks = Checks::for_source(&*part.file);
        Ok(Self(Arc::new(formats::zip::open_saved(Arc::clone(&part.file), checks, observer)?)))
    }

    /// Returns the models of an exported program; empty for other formats.
    pub fn exported_models(&self) -> &[ExportedModel] {
        self.0.as_named().map_or(&[], |named| &named.models)
    }

    /// Opens a file of parts of tensors, which another file names, such as `__0_0.distcp`. As a checkpoint, it has no
    /// tensors.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open_parts(path: &Path) -> Result<Self> {
        Ok(Self::parts_from_source(Arc::new(MappedFile::open(path)?)))
    }

    /// Reads a file of parts of tensors from a source; see [`open_parts`](Self::open_parts).
    pub fn parts_from_source(source: Arc<dyn Source>) -> Self {
        let contents = ContainerContents::named(source, HeaderTensors::default());
        Self(Arc::new(ContainerContents { format: "distcp", ..contents }))
    }

    /// Returns true if the ranges of the storages are those in the file: what precedes their bytes in it was read.
    pub(crate) fn has_file_offsets(&self) -> bool {
        self.0.as_pickled().is_none_or(|pickled| pickled.index.is_none())
    }

    /// Returns the bytes of the file.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.0.file
    }

    /// Returns the contents, for values that outlive this container.
    pub(crate) fn contents(&self) -> &Arc<ContainerContents> {
        &self.0
    }

    /// Returns true if loading the archive runs TorchScript code, a `__setstate__` method that may change the pickle's
    /// objects; `None` if the code cannot be read.
    pub fn runs_code_when_loaded(&self) -> Option<bool> {
        const METHOD: &[u8] = b"__setstate__";
        if !self.is_torchscript() {
            return Some(false);
        }
        let index = self.0.index().ok()?;
        let code = || index.entries.iter().filter(|entry| crate::script_modules::is_code(&entry.name));
        inflate::check_texts(self.len(), code()).ok()?;
        let mut runs = false;
        for entry in code() {
            if entry.len > CODE_MAX
                && (entry.method != CompressionMethod::Stored || !self.0.file.is_mappable())
            {
                return None;
            }
            let stored = self.0.file.share(entry.data.clone()).ok()?;
            let has_method = |text: &[u8]| text.windows(METHOD.len()).any(|found| found == METHOD);
            runs |= match entry.method {
                CompressionMethod::Stored => has_method(&stored),
                _ => has_method(&inflate::inflate_to_memory(&stored, entry).ok()?),
            };
        }
        Some(runs)
    }

    /// Returns the records of a zip archive other than its storages: the name relative to the root folder, and the
    /// bytes. The bytes are `None` for a compressed record, and for a record of more than 16 MiB in a file that is not
    /// in memory. Empty for other formats.
    pub fn records_besides_storages(&self) -> Vec<(String, Option<Bytes>)> {
        let (file, pickled) = (&self.0.file, self.0.as_pickled());
        let Some(PickledTensors { pickle_record, prefix, .. }) = pickled.filter(|it| it.is_zip()) else {
            return Vec::new();
        };
        let Ok(index) = self.0.index() else { return Vec::new() };
        let root = pickle_record.rsplit_once('/').map_or("", |(root, _)| root);
        let others = index.entries.iter().filter(|entry| !entry.name.starts_with(prefix.as_str()));
        let named = others.map(|entry| {
            let inner = entry.name.strip_prefix(root).and_then(|name| name.strip_prefix('/'));
            let is_read =
                entry.method == CompressionMethod::Stored && (entry.len <= CODE_MAX || file.is_mappable());
            let stored = is_read.then(|| file.share(entry.data.clone()).ok()).flatten();
            (inner.unwrap_or(&entry.name).to_owned(), stored)
        });
        named.collect()
    }

    /// Returns all records of a TorchScript archive, by their names relative to the root folder, with compressed ones
    /// decompressed.
    ///
    /// # Errors
    /// When a record cannot be decompressed or is outside the root folder, or the file has another format.
    pub fn script_records(&self) -> Result<Vec<(String, Storage)>> {
        let (file, index) = (&self.0.file, self.0.index()?);
        let storages = &self.0.storages;
        let Some(PickledTensors { pickle_record, prefix, .. }) = self.0.as_pickled() else {
            return Ok(Vec::new());
        };
        let checksums = index.entries.iter().any(|entry| entry.crc != 0);
        let root = pickle_record.rsplit_once('/').map_or_else(String::new, |(root, _)| format!("{root}/"));
        let is_text = |entry: &&Entry| !entry.name.starts_with(prefix.as_str());
        inflate::check_texts(self.len(), index.entries.iter().filter(is_text))?;
        let mut records = Vec::with_capacity(index.entries.len());
        for entry in &index.entries {
            let Some(inner) = entry.name.strip_prefix(&root).filter(|inner| !inner.ends_with('/')) else {
                continue;
            };
            let key = entry.name.strip_prefix(prefix.as_str());
            let storage = match key.and_then(|key| Storage::record(storages, storages.find(key)?)) {
                Some(storage) => Some(storage),
                None if entry.method == CompressionMethod::Stored => {
                    let record = Arc::from(entry.name.as_str());
                    let checksum = checksums.then_some(Checksum { crc: entry.crc, record });
                    Region::new(file, entry.data.clone()).map(|region| Storage::stored(region, checksum))
                }
                None => Some(inflate::inflate_record(&**file, entry, checksums)?.into()),
            };
            records.extend(storage.map(|storage| (inner.to_owned(), storage)));
        }
        Ok(records)
    }

    /// Returns the whole file as a storage.
    pub fn file_storage(&self) -> Storage {
        Storage::stored(Region::whole(&self.0.file), None)
    }

    /// Returns the name of the container format: that of a [`ContainerFormat`], `torchscript` for a zip archive with TorchScript code, or
    /// `distcp` for a [file of parts](Self::open_parts).
    pub fn format(&self) -> &'static str {
        if self.is_torchscript() { "torchscript" } else { self.0.format }
    }

    /// Returns true for a zip archive with TorchScript code, which `torch.jit.save` writes.
    pub fn is_torchscript(&self) -> bool {
        self.0.is_torchscript()
    }

    /// Returns harmless irregularities of the file.
    pub fn notes(&self) -> &[CheckpointNote] {
        &self.0.notes
    }

    /// Returns the path that was opened.
    pub fn path(&self) -> &Path {
        self.0.file.path()
    }

    /// Returns the length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.0.file.len()
    }

    /// Returns true if the file is empty.
    pub fn is_empty(&self) -> bool {
        self.0.file.is_empty()
    }

    /// Checks that the file still has the length and the modification time that it had when it was opened.
    ///
    /// # Errors
    /// When either changed, or the system does not report the file's metadata.
    pub fn check_unchanged(&self) -> Result<(), byte_source::Error> {
        self.0.file.check_unchanged()
    }

    /// Releases the resident pages of the file and of its inflated storages. The system loads them again on access.
    pub fn release(&self) {
        let inflated = self.0.as_pickled().and_then(|pickled| pickled.inflated.as_ref());
        for file in std::iter::once(&self.0.file).chain(inflated) {
            file.release(0..file.len());
        }
    }

    /// Returns the pickle that holds the root object; empty for a file that has none, such as a safetensors file.
    pub fn pickle(&self) -> &[u8] {
        self.0.pickle()
    }

    /// Returns the pickles inside the members `storages` and `tensors` of a 0.1 checkpoint: the member's name and the
    /// file range of each pickle.
    pub(crate) fn more_pickles(&self) -> &[(&'static str, Range<usize>)] {
        self.0.as_pickled().map_or(&[], |pickled| &pickled.more_pickles)
    }

    /// Returns the tensors that the header of a safetensors file locates, in its order, followed by the further names of tied tensors;
    /// empty for other formats.
    ///
    /// # Errors
    /// None in practice: [`open`](Self::open) has checked every tensor.
    pub(crate) fn located_tensors(&self) -> Result<Vec<(String, Tensor)>> {
        let Some(HeaderTensors { located, ties, .. }) = self.0.as_named() else { return Ok(Vec::new()) };
        let mut tensors = Vec::with_capacity(located.len().saturating_add(ties.len()));
        for (name, location) in located {
            tensors.push((name.clone(), safetensors::tensor(&self.0.file, location)?));
        }
        for (name, kept) in ties {
            let tensor = tensors.get(*kept).map(|(_, tensor)| tensor.clone());
            tensors.extend(tensor.map(|tensor| (name.clone(), tensor)));
        }
        Ok(tensors)
    }

    /// Returns the names that the metadata of a safetensors file gives to tensors that have another name in the header, each
    /// with that other name; empty for other formats.
    pub fn tied_names(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = self.0.as_named();
        let name_at = move |at: usize| Some(named?.located.get(at)?.0.as_str());
        let ties = named.map_or(&[] as &[_], |named| named.ties.as_slice());
        ties.iter().filter_map(move |(name, kept)| Some((name.as_str(), name_at(*kept)?)))
    }

    /// Returns the tensor that a persistent object of a 0.1 checkpoint represents.
    pub(crate) fn persistent_tensor(&self, heap: &Heap<'_>, id: ObjectId) -> Option<&PersistentTensor> {
        self.0.as_pickled()?.persistent_tensors.get(key_text(heap, heap.persistent(id)?)?.as_ref())
    }

    /// Returns the pickle's name in the file, such as `consolidated/data.pkl`.
    pub fn pickle_record(&self) -> &str {
        self.0.as_pickled().map_or("", |pickled| &pickled.pickle_record)
    }

    /// Returns the bytes of the file that count as those of the pickle, which limit its objects: its length, or less if
    /// it is compressed.
    pub(crate) fn counted_pickle_len(&self) -> usize {
        usize::try_from(self.0.counted_len()).unwrap_or(usize::MAX)
    }

    /// Returns the limits for reading the pickle.
    pub fn pickle_limits(&self) -> PickleLimits {
        self.0.pickle_limits()
    }

    /// Returns the byte order of the elements in the storages.
    pub(crate) fn byte_order(&self) -> ByteOrder {
        self.0.as_pickled().map_or(ByteOrder::Little, |pickled| pickled.byte_order)
    }

    pub(crate) fn storages_len(&self) -> usize {
        self.0.storages.len()
    }

    pub(crate) fn records(&self) -> &StorageRecords {
        &self.0.storages
    }

    /// Returns the records of the archive that are not read.
    pub(crate) fn unread_omissions(&self) -> &[Omission] {
        &self.0.unread_records
    }

    /// Returns the index of the record that holds the storage `key`.
    pub(crate) fn record_number(&self, key: &str) -> Option<u32> {
        self.0.storages.find(key)
    }

    /// Returns the path in the archive of the storage `key`.
    pub(crate) fn storage_record(&self, key: &str) -> Option<String> {
        self.0.storages.find(key).map(|number| self.0.storages.full_name(number))
    }

    /// Returns the storage, or the range of it, that `reference` names, in the byte order for elements of `dtype`.
    pub(crate) fn storage(&self, reference: &StorageRef<'_>, dtype: Dtype) -> Result<Storage> {
        self.storage_in_record(self.record_number(&reference.key), reference, dtype)
    }

    /// Returns the storage, or the range of it, like [`storage`](Self::storage); `number` is what
    /// [`record_number`](Self::record_number) returns for the key.
    pub(crate) fn storage_in_record(
        &self,
        number: Option<u32>,
        reference: &StorageRef<'_>,
        dtype: Dtype,
    ) -> Result<Storage> {
        let (key, storages) = (reference.key.as_ref(), &self.0.storages);
        let Some((number, record)) = number.and_then(|number| Some((number, storages.get(number)?))) else {
            return Err(match self.0.as_pickled().filter(|it| it.is_zip()) {
                Some(PickledTensors { prefix, .. }) => {
                    Problem::MissingRecord { record: [prefix, key].concat() }.into()
                }
                None => Problem::MissingStorage { key: key.to_owned() }.into(),
            });
        };
        let available = record.nbytes();
        let needed = reference.nbytes().unwrap_or(u64::MAX);
        let too_short = || Problem::ShortRecord { key: key.to_owned(), needed, available };
        let within = reference.byte_range().filter(|range| needed <= available && range.end <= needed);
        let Some(within) = within else { return Err(too_short().into()) };
        let storage = if within == (0..available) {
            Storage::record(storages, number)
        } else {
            let at = |n: u64| record.range.start.saturating_add(n);
            let region = storages.source_of(record);
            let region = region.and_then(|source| Region::new(source, at(within.start)..at(within.end)));
            region.map(|region| Storage::stored(region, None))
        };
        Ok(storage.ok_or_else(too_short)?.with_byte_order(self.byte_order(), dtype.component_size()))
    }
}

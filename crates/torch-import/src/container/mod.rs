//! Finds the pickle and the storages in a file. A container is recognised by its content, never by its
//! name.

mod inflate;
pub(crate) mod sniff;
mod zip;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use mapped::MappedFile;
use pickle_vm::Pickle;
use tensor::{ByteOrder, Checksum, Dtype, Storage};

use crate::persistent::StorageRef;
use crate::{Error, Result};

/// The container formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// A zip archive with `data.pkl` and one record a storage: `torch.save` since PyTorch 1.6.
    Zip,
    /// The same with code beside it: `torch.jit.save`.
    TorchScript,
}

impl Format {
    /// The name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zip => "zip",
            Self::TorchScript => "torchscript",
        }
    }
}

/// A checkpoint file, mapped: one pickle, and storages by key.
#[derive(Debug)]
pub struct Container {
    file: MappedFile,
    /// Deflated storages, inflated once.
    inflated: Option<MappedFile>,
    format: Format,
    pickle: Bytes,
    pickle_record: String,
    /// What stands before a storage's key in the name of its record.
    prefix: String,
    /// By the records' names.
    storages: HashMap<String, Record>,
    byte_order: ByteOrder,
    notes: Vec<String>,
}

/// Bytes of the file, or bytes that were made from it.
#[derive(Debug)]
enum Bytes {
    Mapped(Range<usize>),
    Owned(Vec<u8>),
}

/// Where a storage's bytes are.
#[derive(Debug)]
struct Record {
    /// Whether `range` counts in the inflated file.
    inflated: bool,
    range: Range<usize>,
    /// The CRC-32 of the bytes; `None` where the archive carries none, or it was checked already.
    crc: Option<u32>,
}

impl Container {
    /// Opens the checkpoint at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, is of another format, or its container is damaged.
    pub fn open(path: &Path) -> Result<Self> {
        let file = MappedFile::open(path)?;
        sniff::sniff(file.bytes())?;
        zip::open(file)
    }

    /// What kind of container it is.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Oddities that are harmless, as sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.file.is_empty()
    }

    /// The pickle that holds the root object.
    pub fn pickle(&self) -> &[u8] {
        match &self.pickle {
            // The index proved that the range lies inside the file.
            Bytes::Mapped(range) => self.file.bytes().get(range.clone()).unwrap_or_default(),
            Bytes::Owned(bytes) => bytes,
        }
    }

    /// What the file calls its pickle, such as `consolidated/data.pkl`.
    pub fn pickle_record(&self) -> &str {
        &self.pickle_record
    }

    /// Reads the pickle into inert objects.
    ///
    /// # Errors
    /// When the pickle is damaged.
    pub(crate) fn load(&self) -> Result<Pickle<'_>> {
        pickle_vm::load(self.pickle())
            .map_err(|reason| Error::Pickle { record: self.pickle_record.clone(), reason })
    }

    /// The order of the bytes in the storages' numbers.
    pub(crate) fn byte_order(&self) -> ByteOrder {
        self.byte_order
    }

    /// Bytes of the pickle as a storage where they lie; `None` when the pickle was inflated.
    pub(crate) fn storage_of(&self, bytes: &[u8]) -> Option<Storage<'_>> {
        let start = bytes.as_ptr().addr().checked_sub(self.file.bytes().as_ptr().addr())?;
        let range = start..start.checked_add(bytes.len())?;
        Storage::mapped(&self.file, range, None)
    }

    /// The path in the archive of the storage called `key`.
    pub(crate) fn storage_record(&self, key: &str) -> Option<&str> {
        self.record(key).map(|(name, _)| name)
    }

    fn record(&self, key: &str) -> Option<(&str, &Record)> {
        let (name, record) = self.storages.get_key_value(&[&self.prefix, key].concat())?;
        Some((name, record))
    }

    /// The storage that `reference` names, as a tensor of `dtype` sees it.
    pub(crate) fn storage(&self, reference: &StorageRef<'_>, dtype: Dtype) -> Result<Storage<'_>> {
        let key = reference.key.as_ref();
        let Some((name, record)) = self.record(key) else {
            return Err(Error::MissingRecord { record: [&self.prefix, key].concat() });
        };
        let available = record.range.len() as u64;
        let needed = reference.nbytes().unwrap_or(u64::MAX);
        let too_short = || Error::ShortRecord { key: key.to_owned(), needed, available };
        if needed > available {
            return Err(too_short());
        }
        let file = if record.inflated { self.inflated.as_ref() } else { Some(&self.file) };
        // Not more than `available`, which is a `usize`.
        let end = record.range.start.saturating_add(usize::try_from(needed).unwrap_or(usize::MAX));
        let checksum = record.crc.map(|crc| Checksum { crc, record: name });
        let storage = file
            .and_then(|file| {
                Storage::mapped(file, record.range.start..end, checksum.filter(|_| needed == available))
            })
            .ok_or_else(too_short)?;
        Ok(storage.with_byte_order(self.byte_order, dtype.component_size()))
    }
}

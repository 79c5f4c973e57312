//! The records of a zip archive that a program of PyTorch wrote: storages, pickles, and archives in it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use byte_source::{Observer, Region, Source};
use tensor::{StorageRecord, StorageRecords};
use zip_format::{CompressionMethod, Entry, ZipIndex};

use crate::container::contents::RECORDS_PER_CHECK;
use crate::container::inflate::{self, RecordBytes};
use crate::{CheckpointNote, Problem, Result};

/// A zip archive whose records are those of a program of PyTorch: none is a link or has the name of another one in capitals.
pub(super) struct ZipArchive {
    pub(super) index: ZipIndex,
    pub(super) file: Arc<dyn Source>,
    /// True if the directory has checksums: an archive saved without them has CRC-32 0 everywhere, and a single 0 is a checksum.
    pub(super) checksums: bool,
}

impl ZipArchive {
    /// Checks the records of an archive whose root folder is `root`.
    pub(super) fn new(index: ZipIndex, file: Arc<dyn Source>, root: &str) -> Result<Self> {
        if let Some((first, second)) = find_case_duplicate(&index.entries, root) {
            return Err(Problem::CaseInsensitiveDuplicate {
                first: first.to_owned(),
                second: second.to_owned(),
            }
            .into());
        }
        if let Some(link) = index.entries.iter().find(|entry| entry.is_link) {
            return Err(Problem::Link { record: link.name.clone() }.into());
        }
        let checksums = index.entries.iter().any(|entry| entry.crc != 0);
        Ok(Self { index, file, checksums })
    }

    pub(super) fn notes(&self) -> Vec<CheckpointNote> {
        if self.checksums { Vec::new() } else { vec![CheckpointNote::NoChecksums] }
    }

    /// Returns the records below `prefix` that `is_storage` accepts, by their names without it, and the temporary file with those
    /// that were compressed.
    ///
    /// # Errors
    /// When a compressed record cannot be inflated, or they inflate to many times their file.
    pub(super) fn storages(
        &self,
        prefix: &str,
        is_storage: impl Fn(&str) -> bool,
        observer: &dyn Observer,
    ) -> Result<(StorageRecords, Option<Arc<dyn Source>>)> {
        let Self { index, file, checksums } = self;
        let named = |entry: &&Entry| entry.name.strip_prefix(prefix).is_some_and(&is_storage);
        let entries = || index.entries.iter().filter(named);
        inflate::check_storages(file.len(), entries())?;
        let inflated = inflate::inflate_to_file(&**file, entries(), *checksums)?;
        let mut storages = StorageRecords::with_capacity(prefix, index.entries.len());
        let mut next = 0_u64;
        for (number, entry) in entries().enumerate() {
            if number.is_multiple_of(RECORDS_PER_CHECK) {
                observer.check()?;
            }
            let record = if entry.method == CompressionMethod::Stored {
                StorageRecord::new(entry.data.clone(), checksums.then_some(entry.crc))
            } else {
                // The inflated records follow one another in this order.
                let start = next;
                next = next.saturating_add(entry.len);
                StorageRecord::inflated(start..next)
            };
            // The index has each name once.
            storages.insert(entry.name.strip_prefix(prefix).unwrap_or_default(), record);
        }
        Ok((storages, inflated.map(|file| Arc::new(file) as Arc<dyn Source>)))
    }

    /// Returns the bytes of a record; `None` if there is no such record.
    ///
    /// # Errors
    /// When the record cannot be read or inflated, or has another checksum.
    pub(super) fn read(&self, name: &str) -> Result<Option<RecordBytes>> {
        self.index.find(name).map(|entry| read_whole(&self.file, entry, self.checksums)).transpose()
    }

    /// Returns a record as a file with the name `ARCHIVE::NAME`.
    ///
    /// # Errors
    /// When the record cannot be inflated.
    pub(super) fn member(&self, entry: &Entry) -> Result<Arc<dyn Source>> {
        member(&self.file, entry)
    }
}

/// Returns a record as a source with the name `ARCHIVE::NAME`.
pub(super) fn member(file: &Arc<dyn Source>, entry: &Entry) -> Result<Arc<dyn Source>> {
    let path = PathBuf::from(format!("{}::{}", file.path().display(), entry.name));
    // The data of an entry are in its file.
    match Region::new(file, entry.data.clone()).filter(|_| entry.method == CompressionMethod::Stored) {
        Some(region) => Ok(Arc::new(region.named(&path))),
        None => Ok(read_whole(file, entry, true)?.into_source(path)),
    }
}

/// Reads a whole record and compares its checksum.
pub(super) fn read_whole(file: &Arc<dyn Source>, entry: &Entry, checksums: bool) -> Result<RecordBytes> {
    if entry.method != CompressionMethod::Stored {
        inflate::check_pickle(file.len(), entry)?;
        return inflate::inflate_record(&**file, entry, checksums);
    }
    let bytes = RecordBytes::read(file, entry.data.clone())?;
    if checksums {
        inflate::check_crc(entry, crc32fast::hash(&bytes))?;
    }
    Ok(bytes)
}

/// Finds two records that PyTorch reads and whose names differ only in case. miniz ignores case: PyTorch 2.0.1 reads
/// one of the two records and 2.15 the other.
pub(crate) fn find_case_duplicate<'e>(entries: &'e [Entry], root: &str) -> Option<(&'e str, &'e str)> {
    const READ: &[&str] = &["data.pkl", "constants.pkl", "byteorder", "version", ".data/version"];
    let inner = |name: &str| {
        name.get(root.len()..).filter(|_| starts_with_ignoring_case(name, root)).map(str::to_ascii_lowercase)
    };
    let is_read = |name: &str| {
        inner(name).is_some_and(|name| name.starts_with("data/") || READ.contains(&name.as_str()))
    };
    // Nearly all names have no capital letter after the root folder, and there may be a million.
    let is_usual = |name: &str| {
        let inner = name.strip_prefix(root);
        inner.is_some_and(|inner| !inner.bytes().any(|byte| byte.is_ascii_uppercase()))
    };
    if !entries.iter().any(|entry| !is_usual(&entry.name) && is_read(&entry.name)) {
        return None;
    }
    let mut names = HashMap::new();
    entries.iter().filter(|entry| is_read(&entry.name)).find_map(|entry| {
        let name = entry.name.as_str();
        let first = *names.entry(name.to_ascii_lowercase()).or_insert(name);
        (first != name).then_some((first, name))
    })
}

pub(crate) fn starts_with_ignoring_case(name: &str, start: &str) -> bool {
    name.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
}

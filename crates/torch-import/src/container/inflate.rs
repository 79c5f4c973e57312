//! Inflates Deflate-compressed records. Storages are inflated once, into an unlinked temporary file that is mapped, so
//! that every storage has an address and memory stays small.

use std::io::{self, Read, Write};
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

use byte_source::{
    BufferSource, MappedFile, RecordDamaged, Region, Source, SourceReader, WINDOW, Window, window_ranges,
};
use bytes::Bytes;
use flate2::read::DeflateDecoder;
use tensor::Storage;
use zip_format::{CompressionMethod, Entry};

use crate::{Problem, Result};

/// Highest compression ratio of Deflate: 258 bytes from two bits, plus a header. A directory that records a higher
/// ratio is wrong.
const DEFLATE_RATIO_MAX: u64 = 1032;

/// Largest record, in bytes, that is inflated or read into memory; longer ones go to a temporary file.
pub(super) const IN_MEMORY_MAX: u64 = 16 << 20;

/// Bytes to which a pickle may inflate, and bytes more for each byte that stores it. The pickles of real checkpoints
/// compress by less than 5 (216 pickles of two corpora, with zlib's best compression), and by 16 if they hold a million
/// tensors.
const PICKLE_BASE: u64 = 16 << 20;
const PICKLE_PER_STORED_BYTE: u64 = 100;

/// Bytes to which the other records of an archive may inflate together, and bytes more for each byte of the file: first
/// its storages, which go to a temporary file, then the others, which are text.
const STORAGES: ExpansionLimit = ExpansionLimit { base: 256 << 20, per_byte: 128 };
const TEXTS: ExpansionLimit = ExpansionLimit { base: 32 << 20, per_byte: 16 };

/// Bytes to which records may inflate.
struct ExpansionLimit {
    base: u64,
    per_byte: u64,
}

impl ExpansionLimit {
    fn check<'e>(&self, what: &str, file: u64, entries: impl Iterator<Item = &'e Entry>) -> Result<()> {
        let sizes = entries.filter(|entry| entry.method != CompressionMethod::Stored);
        let (stored, found) = sizes.fold((0_u64, 0_u64), |(stored, found), entry| {
            (stored.saturating_add(entry.stored_len()), found.saturating_add(entry.len))
        });
        let limit = file.saturating_mul(self.per_byte).saturating_add(self.base);
        if found > limit {
            return Err(
                Problem::Expansion { what: what.to_owned(), is_one: false, stored, found, limit }.into()
            );
        }
        Ok(())
    }
}

/// Returns the bytes of a file of `file` bytes that count as those of a pickle, which limit its objects: its length, or
/// less if it is compressed. Then each of its tensors also has a storage, an entry of the directory and padding elsewhere
/// in the file, so a part of the file counts.
pub(super) fn counted_len(file: u64, entry: &Entry) -> u64 {
    entry.len.min(entry.stored_len().saturating_add(file / 8))
}

/// Refuses a compressed pickle that inflates to more than honest ones do.
///
/// # Errors
/// When it is longer than its limit.
pub(super) fn check_pickle(file: u64, entry: &Entry) -> Result<()> {
    let counted = counted_len(file, entry);
    let limit = counted.saturating_mul(PICKLE_PER_STORED_BYTE).saturating_add(PICKLE_BASE);
    if entry.method == CompressionMethod::Stored || entry.len <= limit {
        return Ok(());
    }
    let what = format!("record `{}`", entry.name.escape_debug());
    Err(Problem::Expansion { what, is_one: true, stored: entry.stored_len(), found: entry.len, limit }.into())
}

/// Refuses storages that inflate to many times a file of `file` bytes.
///
/// # Errors
/// When they are longer than their limit.
pub(super) fn check_storages<'e>(file: u64, entries: impl Iterator<Item = &'e Entry>) -> Result<()> {
    STORAGES.check("the storages", file, entries)
}

/// Refuses records of text, such as code, that inflate to many times a file of `file` bytes.
///
/// # Errors
/// When they are longer than their limit.
pub(super) fn check_texts<'e>(file: u64, entries: impl Iterator<Item = &'e Entry>) -> Result<()> {
    TEXTS.check("the records of code", file, entries)
}

/// Bytes of a record or a file as one slice: those of the file itself, or a copy in memory or in an unlinked temporary file.
#[derive(Debug)]
pub(crate) struct RecordBytes {
    bytes: Bytes,
    /// Part of a mapped file that has the bytes.
    region: Option<Region>,
}

impl RecordBytes {
    /// Reads the bytes of a range. A copy of more than 16 MiB is in a temporary file.
    pub(super) fn read(file: &Arc<dyn Source>, range: Range<u64>) -> Result<Self> {
        let is_shared = file.is_mappable();
        if !is_shared && range.end.saturating_sub(range.start) > IN_MEMORY_MAX {
            return Self::mapped(local_copy_of(&**file, range)?);
        }
        let bytes = file.share(range.clone())?;
        Ok(Self { bytes, region: Region::new(file, range).filter(|_| is_shared) })
    }

    /// Returns the bytes of a mapped file.
    pub(crate) fn mapped(file: MappedFile) -> Result<Self, byte_source::Error> {
        let file: Arc<dyn Source> = Arc::new(file);
        Ok(Self { bytes: file.share(0..file.len())?, region: Some(Region::whole(&file)) })
    }

    /// Returns the part of a mapped file that has the bytes.
    pub(super) fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// Returns the bytes as a source of this name.
    pub(super) fn into_source(self, path: PathBuf) -> Arc<dyn Source> {
        match self.region {
            Some(region) => Arc::new(region.named(&path)),
            None => Arc::new(BufferSource::new(path, self.bytes)),
        }
    }

    /// Releases the pages of a range of the bytes, which the system loads again on access.
    pub(super) fn release(&self, range: Range<u64>) {
        if let Some(region) = &self.region {
            region.release(range);
        }
    }
}

impl Deref for RecordBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<B: Into<Bytes>> From<B> for RecordBytes {
    fn from(bytes: B) -> Self {
        Self { bytes: bytes.into(), region: None }
    }
}

impl From<RecordBytes> for Storage {
    fn from(RecordBytes { bytes, region }: RecordBytes) -> Self {
        region.map_or_else(|| Self::owned(bytes.into()), |region| Self::stored(region, None))
    }
}

pub(super) fn inflate_record(file: &dyn Source, entry: &Entry, checksums: bool) -> Result<RecordBytes> {
    if entry.len > IN_MEMORY_MAX
        && let Some(inflated) = inflate_to_file(file, std::iter::once(entry), checksums)?
    {
        return RecordBytes::mapped(inflated);
    }
    let mut bytes = Vec::new();
    inflate_into(SourceReader::new(file, entry.data.clone()), entry, &mut bytes)?;
    if checksums {
        check_crc(entry, crc32fast::hash(&bytes))?;
    }
    Ok(bytes.into())
}

/// Compares the CRC-32 of a record's content with the directory's.
pub(super) fn check_crc(entry: &Entry, found: u32) -> Result<()> {
    if found == entry.crc {
        return Ok(());
    }
    Err(RecordDamaged { record: entry.name.clone(), expected: entry.crc, found }.into())
}

/// Inflates a small record into memory. The allocation grows with the decoded bytes.
pub(crate) fn inflate_to_memory(stored: &[u8], entry: &Entry) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    inflate_into(stored, entry, &mut bytes)?;
    Ok(bytes)
}

/// Inflates all compressed `entries`, one after the other, into a temporary file; returns `None` if all entries are
/// stored.
pub(super) fn inflate_to_file<'e>(
    file: &dyn Source,
    entries: impl Iterator<Item = &'e Entry>,
    checksums: bool,
) -> Result<Option<MappedFile>> {
    let mut deflated = entries.filter(|entry| entry.method != CompressionMethod::Stored).peekable();
    if deflated.peek().is_none() {
        return Ok(None);
    }
    let mut out = tempfile::tempfile().map_err(Problem::TemporaryFile)?;
    for entry in deflated {
        let mut sums = CrcWriter { out: &mut out, crc: crc32fast::Hasher::new() };
        inflate_into(SourceReader::new(file, entry.data.clone()), entry, &mut sums)?;
        let found = sums.crc.finalize();
        if checksums {
            check_crc(entry, found)?;
        }
    }
    Ok(Some(MappedFile::from_file(&out, file.path())?))
}

/// Returns the source if it can be mapped, or else a copy in an unlinked temporary file.
pub(crate) fn mappable(source: Arc<dyn Source>) -> Result<Arc<dyn Source>> {
    if source.is_mappable() { Ok(source) } else { Ok(Arc::new(local_copy_of(&*source, 0..source.len())?)) }
}

/// Copies a range of a source into an unlinked temporary file and maps it.
fn local_copy_of(source: &dyn Source, range: Range<u64>) -> Result<MappedFile> {
    let mut out = tempfile::tempfile().map_err(Problem::TemporaryFile)?;
    for window in window_ranges(range) {
        out.write_all(&Window::read(source, window)?).map_err(Problem::TemporaryFile)?;
    }
    Ok(MappedFile::from_file(&out, source.path())?)
}

/// Inflates the bytes of an entry into `out`, and checks the length.
fn inflate_into(compressed: impl Read, entry: &Entry, out: &mut dyn Write) -> Result<()> {
    let fail = |reason: String| Problem::Inflate { record: entry.name.clone(), reason };
    match entry.method {
        CompressionMethod::Deflated | CompressionMethod::Stored => {}
        CompressionMethod::Zstd => return Err(fail("PyTorch's archives do not use zstd".to_owned()).into()),
        CompressionMethod::Other(number) => {
            return Err(fail(format!("compression method {number} is not supported")).into());
        }
    }
    let stored = entry.stored_len();
    if entry.len > stored.saturating_mul(DEFLATE_RATIO_MAX).saturating_add(DEFLATE_RATIO_MAX) {
        return Err(fail(format!("{stored} bytes cannot hold {}", entry.len)).into());
    }
    // Reading one byte beyond the recorded length reveals a record that is too long.
    let mut decoder = DeflateDecoder::new(compressed).take(entry.len.saturating_add(1));
    let mut window = vec![0; WINDOW];
    let mut len = 0_u64;
    loop {
        let count = match decoder.read(&mut window) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => return Err(fail(error.to_string()).into()),
        };
        len = len.saturating_add(count as u64);
        out.write_all(window.get(..count).unwrap_or_default()).map_err(Problem::TemporaryFile)?;
    }
    if len == entry.len {
        Ok(())
    } else {
        Err(fail(format!("it has {len} bytes or more, the directory records {}", entry.len)).into())
    }
}

struct CrcWriter<'o> {
    out: &'o mut std::fs::File,
    crc: crc32fast::Hasher,
}

impl Write for CrcWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.crc.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

//! Scans sources that are not in memory: reads the records that PyTorch unpickles, and skips the storages.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use byte_source::{Cancelled, Observer, Prefetched, ReadError, Source};
use pickle_vm::ErrorKind;
use safetensors_format::is_safetensors;
use zip_index::{Entry, Index};

use super::budget::Budget;
use super::scanner::Scanner;
use super::{Place, Scan, Step, archive, pickle, recognise};
use crate::container::sniff;
use crate::{Container, Format, Result};

/// Length in bytes below which a source is read as a whole.
const WHOLE: u64 = 256 << 10;
/// Maximum number of bytes of records that are read at once.
const RECORDS_MAX: u64 = 64 << 20;

/// Scans the records of a zip archive other than its storages, or the header of a safetensors file. Returns the source
/// with its prefetched bytes if it has to be read as a whole, because it is short, of another format, or irregular.
pub(super) fn scan(source: &Arc<dyn Source>, observer: &dyn Observer) -> Result<Result<Scan, Prefetched>> {
    let kept = sniff::with_edges(Arc::clone(source))?;
    if kept.len() < WHOLE {
        return Ok(Err(kept));
    }
    if is_safetensors(kept.head()) {
        return safetensors(kept);
    }
    let kept = Arc::new(kept);
    let file: Arc<dyn Source> = Arc::<Prefetched>::clone(&kept);
    let index = sniff::is_zip(kept.head()).then(|| Index::read_directory(&file).ok()).flatten();
    drop(file);
    let index = index.filter(|(index, _)| !index.entries.iter().any(|entry| entry.link));
    let scanned = index.map(|(index, file)| zip(&index.entries, &*file, observer)).transpose()?;
    Ok(scanned.flatten().ok_or_else(|| Prefetched::clone(&kept)))
}

fn safetensors(kept: Prefetched) -> Result<Result<Scan, Prefetched>> {
    let found = pickle::run(kept.head(), &mut Budget::new(0));
    let is_longer = found.error.is_some_and(|error| {
        matches!(error.kind, ErrorKind::NoStop | ErrorKind::NoNewline | ErrorKind::Truncated { .. })
    });
    let tail = kept.read_range(kept.len().saturating_sub(WHOLE / 4)..kept.len())?;
    let is_sound = Container::from_source(Arc::new(Prefetched::clone(&kept))).is_ok();
    if found.matters || is_longer || recognise::may_end_as_archive(&tail) || !is_sound {
        return Ok(Err(kept));
    }
    Ok(Ok(Scan { format: Format::Safetensors.name(), ..Scan::default() }))
}

/// Scans the records that are not storages; returns `None` if a local header contradicts the directory.
fn zip(entries: &[Entry], file: &dyn Source, observer: &dyn Observer) -> Result<Option<Scan>> {
    let mut scanner = Scanner::new(Format::Zip.name(), file.len(), observer);
    let archive = scanner.overview("", entries);
    let prefix = archive::root(entries).map(|root| format!("{root}data/"));
    let is_storage = |entry: &Entry| prefix.as_ref().is_some_and(|prefix| entry.name.starts_with(prefix));
    let (storages, records): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(|entry| is_storage(entry));
    let mut left = RECORDS_MAX;
    let (read, long): (Vec<&Entry>, Vec<&Entry>) = records.into_iter().partition(|entry| {
        let rest = left.checked_sub(entry.stored_len());
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let ranges: Vec<Range<u64>> = read.iter().map(|entry| entry.data.clone()).collect();
    let bytes = match file.read_ranges(&ranges) {
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
        bytes => bytes?,
    };
    for (entry, bytes) in read.into_iter().zip(bytes) {
        let record = Place::default().with(Step::Record(entry.name.clone()));
        scanner.entry(record, entry, Cow::Owned(bytes.into()), archive);
        scanner.drain();
    }
    for entry in long {
        let name = entry.name.escape_debug();
        scanner.miss(|| format!("`{name}` has {} bytes, which were not read; scan a local copy", entry.len));
    }
    let nbytes = storages.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.len));
    let count = storages.len();
    scanner.miss(|| {
        format!(
            "{count} storages of {nbytes} bytes, and what is between the records, were not searched for \
             pickles, which PyTorch would not load"
        )
    });
    if scanner.stopped { Err(Cancelled.into()) } else { Ok(Some(scanner.scan)) }
}

//! Scans sources in part: reads the records that PyTorch unpickles, and skips the storages.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use byte_source::{Cancelled, Checks, Observer, Prefetched, Region, Source};
use pickle_vm::ErrorKind;
use safetensors_format::{Header, is_safetensors};
use zip_format::{CompressionMethod, Entry, ZipIndex};

use super::budget::ScanBudget;
use super::scan_format::{ScanFormat, is_flatbuffer};
use super::scanner::Scanner;
use super::{PicklePlace, PlaceStep, Scan, ScanDepth, pickle, record_names, zip_detection};
use crate::container::formats::{legacy, zip};
use crate::container::{sniff, tar_members};
use crate::{Container, Result};

/// Length in bytes below which a source is read as a whole.
const READ_WHOLE_BELOW: u64 = 256 << 10;
/// Maximum number of bytes of records that are read at once.
const RECORDS_MAX: u64 = 64 << 20;

/// Scans the records of a zip archive other than its storages, or the header of a safetensors file. Returns the source
/// with its prefetched bytes if it has to be read as a whole, because it is short, of another format, or irregular.
pub(super) fn scan_in_part(
    source: &Arc<dyn Source>,
    depth: ScanDepth,
    observer: &dyn Observer,
) -> Result<Result<Scan, Prefetched>> {
    let kept = sniff::prefetch_start(Arc::clone(source))?;
    let is_long = kept.len() >= READ_WHOLE_BELOW;
    if is_long && is_safetensors(kept.prefetched_start()) {
        return scan_safetensors(kept, !source.has_latency(), observer);
    }
    let kept = sniff::prefetch_end(kept)?;
    if !is_long {
        return Ok(Err(kept));
    }
    if legacy::recognises(kept.prefetched_start()) && !tar_members::is_header(kept.prefetched_start()) {
        return scan_legacy(kept, observer);
    }
    let kept = Arc::new(kept);
    let file: Arc<dyn Source> = Arc::<Prefetched>::clone(&kept);
    let index = zip::recognises(kept.prefetched_start())
        .then(|| ZipIndex::open(file, Checks::WhenRead, observer).ok())
        .flatten();
    observer.check()?;
    let index = index.filter(|(index, _)| !index.entries.iter().any(|entry| entry.is_link));
    let scanned =
        index.map(|(index, file)| scan_zip_records(&index.entries, &file, depth, observer)).transpose()?;
    Ok(scanned.flatten().ok_or_else(|| Prefetched::clone(&kept)))
}

/// Scans the pickles of a legacy file. Its storages are not searched.
fn scan_legacy(kept: Prefetched, observer: &dyn Observer) -> Result<Result<Scan, Prefetched>> {
    let tail = kept.read_range(kept.len().saturating_sub(READ_WHOLE_BELOW / 4)..kept.len())?;
    let Some(pickles) = legacy::read_pickles(&kept)?.filter(|_| !zip_detection::may_end_as_archive(&tail))
    else {
        return Ok(Err(kept));
    };
    let mut scanner = Scanner::new("legacy", kept.len(), observer);
    scanner.scan_file_start(&pickles);
    let file: Arc<dyn Source> = Arc::new(kept);
    scanner.scan_with_checkpoint_reader(&file);
    if scanner.should_stop() { Err(Cancelled.into()) } else { Ok(Ok(scanner.scan)) }
}

/// Scans the header of a safetensors file, and its end if `reads_end`. The end of a sound file is the bytes of a tensor, so it is
/// not worth two more requests to the Hub.
fn scan_safetensors(
    kept: Prefetched,
    reads_end: bool,
    observer: &dyn Observer,
) -> Result<Result<Scan, Prefetched>> {
    // A header is sound only if its tensors cover the rest of the file exactly.
    let may_hide = may_start_as_pickle(&kept) || reads_end && may_end_as_archive(&kept)?;
    if may_hide || !is_sound(&kept) {
        return Ok(Err(kept));
    }
    let end = Header::end(kept.prefetched_start()).unwrap_or_default();
    let header = kept.read_range(0..end.min(kept.len()))?;
    let mut scanner = Scanner::new("safetensors", kept.len(), observer);
    scanner.scan_metadata(&PicklePlace(vec![PlaceStep::Part("header")]), &header, kept.len(), 0);
    let Scan { notes, .. } = scan_of_header("safetensors", !reads_end);
    Ok(Ok(Scan { notes, ..scanner.scan }))
}

fn is_sound(kept: &Prefetched) -> bool {
    Container::from_source(Arc::new(Prefetched::clone(kept))).is_ok()
}

/// Returns the scan of a file of which only the header was read, or what else could hold a pickle as well.
fn scan_of_header(format: &'static str, is_in_part: bool) -> Scan {
    let note = || {
        format!(
            "the bytes of the tensors were not searched for pickles and archives, which neither PyTorch nor {format} would load"
        )
    };
    Scan { format, notes: is_in_part.then(note).into_iter().collect(), ..Scan::default() }
}

/// Returns true if the file may be unpickled from its start, or read as an archive from its end.
fn may_hide_pickle(kept: &Prefetched) -> Result<bool> {
    Ok(may_start_as_pickle(kept) || may_end_as_archive(kept)?)
}

/// Returns true if the file may be unpickled from its start, or is a tar archive, which `torch.load` tries first.
fn may_start_as_pickle(kept: &Prefetched) -> bool {
    let start = kept.prefetched_start();
    if tar_members::is_header(start) || is_flatbuffer(start) {
        return true;
    }
    let found = pickle::scan_pickle(kept.prefetched_start(), &mut ScanBudget::new(0));
    let is_longer = found.error.is_none_or(|error| {
        matches!(error.kind, ErrorKind::NoStop | ErrorKind::NoNewline | ErrorKind::Truncated { .. })
    });
    found.may_execute || is_longer
}

/// Returns true if the file may be read as an archive from its end.
fn may_end_as_archive(kept: &Prefetched) -> Result<bool> {
    let tail = kept.read_range(kept.len().saturating_sub(READ_WHOLE_BELOW / 4)..kept.len())?;
    Ok(zip_detection::may_end_as_archive(&tail))
}

/// Scans a file without pickles by its first and last bytes: the rest of a long one is not read. Returns `None` if it has to be.
///
/// # Errors
/// [`Problem::Format`](crate::Problem::Format), as for the whole file.
pub(super) fn scan_edges(kept: &Prefetched) -> Result<Option<Scan>> {
    let is_long = kept.len() >= READ_WHOLE_BELOW;
    match ScanFormat::new(kept.prefetched_start(), &()) {
        Err(error) if is_long && !may_hide_pickle(kept)? => Err(error),
        Ok(ScanFormat::Columns) if is_long => {
            let missed =
                vec!["its columns, of which only the first bytes were read; scan a local copy".to_owned()];
            Ok(Some(Scan { format: "columns", missed, ..Scan::default() }))
        }
        Ok(ScanFormat::Header(format)) if is_long && !may_hide_pickle(kept)? && is_sound(kept) => {
            Ok(Some(scan_of_header(format, true)))
        }
        _ => Ok(None),
    }
}

/// Scans the records that are not storages; returns `None` if a local header contradicts the directory.
fn scan_zip_records(
    entries: &[Entry],
    file: &Arc<dyn Source>,
    depth: ScanDepth,
    observer: &dyn Observer,
) -> Result<Option<Scan>> {
    let mut scanner = Scanner::new("zip", file.len(), observer);
    let is_sound = add_records(&mut scanner, (&PicklePlace::default(), 0), entries, file, depth)?;
    if scanner.should_stop() { Err(Cancelled.into()) } else { Ok(is_sound.then_some(scanner.scan)) }
}

/// Scans the records of an archive at `place`, in `level` other archives, that are not storages. Returns false if a local header
/// contradicts the directory.
fn add_records(
    scanner: &mut Scanner<'_, '_>,
    (place, level): (&PicklePlace, usize),
    entries: &[Entry],
    file: &Arc<dyn Source>,
    depth: ScanDepth,
) -> Result<bool> {
    scanner.add_script_modules(place, entries);
    let shown = if place.0.is_empty() { String::new() } else { format!("{place}: ") };
    let archive = scanner.report_entries(&shown, entries).at_depth(level);
    let prefix = record_names::archive_root(entries).map(|root| format!("{root}data/"));
    let is_storage = |entry: &Entry| prefix.as_ref().is_some_and(|prefix| entry.name.starts_with(prefix));
    let (storages, records): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(|entry| is_storage(entry));
    let (archives, records) = if level == 0 {
        find_archives(records, file, scanner.budget.observer())
    } else {
        (Vec::new(), records)
    };
    let mut left = RECORDS_MAX;
    let (read, long): (Vec<&Entry>, Vec<&Entry>) = records.into_iter().partition(|entry| {
        let rest = left.checked_sub(entry.stored_len());
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let ranges: Vec<Range<u64>> = read.iter().map(|entry| entry.data.clone()).collect();
    let bytes = match file.read_ranges(&ranges) {
        Err(error) if error.kind() == byte_source::ErrorKind::Damaged => return Ok(false),
        bytes => bytes?,
    };
    let record = |entry: &Entry| place.join_step(PlaceStep::Record(entry.name.clone()));
    for (entry, bytes) in read.into_iter().zip(bytes) {
        scanner.scan_entry(record(entry), entry, Cow::Owned(bytes.into()), archive);
        scanner.scan_queue();
    }
    for (entry, index, inner) in archives {
        if !add_records(scanner, (&record(entry), level.saturating_add(1)), &index.entries, &inner, depth)? {
            return Ok(false);
        }
    }
    for entry in long {
        let name = entry.name.escape_debug();
        scanner.add_missed(|| {
            format!("{shown}`{name}` has {} bytes, which were not read; scan a local copy", entry.len)
        });
    }
    let nbytes = storages.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.len));
    let count = storages.len();
    let s = if count == 1 { "" } else { "s" };
    let text = || {
        let (storages, were) = match count {
            0 => (String::new(), " was"),
            count => (format!("{count} storage{s} of {nbytes} bytes, and "), ", were"),
        };
        format!(
            "{shown}{storages}what is between the records{were} not searched for pickles, which PyTorch would not load"
        )
    };
    if depth == ScanDepth::PicklesOnly {
        scanner.add_note(text);
    } else {
        scanner.add_missed(text);
    }
    Ok(true)
}

/// Archive in a record: the record, its directory, and its bytes.
type InnerArchive<'e> = (&'e Entry, ZipIndex, Arc<dyn Source>);

/// Splits records into long ones that are archives, such as the model in a carton, and all others. One that cannot be read is not an
/// archive.
fn find_archives<'e>(
    records: Vec<&'e Entry>,
    file: &Arc<dyn Source>,
    observer: &dyn Observer,
) -> (Vec<InnerArchive<'e>>, Vec<&'e Entry>) {
    let (mut archives, mut others) = (Vec::new(), Vec::new());
    for entry in records {
        let is_long = entry.method == CompressionMethod::Stored && entry.len >= READ_WHOLE_BELOW;
        let inner = Region::new(file, entry.data.clone()).filter(|_| is_long);
        let starts_as_zip =
            |region: &Region| region.read_range(0..4).is_ok_and(|start| zip::recognises(&start));
        let inner = inner.filter(starts_as_zip);
        let inner = inner.and_then(|region| sniff::prefetch_edges(Arc::new(region)).ok());
        let inner: Option<Arc<dyn Source>> = inner.map(|inner| Arc::new(inner) as Arc<dyn Source>);
        match inner.and_then(|inner| ZipIndex::open(inner, Checks::WhenRead, observer).ok()) {
            Some((index, source)) if !index.entries.iter().any(|entry| entry.is_link) => {
                archives.push((entry, index, source));
            }
            _ => others.push(entry),
        }
    }
    (archives, others)
}

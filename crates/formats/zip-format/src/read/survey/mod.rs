//! Survey of a zip file that does not stop at the first fault.
//!
//! [`ZipIndex`](crate::ZipIndex) rejects files that two readers may interpret differently. A scanner needs all of the file:
//! every entry that any reader may find, and every oddity of the entries.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

mod interrupted;
mod links;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use byte_source::{Cancelled, Observer, PRODUCER};
use memchr::memmem;

use crate::CompressionMethod;
use crate::read::entry::{Entry, entry_from_headers, escapes_folder};
use crate::read::record::{EndRecords, Header};
use crate::{Error, Result};

/// Maximum number of collected entries and oddities.
const ENTRIES_MAX: usize = 1 << 20;
const ODDITIES_MAX: usize = 1 << 10;
/// Number of entries, and bytes to search, between two looks at the observer.
const ENTRIES_PER_CHECK: u64 = 1 << 14;
const SEARCHED_AT_ONCE: usize = 16 << 20;
const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const DESCRIPTOR: &[u8] = b"PK\x07\x08";
const END: &[u8] = b"PK\x05\x06";
const WIDE_END: &[u8] = b"PK\x06\x06";
/// Lengths of a data descriptor in bytes: with or without signature, with 32-bit or 64-bit sizes.
const DESCRIPTOR_LENS: [usize; 4] = [12, 16, 20, 24];

/// Entries and oddities of a zip file that may be damaged or ambiguous.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Entries of the directory, and entries that have only a local header.
    pub entries: Vec<Entry>,
    pub oddities: Vec<Oddity>,
    /// True if there were more entries or oddities than the maximum.
    pub is_incomplete: bool,
    /// True if the file ends before its directory, like an interrupted download. The entries are then those whose local
    /// headers are in the file.
    pub ends_before_directory: bool,
}

/// An oddity of a zip file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oddity {
    /// Kind of oddity, as one word for programs.
    pub kind: &'static str,
    /// Description for people, as a clause without full stop.
    pub text: String,
}

impl Survey {
    /// Surveys `bytes`, all bytes of a zip file.
    pub fn read(bytes: &[u8]) -> Self {
        Self::read_with_observer(bytes, &()).expect("`()` cancels nothing")
    }

    /// Surveys like [`read`](Self::read), with an observer that can stop the survey.
    ///
    /// # Errors
    /// Returns [`Cancelled`] if the observer stops it.
    pub fn read_with_observer(bytes: &[u8], observer: &dyn Observer) -> Result<Self, Cancelled> {
        let mut survey = Self::default();
        // Most archives end with their directory, and are not searched.
        let has_end = Self::ends_as_zip(bytes)
            || !bytes.starts_with(LOCAL)
            || find_with_observer(bytes, END, observer)?.is_some();
        if !has_end {
            survey.survey_interrupted(bytes, observer)?;
            return Ok(survey);
        }
        match survey.survey_directory(bytes, observer)? {
            Some(start) => survey.survey_gaps(bytes, start, observer)?,
            // A file without a directory has only local headers.
            None => survey.survey_unlisted_entries(bytes, 0..bytes.len(), false, observer)?,
        }
        observer.check()?;
        survey.survey_conflicts();
        observer.check()?;
        survey.survey_links(bytes);
        Ok(survey)
    }

    /// Returns the byte ranges of the archives in `bytes` if `bytes` are a sequence of complete archives, else an empty
    /// list. `torch.distributed.checkpoint` writes one archive for each tensor into a `.distcp` file.
    pub fn archive_ranges(bytes: &[u8]) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut end = bytes.len();
        while end > 0 {
            let start = bytes
                .get(..end)
                .and_then(EndRecords::archive_start)
                .and_then(|start| usize::try_from(start).ok());
            let Some(start) = start.filter(|start| *start < end && parts.len() < ENTRIES_MAX) else {
                return Vec::new();
            };
            parts.push(start..end);
            end = start;
        }
        parts.reverse();
        parts
    }

    /// Returns true if a reader that counts the last archive's offsets from the first byte finds a directory other than those of the
    /// archives in `parts`. miniz, which PyTorch uses, is such a reader. In archives of equal length it finds the directory of the first.
    pub fn has_hidden_directory(bytes: &[u8], parts: &[Range<usize>]) -> bool {
        let stated = |end: usize| bytes.get(..end).and_then(EndRecords::stated_offsets);
        let last = stated(bytes.len());
        let first = parts.first().filter(|part| part.start == 0).and_then(|part| stated(part.end));
        let is_at = |offset: Option<u64>, signature: &[u8]| {
            let offset = offset.and_then(|offset| usize::try_from(offset).ok());
            offset.and_then(|offset| bytes.get(offset..)).is_some_and(|rest| rest.starts_with(signature))
        };
        let wide = last.and_then(|(wide, _)| wide);
        let directory = last.map(|(_, directory)| directory);
        if is_at(wide, WIDE_END) {
            wide != first.and_then(|(wide, _)| wide)
        } else {
            is_at(directory, CENTRAL) && directory != first.map(|(_, directory)| directory)
        }
    }

    /// Returns true if a central header is at the directory offset of the last end record in the last 64 KiB, whatever
    /// follows that record. Python's `zipfile` and miniz, which PyTorch uses, accept such files.
    pub fn has_directory(bytes: &[u8]) -> bool {
        let from = bytes.len().saturating_sub(usize::from(u16::MAX).saturating_add(22));
        let tail = bytes.get(from..).unwrap_or_default();
        // Most files have no such record, and are rejected without further search.
        memmem::find(tail, END).is_some()
            && EndRecords::read_last_signature(bytes)
                .is_some_and(|end| Header::central(bytes.into(), end.directory_offset).is_ok())
    }

    /// Returns true if `bytes` end with valid end records of a zip file.
    pub fn ends_as_zip(bytes: &[u8]) -> bool {
        EndRecords::read(bytes.into()).is_ok()
    }

    fn add_oddity(&mut self, kind: &'static str, text: String) {
        if self.oddities.len() >= ODDITIES_MAX {
            self.is_incomplete = true;
        } else {
            self.oddities.push(Oddity { kind, text });
        }
    }

    /// Reads the entries of the directory and returns the directory's offset.
    fn survey_directory(
        &mut self,
        bytes: &[u8],
        observer: &dyn Observer,
    ) -> Result<Option<usize>, Cancelled> {
        let end = match EndRecords::read(bytes.into()) {
            Ok(end) => end,
            Err(error) => {
                self.add_oddity(oddity_kind(&error), error.to_string());
                let Some(end) = EndRecords::read_last_signature(bytes) else { return Ok(None) };
                let trailing =
                    (bytes.len() as u64).saturating_sub(end.offset).saturating_sub(EndRecords::LEN);
                self.add_oddity(
                    "trailing",
                    format!("{trailing} bytes follow the record that ends the archive"),
                );
                end
            }
        };
        let comment = usize::try_from(end.record.saturating_add(EndRecords::LEN)).ok();
        let comment = comment.and_then(|start| bytes.get(start..)).unwrap_or_default();
        // Archives that this program wrote have the program's name as their comment.
        if !comment.is_empty() && comment != PRODUCER.as_bytes() && self.oddities.is_empty() {
            self.add_oddity("comment", format!("a comment of {} bytes ends the archive", comment.len()));
        }
        // Bytes before an archive shift all of its offsets; some readers compensate for the shift.
        let start = end.offset.saturating_sub(end.directory_len);
        let moved = start.saturating_sub(end.directory_offset);
        let start = if Header::central(bytes.into(), end.directory_offset).is_ok() {
            end.directory_offset
        } else {
            start
        };
        let moved = if start == end.directory_offset { 0 } else { moved };
        if moved > 0 {
            self.add_oddity(
                "prepended",
                format!("the archive starts {moved} bytes later in the file than its directory says"),
            );
        }
        let mut offset = start;
        let mut count = 0_u64;
        while offset < end.offset
            && let Ok(mut central) = Header::central(bytes.into(), offset)
        {
            if self.entries.len() >= ENTRIES_MAX {
                self.is_incomplete = true;
                break;
            }
            if count.is_multiple_of(ENTRIES_PER_CHECK) {
                observer.check()?;
            }
            central.local_offset = central.local_offset.saturating_add(moved);
            self.survey_listed_entry(bytes, &central, start);
            offset = offset.saturating_add(central.span);
            count = count.saturating_add(1);
        }
        if count != end.entries {
            self.add_oddity(
                "directory",
                format!("the directory lists {count} entries, its end record counts {}", end.entries),
            );
        }
        if offset != end.offset {
            let (gap, at) = (end.offset.abs_diff(offset), offset);
            self.add_oddity(
                "gap",
                format!("{gap} bytes at offset 0x{at:x} follow the directory's last entry"),
            );
        }
        Ok(usize::try_from(start).ok())
    }

    /// Adds an entry of the directory, or the fault that [`ZipIndex`](crate::ZipIndex) finds with the entries that other
    /// readers see.
    fn survey_listed_entry(&mut self, bytes: &[u8], central: &Header<'_>, limit: u64) {
        let offset = central.local_offset;
        let past = || Error::PastEnd { name: central.display_name(), end: offset, limit };
        let local = if offset < limit { local_header(bytes, offset) } else { Err(past()) };
        let error = match local.and_then(|local| entry_from_headers(central, &local, limit)) {
            Ok(entry) => return self.entries.push(entry),
            Err(error) => error,
        };
        self.add_oddity(oddity_kind(&error), error.to_string());
        let Ok(local) = local_header(bytes, central.local_offset) else { return };
        let start = central.local_offset.saturating_add(local.span);
        // Some readers use the sizes in the directory, other readers the sizes in the local header.
        for (header, name) in [(central, central.display_name()), (&local, local.display_name())] {
            let Some(found) =
                Entry::from_header_lenient(header, name, central.local_offset, start, bytes.len())
            else {
                continue;
            };
            let same = |entry: &Entry| entry.name == found.name && entry.data == found.data;
            if !(self.entries.last().is_some_and(same) || found.data.is_empty()) {
                self.entries.push(found);
            }
        }
    }

    /// Searches the gaps between entries for local headers that the directory does not list, and for other bytes.
    fn survey_gaps(&mut self, bytes: &[u8], end: usize, observer: &dyn Observer) -> Result<(), Cancelled> {
        let mut known: Vec<Range<usize>> = self.entries.iter().map(Entry::span).collect();
        known.sort_by_key(|range| (range.start, range.end));
        let mut at = 0;
        for next in known.into_iter().chain(std::iter::once(end..end)) {
            if next.start > at {
                self.survey_gap(bytes, at..next.start, observer)?;
            }
            at = at.max(next.end);
        }
        Ok(())
    }

    fn survey_gap(
        &mut self,
        bytes: &[u8],
        range: Range<usize>,
        observer: &dyn Observer,
    ) -> Result<(), Cancelled> {
        let Some(gap) = bytes.get(range.clone()) else { return Ok(()) };
        let descriptor = range.start > 0
            && DESCRIPTOR_LENS.contains(&gap.len())
            && (gap.starts_with(DESCRIPTOR) || matches!(gap.len(), 12 | 20));
        if descriptor {
            return Ok(());
        }
        let (len, at) = (gap.len(), range.start);
        let place = if at == 0 { "before the first entry" } else { "that belong to no entry" };
        let kind = if at == 0 { "prepended" } else { "gap" };
        self.add_oddity(kind, format!("{len} bytes {place} at offset 0x{at:x}"));
        self.survey_unlisted_entries(bytes, range, true, observer)
    }

    /// Searches a range of the file for local headers.
    fn survey_unlisted_entries(
        &mut self,
        bytes: &[u8],
        range: Range<usize>,
        report: bool,
        observer: &dyn Observer,
    ) -> Result<(), Cancelled> {
        let (gap, at) = (bytes.get(range.clone()).unwrap_or_default(), range.start);
        let mut start = 0_usize;
        while let Some(found) = find_with_observer(gap.get(start..).unwrap_or_default(), LOCAL, observer)? {
            let offset = at.saturating_add(start).saturating_add(found);
            start = start.saturating_add(found).saturating_add(4);
            if self.entries.len() >= ENTRIES_MAX {
                self.is_incomplete = true;
                return Ok(());
            }
            let Ok(local) = local_header(bytes, offset as u64) else { continue };
            let data = (offset as u64).saturating_add(local.span);
            let name = local.display_name();
            if report {
                let shown = name.escape_debug();
                self.add_oddity(
                    "unlisted",
                    format!("entry `{shown}` at offset 0x{offset:x} is not listed in the directory"),
                );
            }
            self.entries.extend(Entry::from_header_lenient(&local, name, offset as u64, data, range.end));
        }
        Ok(())
    }

    fn survey_conflicts(&mut self) {
        // Two interpretations of one entry overlap, but they are not two entries.
        let are_apart = self.entries.is_sorted_by(|first, second| first.header_offset < second.header_offset);
        let entries = if are_apart {
            Cow::Borrowed(self.entries.as_slice())
        } else {
            let mut offsets = HashSet::new();
            let entries = self.entries.iter().filter(|entry| offsets.insert(entry.header_offset));
            Cow::Owned(entries.cloned().collect())
        };
        let (overlaps, duplicates) = (overlap_errors(&entries), duplicate_errors(&entries));
        let mut reported = HashSet::new();
        for error in overlaps.into_iter().chain(duplicates) {
            let text = error.to_string();
            if reported.insert(text.clone()) {
                self.add_oddity(oddity_kind(&error), text);
            }
        }
        let names = self.entries.iter().map(|entry| &entry.name);
        let unsafe_names: Vec<String> = names.filter(|name| escapes_folder(name)).cloned().collect();
        for name in unsafe_names {
            let text = Error::UnsafePath { name }.to_string();
            if !self.oddities.iter().any(|oddity| oddity.text == text) {
                self.add_oddity("path", text);
            }
        }
    }
}

impl Entry {
    /// Returns the byte range from the local header to the end of the data.
    fn span(&self) -> Range<usize> {
        let at = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
        at(self.header_offset)..at(self.data.end)
    }

    /// Returns the entry that a header describes, with the data from `start` on truncated at `limit`.
    fn from_header_lenient(
        header: &Header<'_>,
        name: String,
        offset: u64,
        start: u64,
        limit: usize,
    ) -> Option<Self> {
        let limit = Some(limit as u64).filter(|limit| start <= *limit)?;
        let (method, len) = (CompressionMethod::from(header.method), header.compressed_len);
        // Data of unknown length may extend to the next record.
        let len = if header.has_descriptor() && len == 0 { u64::MAX } else { len };
        Some(Self {
            name,
            method,
            data: start..start.saturating_add(len).min(limit),
            len: header.len,
            crc: u32::try_from(header.crc).unwrap_or_default(),
            header_offset: offset,
            is_link: header.is_link(),
        })
    }
}

fn overlap_errors(entries: &[Entry]) -> Vec<Error> {
    let mut by_offset: Vec<&Entry> = entries.iter().collect();
    by_offset.sort_by_key(|entry| entry.header_offset);
    let overlap = |pair: &[&Entry]| match pair {
        [first, second] if first.data.end > second.header_offset => Some(Error::Overlap {
            first: first.name.clone(),
            second: second.name.clone(),
            offset: second.header_offset,
        }),
        _ => None,
    };
    by_offset.windows(2).filter_map(overlap).collect()
}

/// Returns an error for each entry whose name repeats the name of an earlier entry.
fn duplicate_errors(entries: &[Entry]) -> Vec<Error> {
    let mut by_name: Vec<&Entry> = entries.iter().collect();
    by_name.sort_by(|a, b| a.name.cmp(&b.name).then(a.header_offset.cmp(&b.header_offset)));
    let duplicate = |pair: &[&Entry]| match pair {
        [first, second] if first.name == second.name => Some(Error::Duplicate {
            name: first.name.clone(),
            first: first.header_offset,
            second: second.header_offset,
        }),
        _ => None,
    };
    by_name.windows(2).filter_map(duplicate).collect()
}

fn local_header(bytes: &[u8], offset: u64) -> Result<Header<'_>> {
    let from = usize::try_from(offset).ok().and_then(|from| bytes.get(from..));
    let local = from.and_then(Header::local);
    local.ok_or(Error::NoRecord { record: "local header", offset })
}

fn oddity_kind(error: &Error) -> &'static str {
    match error {
        Error::NoEnd { .. } => "cut",
        Error::MultipleDisks | Error::Disagreement { .. } => "directory",
        Error::NoRecord { .. }
        | Error::NoLocal { .. }
        | Error::PastEnd { .. }
        | Error::DirectoryTooLong { .. } => "missing",
        Error::NameMismatch { .. }
        | Error::HeaderMismatch { .. }
        | Error::DuplicateZip64 { .. }
        | Error::SecondName { .. } => "disagreement",
        Error::Overlap { .. } => "overlap",
        Error::Duplicate { .. } => "duplicate",
        Error::UnsafePath { .. } => "path",
        Error::Encrypted { .. } => "encrypted",
        Error::Patch { .. } => "patch",
    }
}

/// Finds a signature, and asks the observer about once for each [`SEARCHED_AT_ONCE`] bytes.
fn find_with_observer(
    bytes: &[u8],
    signature: &[u8],
    observer: &dyn Observer,
) -> Result<Option<usize>, Cancelled> {
    let mut start = 0_usize;
    while start < bytes.len() {
        observer.check()?;
        let next = start.saturating_add(SEARCHED_AT_ONCE);
        // A signature that begins before `next` may end after it.
        let end = next.saturating_add(signature.len()).min(bytes.len());
        if let Some(found) = memmem::find(bytes.get(start..end).unwrap_or_default(), signature) {
            return Ok(Some(start.saturating_add(found)));
        }
        start = next;
    }
    Ok(None)
}

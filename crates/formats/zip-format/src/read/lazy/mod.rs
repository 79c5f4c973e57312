//! Lazy reading of a zip file: the directory is read first, and each local header together with the first bytes of its entry.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use byte_source::{Source, WINDOW, Window};
use bytes::Bytes;

use crate::Error;
use crate::read::entry::{Entry, compare_headers};
use crate::read::record::{EndRecords, Header, Tail};

/// Maximum length of the directory in bytes, enough for ten million entries.
const DIRECTORY_MAX: u64 = 1 << 30;
/// Bytes read for the extra field of a local header: PyTorch pads the data to multiples of 64 bytes.
const EXTRA_READ_LEN: u64 = 128;
/// Maximum bytes between a header and requested data that are read together.
const HEADER_DISTANCE_MAX: u64 = 64 << 10;
/// Bytes that are read at once for the local headers of small entries.
const NEAR_READ_LEN: u64 = 4 << 10;
/// Bytes that are read from the end of a file that can be mapped: a small read costs less than touching a page of a map.
const NEAR_TAIL_LEN: u64 = 4 << 10;

/// Bytes of a file from its directory, or the largest possible end records, to its end; all bytes of a file in memory with a long
/// directory.
#[derive(Debug)]
pub(crate) struct TailBytes {
    bytes: Bytes,
    /// Offset of the first of these bytes in the file.
    start: u64,
}

impl TailBytes {
    /// Reads the end records, then the part of the directory that precedes them.
    pub(crate) fn of(file: &dyn Source) -> byte_source::Result<Self> {
        if !file.is_mappable() {
            return Self::read(file);
        }
        match Self::read_short(file) {
            Some(short) => Ok(short),
            None => Ok(Self { bytes: file.share(0..file.len())?, start: 0 }),
        }
    }

    /// Reads the directory and the end records if they are short.
    fn read_short(file: &dyn Source) -> Option<Self> {
        let start = file.len().saturating_sub(NEAR_TAIL_LEN);
        let bytes = file.read_range(start..file.len()).ok()?;
        let end = EndRecords::read(Tail { bytes: &bytes, start }).ok()?;
        // What precedes the last record decides whether there is another.
        let has_locator = end.record.saturating_sub(start) >= EndRecords::LOCATOR_LEN;
        (end.directory_offset >= start && has_locator).then_some(Self { bytes, start })
    }

    fn read(file: &dyn Source) -> byte_source::Result<Self> {
        let len = file.len();
        let last = len.saturating_sub(EndRecords::END_RECORDS_MAX);
        let bytes = file.share(last..len)?;
        let end = EndRecords::read(Tail { bytes: &bytes, start: last })?;
        let start = end.directory_offset;
        if start >= last {
            return Ok(Self { bytes, start: last });
        }
        if end.directory_len > DIRECTORY_MAX || len.saturating_sub(start) > DIRECTORY_MAX {
            return Err(Error::DirectoryTooLong { len: end.directory_len, max: DIRECTORY_MAX }.into());
        }
        let first = file.share(start..last)?;
        Ok(Self { bytes: [first, bytes].concat().into(), start })
    }

    pub(crate) fn tail(&self) -> Tail<'_> {
        Tail { bytes: &self.bytes, start: self.start }
    }
}

/// Source that reads and checks the local header of an entry when bytes of the entry are first read.
///
/// In this source, the data of an entry start directly after its name, because the length of the local header's extra
/// field is not known before the header is read. Other offsets are those of the file.
#[derive(Debug)]
pub(crate) struct LazyHeaders {
    file: Arc<dyn Source>,
    directory: TailBytes,
    /// Entries that have data, in the order of their offsets.
    places: Vec<LazyEntry>,
}

#[derive(Debug)]
struct LazyEntry {
    /// Byte range of the data in this source.
    data: Range<u64>,
    header_offset: u64,
    /// Offset of the next entry or of the directory.
    limit: u64,
    /// Offset of the entry's central header.
    line: u64,
    found: OnceLock<LocatedEntry>,
}

/// Position of an entry's data, known from its local header.
#[derive(Debug)]
struct LocatedEntry {
    /// Length of the extra field: the difference of the data's offsets in the file and in this source.
    extra: u64,
    /// Data that were read together with the header but not requested, and their offset in this source.
    surplus: Bytes,
    surplus_offset: u64,
}

impl LazyHeaders {
    /// Creates a source. `lines` are the offsets of the entries' central headers, `end` is the offset of the directory.
    pub(crate) fn new(
        file: Arc<dyn Source>,
        entries: &[Entry],
        lines: &[u64],
        end: u64,
        directory: TailBytes,
    ) -> Self {
        let place = |(entry, line): (&Entry, &u64)| LazyEntry {
            data: entry.data.clone(),
            header_offset: entry.header_offset,
            limit: end,
            line: *line,
            found: OnceLock::new(),
        };
        let mut places: Vec<LazyEntry> = entries.iter().zip(lines).map(place).collect();
        places.sort_unstable_by_key(|place| place.header_offset);
        let mut limit = end;
        for place in places.iter_mut().rev() {
            place.limit = std::mem::replace(&mut limit, place.header_offset);
        }
        places.retain(|place| !place.data.is_empty());
        Self { file, directory, places }
    }

    /// Returns the entry that contains the byte at `offset`.
    fn entry_containing(&self, offset: u64) -> Option<&LazyEntry> {
        let after = self.places.partition_point(|place| place.data.start <= offset);
        let place = self.places.get(after.checked_sub(1)?)?;
        (offset < place.data.end).then_some(place)
    }

    /// Reads the local header of an entry, and those of the next entries if they are close.
    fn locate_near<'p>(&'p self, place: &'p LazyEntry) -> byte_source::Result<&'p LocatedEntry> {
        let is_close = place.limit.saturating_sub(place.header_offset) < NEAR_READ_LEN / 2;
        let len = if is_close { NEAR_READ_LEN } else { 0 };
        let end = place.range_with_header(place.data.start).end;
        let end = end.max(place.header_offset.saturating_add(len)).min(self.file.len());
        let block = self.file.read_range(place.header_offset..end)?;
        let found = self.located(place, &block, place.data.end)?;
        let after = self.places.partition_point(|other| other.header_offset <= place.header_offset);
        for next in self.places.get(after..).unwrap_or_default() {
            let at = next.header_offset.saturating_sub(place.header_offset);
            let rest = usize::try_from(at).ok().and_then(|at| (at < block.len()).then(|| block.slice(at..)));
            let Some(rest) = rest else { break };
            let has_header = Header::local_span(&rest).is_some_and(|span| span <= rest.len());
            // An error is reported when bytes of that entry are read.
            if !has_header || next.found.get().is_some() || self.located(next, &rest, next.data.end).is_err()
            {
                break;
            }
        }
        Ok(found)
    }

    /// Reads only the local header of an entry.
    fn locate_entry(&self, place: &LazyEntry) -> byte_source::Result<()> {
        let block = self.file.read_range(place.range_with_header(place.data.start))?;
        self.located(place, &block, place.data.start)?;
        Ok(())
    }

    /// Compares the local header at the start of `block` with the directory. Data from the offset `asked` on are kept.
    fn located<'p>(
        &self,
        place: &'p LazyEntry,
        block: &Bytes,
        asked: u64,
    ) -> byte_source::Result<&'p LocatedEntry> {
        let central = Header::central(self.directory.tail(), place.line)?;
        let none = || Error::NoLocal { name: central.display_name(), offset: place.header_offset };
        let span = Header::local_span(block).ok_or_else(none)?;
        let end = place.header_offset.saturating_add(span as u64);
        // An extra field can have up to 64 KiB, more than the block.
        let header = if span <= block.len() {
            block.slice(..span)
        } else {
            self.file.read_range(place.header_offset..end)?
        };
        let local = Header::local(&header).ok_or_else(none)?;
        compare_headers(&central, &local)?;
        let start = place.header_offset.saturating_add(local.span);
        let extra = start.saturating_sub(place.data.start);
        if place.data.end.saturating_add(extra) > place.limit {
            let (name, end) = (central.display_name(), place.data.end.saturating_add(extra));
            return Err(Error::PastEnd { name, end, limit: place.limit }.into());
        }
        let within =
            |offset: u64| usize::try_from(offset.saturating_sub(place.data.start)).unwrap_or(usize::MAX);
        let data = block.get(span..).unwrap_or_default();
        let data = data.get(..within(place.data.end)).unwrap_or(data);
        // The data are copied, because a slice would keep the whole block in memory.
        let kept = Bytes::copy_from_slice(data.get(within(asked)..).unwrap_or_default());
        Ok(place.found.get_or_init(|| LocatedEntry { extra, surplus: kept, surplus_offset: asked }))
    }

    /// Returns the data of `range` from `block`, which starts with the entry's local header. Data after the end of the
    /// block, because of a long extra field, are read from the file.
    fn data_from_block(
        &self,
        place: &LazyEntry,
        range: &Range<u64>,
        block: &Bytes,
    ) -> byte_source::Result<Bytes> {
        let found = self.located(place, block, range.end)?;
        let in_block = |offset: u64| {
            let at = offset.saturating_add(found.extra).saturating_sub(place.header_offset);
            usize::try_from(at).unwrap_or(usize::MAX)
        };
        let wanted = in_block(range.start)..in_block(range.end);
        if wanted.end <= block.len() {
            return Ok(block.slice(wanted));
        }
        let mut bytes = block.get(wanted.start..).unwrap_or_default().to_vec();
        let at = range.start.saturating_add(bytes.len() as u64);
        let mut rest = vec![0; wanted.len().saturating_sub(bytes.len())];
        self.file.read_at(&mut rest, at.saturating_add(found.extra))?;
        bytes.append(&mut rest);
        Ok(bytes.into())
    }

    /// Reads data of an entry whose local header was read.
    fn read_located(&self, found: &LocatedEntry, buffer: &mut [u8], offset: u64) -> byte_source::Result<()> {
        let kept = offset.checked_sub(found.surplus_offset).and_then(|from| usize::try_from(from).ok());
        let kept = kept.and_then(|from| found.surplus.get(from..)).unwrap_or_default();
        let (known, rest) = buffer.split_at_mut(kept.len().min(buffer.len()));
        known.copy_from_slice(kept.get(..known.len()).unwrap_or_default());
        if rest.is_empty() {
            return Ok(());
        }
        let at = offset.saturating_add(known.len() as u64).saturating_add(found.extra);
        self.file.read_at(rest, at)
    }
}

impl LazyEntry {
    /// Returns the range of the file with the local header and the data up to `end`, if the extra field is short.
    fn range_with_header(&self, end: u64) -> Range<u64> {
        self.header_offset..end.saturating_add(EXTRA_READ_LEN).min(self.limit)
    }
}

impl LazyHeaders {
    /// Returns the range of the file that has the bytes of a range of an entry whose local header was read; `None` if it was not, or
    /// some of the bytes were read with it.
    fn range_in_file(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let place = self.entry_containing(range.start).filter(|place| range.end <= place.data.end)?;
        let LocatedEntry { extra, surplus_offset, surplus } = place.found.get()?;
        let is_behind =
            surplus.is_empty() || range.start >= surplus_offset.saturating_add(surplus.len() as u64);
        let at = |offset: u64| offset.saturating_add(*extra);
        is_behind.then(|| at(range.start)..at(range.end))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Source for LazyHeaders {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn is_empty(&self) -> bool {
        self.file.is_empty()
    }

    fn read_range(&self, range: Range<u64>) -> byte_source::Result<Bytes> {
        Ok(self.read_ranges(&[range])?.into_iter().next().unwrap_or_default())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> byte_source::Result<()> {
        let Some(place) = self.entry_containing(offset) else { return self.file.read_at(buffer, offset) };
        let end = offset.saturating_add(buffer.len() as u64);
        if end > place.data.end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(found) = place.found.get() {
            return self.read_located(found, buffer, offset);
        }
        let bytes = self.read_range(offset..end)?;
        buffer.copy_from_slice(bytes.get(..buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn read_window(&self, range: Range<u64>) -> byte_source::Result<Window> {
        if let Some(range) = self.range_in_file(&range) {
            return self.file.read_window(range);
        }
        let Some(place) = self.entry_containing(range.start) else { return self.file.read_window(range) };
        if range.end > place.data.end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match place.found.get() {
            Some(found) => {
                let len = usize::try_from(range.end.saturating_sub(range.start));
                let len = len.map_err(|_| io::ErrorKind::InvalidInput)?;
                Window::filled(len, |bytes| self.read_located(found, bytes, range.start))
            }
            None => Ok(self.read_range(range)?.into()),
        }
    }

    fn read_first(&self, range: Range<u64>) -> byte_source::Result<Window> {
        match self.range_in_file(&range) {
            Some(range) => self.file.read_first(range),
            None => self.read_window(range),
        }
    }

    fn read_ranges(&self, ranges: &[Range<u64>]) -> byte_source::Result<Vec<Bytes>> {
        let place =
            |range: &Range<u64>| self.entry_containing(range.start).filter(|_| range.start < range.end);
        let mut asked = Vec::with_capacity(ranges.len());
        for range in ranges {
            let Some(place) = place(range) else {
                asked.push(range.clone());
                continue;
            };
            if range.end > place.data.end {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if range.start.saturating_sub(place.data.start) > HEADER_DISTANCE_MAX
                && place.found.get().is_none()
            {
                self.locate_entry(place)?;
            }
            asked.push(match place.found.get() {
                Some(LocatedEntry { extra, .. }) => {
                    range.start.saturating_add(*extra)..range.end.saturating_add(*extra)
                }
                None => place.range_with_header(range.end),
            });
        }
        let read = self.file.read_ranges(&asked)?;
        let mut parts = Vec::with_capacity(ranges.len());
        for ((range, asked), block) in ranges.iter().zip(asked).zip(read) {
            parts.push(match place(range).filter(|place| asked.start == place.header_offset) {
                None => block,
                Some(place) => self.data_from_block(place, range, &block)?,
            });
        }
        Ok(parts)
    }

    /// Shares a long range; the local header of its entry is read first. A short range of an entry is read with the header.
    fn share(&self, range: Range<u64>) -> byte_source::Result<Bytes> {
        let is_long = range.end.saturating_sub(range.start) > WINDOW as u64;
        if let Some(place) = self.entry_containing(range.start)
            && place.found.get().is_none()
            && is_long
            && self.is_mappable()
        {
            self.locate_entry(place)?;
        }
        match self.range_in_file(&range) {
            Some(range) => self.file.share(range),
            None => self.read_range(range),
        }
    }

    /// Returns `None`: the bytes of an entry are not where its range is.
    fn in_memory(&self) -> Option<&[u8]> {
        None
    }

    fn is_mappable(&self) -> bool {
        self.file.is_mappable()
    }

    fn has_latency(&self) -> bool {
        self.file.has_latency()
    }

    fn will_read(&self, ranges: &[Range<u64>]) {
        let with_header = |range: &Range<u64>| {
            let Some(place) = self.entry_containing(range.start) else { return range.clone() };
            let Some(LocatedEntry { extra, surplus, surplus_offset }) = place.found.get() else {
                let is_near = range.start.saturating_sub(place.data.start) <= HEADER_DISTANCE_MAX;
                return if is_near { place.range_with_header(range.end) } else { range.clone() };
            };
            let kept =
                if surplus.is_empty() { 0 } else { surplus_offset.saturating_add(surplus.len() as u64) };
            range.start.max(kept).saturating_add(*extra)..range.end.saturating_add(*extra)
        };
        self.file.will_read(&ranges.iter().map(with_header).collect::<Vec<_>>());
    }

    fn file(&self) -> Option<(&File, u64)> {
        self.file.file()
    }

    fn locate(&self, range: Range<u64>) -> byte_source::Result<Range<u64>> {
        let Some(place) = self.entry_containing(range.start) else { return self.file.locate(range) };
        let found = match place.found.get() {
            Some(found) => found,
            None => self.locate_near(place)?,
        };
        let at = |offset: u64| offset.saturating_add(found.extra);
        self.file.locate(at(range.start)..at(range.end))
    }

    fn check_unchanged(&self) -> byte_source::Result<()> {
        self.file.check_unchanged()
    }

    fn release(&self, range: Range<u64>) {
        let range = self.range_in_file(&range).unwrap_or(range);
        self.file.release(range);
    }
}

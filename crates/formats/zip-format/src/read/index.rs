//! Index of a zip file from its central directory, compared with every local header.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use byte_source::{Cancelled, Checks, Observer, Source};
use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};

use crate::read::entry::{Entry, entry_from_central, entry_from_headers, local_offset};
use crate::read::lazy::{LazyHeaders, TailBytes};
use crate::read::record::{EndRecords, Header, Tail};
use crate::{Error, Result};

/// Entries of a zip file, in the order of the central directory.
#[derive(Clone, Debug)]
pub struct ZipIndex {
    pub entries: Vec<Entry>,
}

impl ZipIndex {
    /// Reads the central directory of `file` and every local header.
    ///
    /// # Errors
    /// Returns an error if a record is missing, is outside the file, or disagrees with another record, or if entries
    /// overlap, share a name, have two names or sizes, or are encrypted; and an error if the directory of a file that is not in
    /// memory exceeds 1 GiB.
    pub fn read(file: &dyn Source) -> byte_source::Result<Self> {
        Self::read_all(file, &())
    }

    /// Reads the central directory of `file`, and returns it with the source of which the entries' data ranges are ranges.
    /// With [`Checks::AtOnce`], every local header is read now, and the source is `file`. With [`Checks::WhenRead`], the source
    /// reads and checks the local header of an entry when bytes of the entry are read. The observer can stop the reading.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read), those of local headers only if all are read, and [`Cancelled`].
    pub fn open(
        file: Arc<dyn Source>,
        checks: Checks,
        observer: &dyn Observer,
    ) -> byte_source::Result<(Self, Arc<dyn Source>)> {
        if checks == Checks::AtOnce {
            return Ok((Self::read_all(&*file, observer)?, file));
        }
        let bytes = TailBytes::of(&*file)?;
        let directory = Directory::new(bytes.tail())?;
        let count = directory.parts.iter().map(|part| part.lines).sum();
        let (mut entries, mut lines) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for part in &directory.parts {
            observer.check()?;
            for line in part.lines(directory.bytes) {
                let (offset, central) = line?;
                entries.push(entry_from_central(&central, directory.start)?);
                lines.push(offset);
            }
        }
        let index = Self::new(entries, &directory, observer)?;
        let start = directory.start;
        let source = LazyHeaders::new(file, &index.entries, &lines, start, bytes);
        Ok((index, Arc::new(source)))
    }

    fn read_all(file: &dyn Source, observer: &dyn Observer) -> byte_source::Result<Self> {
        let bytes = TailBytes::of(file)?;
        let directory = Directory::new(bytes.tail())?;
        let entries = read_entries(file, &directory, observer)?;
        file.release(0..file.len());
        Self::new(entries, &directory, observer)
    }

    fn new(
        entries: Vec<Entry>,
        directory: &Directory<'_>,
        observer: &dyn Observer,
    ) -> byte_source::Result<Self> {
        directory.check_end()?;
        observer.check()?;
        reject_overlaps(&entries)?;
        observer.check()?;
        reject_duplicates(&entries)?;
        observer.check()?;
        Ok(Self { entries })
    }

    /// Returns true if the directory of `file` lists all of these names, and `None` if it cannot be read. Local
    /// headers, which would take most of the time, are not read.
    pub fn directory_lists(file: &dyn Source, names: &[&str]) -> Option<bool> {
        let read = TailBytes::of(file).ok()?;
        let bytes = read.tail();
        let end = EndRecords::read(bytes).ok()?;
        let (mut offset, mut missing) = (end.directory_offset, names.to_vec());
        while offset < end.offset && !missing.is_empty() {
            let (span, found) = Header::central_span(bytes, offset).ok()?;
            missing.retain(|name| name.as_bytes() != found);
            offset = offset.saturating_add(span);
        }
        Some(missing.is_empty())
    }

    /// Returns the entry with this name.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// A parsed central directory, as offsets of its headers.
struct Directory<'b> {
    bytes: Tail<'b>,
    /// Offset of the first central header: the end of the entries' data.
    start: u64,
    parts: Vec<DirectoryPart>,
    /// Offset of the end of the last central header.
    offset: u64,
    end: EndRecords,
}

/// Consecutive central headers, for one thread to check.
struct DirectoryPart {
    /// Offset of the first of these headers.
    start: u64,
    lines: usize,
}

impl DirectoryPart {
    /// Maximum number of headers in a part; reading them takes less time than starting a thread.
    const LINES_MAX: usize = 4096;
}

impl<'b> Directory<'b> {
    fn new(bytes: Tail<'b>) -> Result<Self> {
        let end = EndRecords::read(bytes)?;
        let start = end.directory_offset;
        if start.checked_add(end.directory_len) != Some(end.offset) {
            let found = start.saturating_add(end.directory_len);
            return Err(end.disagreement("the end of the directory", end.offset, found));
        }
        let mut offset = start;
        let mut parts: Vec<DirectoryPart> = Vec::new();
        while offset < end.offset {
            match parts.last_mut() {
                Some(part) if part.lines < DirectoryPart::LINES_MAX => {
                    part.lines = part.lines.saturating_add(1);
                }
                _ => parts.push(DirectoryPart { start: offset, lines: 1 }),
            }
            offset = offset.saturating_add(Header::central_span(bytes, offset)?.0);
        }
        Ok(Self { bytes, start, parts, offset, end })
    }

    /// Compares the number and the end of the central headers with the end record.
    fn check_end(&self) -> Result<()> {
        let end = &self.end;
        let lines = self.parts.iter().fold(0, |lines: u64, part| lines.saturating_add(part.lines as u64));
        if lines != end.entries {
            return Err(end.disagreement("the number of entries", end.entries, lines));
        }
        if self.offset != end.offset {
            return Err(end.disagreement("the end of the directory", end.offset, self.offset));
        }
        Ok(())
    }
}

impl DirectoryPart {
    fn lines<'b>(&self, bytes: Tail<'b>) -> impl Iterator<Item = Result<(u64, Header<'b>)>> + use<'b> {
        let mut next = self.start;
        (0..self.lines).map(move |_| {
            let (offset, line) = (next, Header::central(bytes, next)?);
            next = next.saturating_add(line.span);
            Ok((offset, line))
        })
    }
}

/// Reads all entries, and compares each central header with its local header, on several threads if there are many.
fn read_entries(
    file: &dyn Source,
    directory: &Directory<'_>,
    observer: &dyn Observer,
) -> byte_source::Result<Vec<Entry>> {
    let Directory { bytes, start: limit, parts, .. } = directory;
    let is_stopped = AtomicBool::new(false);
    // The observer is asked on the caller's thread, where Python looks at signals.
    let check =
        |parts: &[DirectoryPart], observer: Option<&dyn Observer>| -> byte_source::Result<Vec<Entry>> {
            let mut locals = LocalHeaders::new(file);
            let mut entries = Vec::with_capacity(parts.iter().map(|part| part.lines).sum());
            for part in parts {
                if observer.is_some_and(Observer::is_cancelled) {
                    is_stopped.store(true, Ordering::Relaxed);
                }
                if is_stopped.load(Ordering::Relaxed) {
                    return Err(Cancelled.into());
                }
                for line in part.lines(*bytes) {
                    entries.push(read_entry(&mut locals, &line?.1, *limit)?);
                }
            }
            Ok(entries)
        };
    let threads = byte_source::core_share();
    let share = parts.len().div_ceil(threads).max(1);
    if parts.len() <= share {
        return check(parts, Some(observer));
    }
    let (own, others) = parts.split_at_checked(share).unwrap_or_default();
    let parts: byte_source::Result<Vec<Vec<Entry>>> = std::thread::scope(|scope| {
        let check = &check;
        let running: Vec<_> =
            others.chunks(share).map(|part| scope.spawn(move || check(part, None))).collect();
        // Joined in the directory's order, so that the first error is deterministic.
        let own = std::iter::once(check(own, Some(observer)));
        let done = running.into_iter().map(|part| part.join().expect("`check` returns its errors"));
        own.chain(done).collect()
    });
    Ok(parts?.into_iter().flatten().collect())
}

/// Reader of local headers, which lie between the data, without touching mapped pages.
pub(crate) struct LocalHeaders<'f> {
    file: &'f dyn Source,
    /// Bytes of the file from `start` on, since the headers of small entries are close together.
    block: Vec<u8>,
    start: u64,
}

impl<'f> LocalHeaders<'f> {
    /// Number of bytes per read, if headers are close together and if they are not.
    const BLOCK_LEN: usize = 4 << 10;
    const SINGLE_LEN: usize = 160;

    pub(crate) fn new(file: &'f dyn Source) -> Self {
        Self { file, block: Vec::new(), start: 0 }
    }

    /// Reads the local header at `offset`; `name` returns the entry's name for errors.
    pub(crate) fn at(&mut self, offset: u64, name: &dyn Fn() -> String) -> byte_source::Result<Header<'_>> {
        let none = || Error::NoLocal { name: name(), offset };
        let span = Header::local_span(self.bytes(offset, Header::LOCAL_MIN)?).ok_or_else(none)?;
        Ok(Header::local(self.bytes(offset, span)?).ok_or_else(none)?)
    }

    /// Returns bytes from `offset` on: at least `len` bytes, unless the file ends earlier.
    pub(crate) fn bytes(&mut self, offset: u64, len: usize) -> byte_source::Result<&[u8]> {
        let from = |start: u64| offset.checked_sub(start).and_then(|from| usize::try_from(from).ok());
        let has = |from: usize| self.block.get(from..).is_some_and(|rest| rest.len() >= len);
        if !from(self.start).is_some_and(has) {
            let close = from(self.start).is_some_and(|from| from < Self::BLOCK_LEN);
            self.block.resize(len.max(if close { Self::BLOCK_LEN } else { Self::SINGLE_LEN }), 0);
            self.start = offset;
            let left = usize::try_from(self.file.len().saturating_sub(offset)).unwrap_or(usize::MAX);
            self.block.truncate(left);
            self.file.read_at(&mut self.block, offset)?;
        }
        Ok(from(self.start).and_then(|from| self.block.get(from..)).unwrap_or_default())
    }
}

/// Reads the entry of a central header, and compares its local header.
fn read_entry(locals: &mut LocalHeaders<'_>, central: &Header<'_>, limit: u64) -> byte_source::Result<Entry> {
    let offset = local_offset(central, limit)?;
    Ok(entry_from_headers(central, &locals.at(offset, &|| central.display_name())?, limit)?)
}

fn reject_overlaps(entries: &[Entry]) -> Result<()> {
    let mut by_offset: Vec<&Entry> = entries.iter().collect();
    // Most directories list the entries in the order of their offsets, and a stable sort is fast on sorted input.
    by_offset.sort_by_key(|entry| entry.header_offset);
    for pair in by_offset.windows(2) {
        if let [first, second] = pair
            && first.data.end > second.header_offset
        {
            return Err(Error::Overlap {
                first: first.name.clone(),
                second: second.name.clone(),
                offset: second.header_offset,
            });
        }
    }
    Ok(())
}

fn reject_duplicates(entries: &[Entry]) -> Result<()> {
    // Names with different hashes are different. The hashes take a sixth of the memory of a map of the names.
    let state = RandomState::default();
    let mut hashes: Vec<u64> = entries.iter().map(|entry| state.hash_one(&entry.name)).collect();
    hashes.sort_unstable();
    if !hashes.windows(2).any(|pair| pair.first() == pair.last()) {
        return Ok(());
    }
    let mut offsets: HashMap<&str, u64> = HashMap::with_capacity(entries.len());
    for entry in entries {
        if let Some(other) = offsets.insert(&entry.name, entry.header_offset) {
            let (first, second) = (other.min(entry.header_offset), other.max(entry.header_offset));
            return Err(Error::Duplicate { name: entry.name.clone(), first, second });
        }
    }
    Ok(())
}

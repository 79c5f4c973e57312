//! The central directory, compared with every local header.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};
use mapped::Source;

use crate::lazy::{LazyHeaders, TailBytes};
use crate::record::{End, Header, Method, Tail};
use crate::{Error, Result};

/// One file in the zip file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The path inside the archive.
    pub name: String,
    /// How the data are compressed.
    pub method: Method,
    /// The range of the stored (possibly compressed) data, in bytes from the file's start.
    pub data: Range<u64>,
    /// Bytes of the decompressed data.
    pub len: u64,
    /// The CRC-32 of the decompressed data, from the directory.
    pub crc: u32,
    /// Where the local header starts.
    pub header_offset: u64,
    /// Whether it is a symbolic link; its data are then the path that it leads to.
    pub link: bool,
}

impl Entry {
    /// Bytes of the stored data.
    pub fn stored_len(&self) -> u64 {
        self.data.end.saturating_sub(self.data.start)
    }

    /// The stored data in `archive`, all bytes of the file; empty if they are not in it.
    pub fn stored<'b>(&self, archive: &'b [u8]) -> &'b [u8] {
        mapped::part(archive, &self.data).unwrap_or_default()
    }
}

/// All entries of a zip file, in the directory's order.
#[derive(Clone, Debug)]
pub struct Index {
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Index {
    /// Reads the directory of `file` and every local header.
    ///
    /// # Errors
    /// When a record is missing, is outside the file, or disagrees with another one; when entries
    /// overlap, share a name, have two names or sizes, or are encrypted.
    pub fn read(file: &dyn Source) -> Result<Self> {
        let directory = Directory::new(in_memory(file)?.into())?;
        let entries = checked(file, &directory)?;
        file.release(0..file.len());
        Self::new(entries, &directory)
    }

    /// Reads the directory of `file` alone. The local header of an entry is read and compared when bytes of the entry are
    /// read from the returned source: the ranges of the entries are ranges of that source.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for local headers, and when the directory has more than 1 GiB.
    pub fn read_directory(file: &Arc<dyn Source>) -> Result<(Self, Arc<dyn Source>)> {
        let bytes = TailBytes::read(&**file)?;
        let directory = Directory::new(bytes.tail())?;
        let entries = directory.lines().map(|line| unlocated(&line?.1, directory.start));
        let index = Self::new(entries.collect::<Result<_>>()?, &directory)?;
        let lines = directory.lines().map(|line| Ok(line?.0)).collect::<Result<Vec<_>>>()?;
        let source = LazyHeaders::new(Arc::clone(file), &index.entries, &lines, directory.start, bytes);
        Ok((index, Arc::new(source)))
    }

    fn new(entries: Vec<Entry>, directory: &Directory<'_>) -> Result<Self> {
        directory.check_end()?;
        reject_overlaps(&entries)?;
        reject_duplicates(&entries)?;
        Ok(Self { entries })
    }

    /// Whether the directory of `file` lists all of these names. The local headers, which take most of the time, are
    /// not read. `None` if the directory cannot be read.
    pub fn lists(file: &dyn Source, names: &[&str]) -> Option<bool> {
        let bytes = Tail::from(file.in_memory()?);
        let end = End::read(bytes).ok()?;
        let (mut offset, mut missing) = (end.directory_offset, names.to_vec());
        while offset < end.offset && !missing.is_empty() {
            let line = Header::central(bytes, offset).ok()?;
            missing.retain(|name| name.as_bytes() != line.name);
            offset = offset.saturating_add(line.span);
        }
        Some(missing.is_empty())
    }

    /// The entry called `name`.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// All bytes of the file.
pub(crate) fn in_memory(file: &dyn Source) -> Result<&[u8]> {
    file.in_memory().ok_or(Error::NotInMemory)
}

/// The lines of a directory.
struct Directory<'b> {
    bytes: Tail<'b>,
    /// Where the first line starts, and with it the end of all data.
    start: u64,
    parts: Vec<Part>,
    /// Where the last line ends.
    offset: u64,
    end: End,
}

/// Some lines of the directory, one after the other.
struct Part {
    /// Where the first one starts.
    start: u64,
    lines: usize,
}

impl Part {
    /// Reading this many headers takes less time than starting a thread.
    const LINES: usize = 4096;
}

impl<'b> Directory<'b> {
    fn new(bytes: Tail<'b>) -> Result<Self> {
        let end = End::read(bytes)?;
        let start = end.directory_offset;
        if start.checked_add(end.directory_len) != Some(end.offset) {
            let found = start.saturating_add(end.directory_len);
            return Err(end.disagreement("the end of the directory", end.offset, found));
        }
        let mut offset = start;
        let mut parts: Vec<Part> = Vec::new();
        while offset < end.offset {
            match parts.last_mut() {
                Some(part) if part.lines < Part::LINES => part.lines = part.lines.saturating_add(1),
                _ => parts.push(Part { start: offset, lines: 1 }),
            }
            offset = offset.saturating_add(Header::central_span(bytes, offset)?);
        }
        Ok(Self { bytes, start, parts, offset, end })
    }

    /// Compares the lines with the end record.
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

    /// The lines in the directory's order, and where each starts.
    fn lines(&self) -> impl Iterator<Item = Result<(u64, Header<'b>)>> {
        self.parts.iter().flat_map(|part| part.lines(self.bytes))
    }
}

impl Part {
    fn lines<'b>(&self, bytes: Tail<'b>) -> impl Iterator<Item = Result<(u64, Header<'b>)>> + use<'b> {
        let mut next = self.start;
        (0..self.lines).map(move |_| {
            let (offset, line) = (next, Header::central(bytes, next)?);
            next = next.saturating_add(line.span);
            Ok((offset, line))
        })
    }
}

/// The entries of the directory's lines, each compared with its local header.
fn checked(file: &dyn Source, directory: &Directory<'_>) -> Result<Vec<Entry>> {
    let Directory { bytes, start: limit, parts, .. } = directory;
    let check = |parts: &[Part]| -> Result<Vec<Entry>> {
        let mut locals = LocalHeaders::new(file);
        let mut entries = Vec::with_capacity(parts.iter().map(|part| part.lines).sum());
        for line in parts.iter().flat_map(|part| part.lines(*bytes)) {
            entries.push(entry(&mut locals, &line?.1, *limit)?);
        }
        Ok(entries)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = parts.len().div_ceil(threads).max(1);
    if parts.len() <= share {
        return check(parts);
    }
    let parts: Result<Vec<Vec<Entry>>> = std::thread::scope(|scope| {
        let running: Vec<_> = parts.chunks(share).map(|part| scope.spawn(move || check(part))).collect();
        // In the directory's order, so that the first error is always the same.
        let done = running.into_iter().map(|part| part.join().expect("`check` returns its errors"));
        done.collect()
    });
    Ok(parts?.into_iter().flatten().collect())
}

/// Reads local headers, which are between the data, without mapping their pages.
pub(crate) struct LocalHeaders<'f> {
    file: &'f dyn Source,
    /// Bytes of the file from `start` on: the headers of small entries are close together.
    block: Vec<u8>,
    start: u64,
}

impl<'f> LocalHeaders<'f> {
    /// How many bytes are read at once where headers are close together, and where they are not.
    const BLOCK: usize = 4 << 10;
    const ALONE: usize = 160;

    pub(crate) fn new(file: &'f dyn Source) -> Self {
        Self { file, block: Vec::new(), start: 0 }
    }

    /// The local header at `offset`, of the entry called `name`.
    pub(crate) fn at(&mut self, offset: u64, name: &dyn Fn() -> String) -> Result<Header<'_>> {
        let none = || Error::NoLocal { name: name(), offset };
        let span = Header::local_span(self.bytes(offset, Header::LOCAL_MIN)?).ok_or_else(none)?;
        Header::local(self.bytes(offset, span)?).ok_or_else(none)
    }

    /// Bytes from `offset` on: at least `len` of them, if the file is long enough.
    pub(crate) fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let from = |start: u64| offset.checked_sub(start).and_then(|from| usize::try_from(from).ok());
        let has = |from: usize| self.block.get(from..).is_some_and(|rest| rest.len() >= len);
        if !from(self.start).is_some_and(has) {
            let close = from(self.start).is_some_and(|from| from < Self::BLOCK);
            self.block.resize(len.max(if close { Self::BLOCK } else { Self::ALONE }), 0);
            self.start = offset;
            let left = usize::try_from(self.file.len().saturating_sub(offset)).unwrap_or(usize::MAX);
            self.block.truncate(left);
            let read = self.file.read_at(&mut self.block, offset);
            read.map_err(|reason| Error::Unread { offset, reason: reason.to_string() })?;
        }
        Ok(from(self.start).and_then(|from| self.block.get(from..)).unwrap_or_default())
    }
}

/// One entry, its local header compared with its line in the directory.
fn entry(locals: &mut LocalHeaders<'_>, central: &Header<'_>, limit: u64) -> Result<Entry> {
    let offset = within(central, limit)?;
    compared(central, &locals.at(offset, &|| central.display_name())?, limit)
}

/// Where an entry's local header starts.
fn within(central: &Header<'_>, limit: u64) -> Result<u64> {
    let offset = central.local_offset;
    if offset >= limit {
        return Err(Error::PastEnd { name: central.display_name(), end: offset, limit });
    }
    Ok(offset)
}

/// The entry that both headers describe.
pub(crate) fn compared(central: &Header<'_>, local: &Header<'_>, limit: u64) -> Result<Entry> {
    agree(central, local)?;
    placed(central, central.local_offset.saturating_add(local.span), limit)
}

/// The entry of a line whose local header was not read. Its data start at the first byte where they can start, because the
/// length of the local header's extra field is not in the directory.
fn unlocated(central: &Header<'_>, limit: u64) -> Result<Entry> {
    let span = (Header::LOCAL_MIN as u64).saturating_add(central.name.len() as u64);
    let start = within(central, limit)?.saturating_add(span);
    usable(central, central)?;
    placed(central, start, limit)
}

/// Compares a local header with the line in the directory.
pub(crate) fn agree(central: &Header<'_>, local: &Header<'_>) -> Result<()> {
    let (name, offset) = (|| central.display_name(), central.local_offset);
    if local.name != central.name {
        return Err(Error::Renamed { central: name(), local: local.display_name(), offset });
    }
    usable(central, local)?;
    let numbers = [
        ("the compression method", u64::from(central.method), u64::from(local.method)),
        ("the CRC-32", central.crc, local.crc),
        ("the compressed size", central.compressed_len, local.compressed_len),
        ("the size", central.len, local.len),
    ];
    // With bit 3 the local header has only the method.
    let compared = if local.has_descriptor() { 1 } else { numbers.len() };
    for (what, central, local) in numbers.into_iter().take(compared) {
        if central != local {
            return Err(Error::Local { name: name(), what, central, local, offset });
        }
    }
    Ok(())
}

/// Rejects what other readers may see differently, in both headers of an entry.
fn usable(central: &Header<'_>, local: &Header<'_>) -> Result<()> {
    let name = || central.display_name();
    if central.is_encrypted() || local.is_encrypted() {
        return Err(Error::Encrypted { name: name() });
    }
    for header in [central, local] {
        if header.is_patch() {
            return Err(Error::Patch { name: name() });
        }
        if header.has_zip64_twice() {
            return Err(Error::TwoZip64 { name: name() });
        }
        if let Some(other) = header.other_name() {
            let other = String::from_utf8_lossy(other).into_owned();
            return Err(Error::TwoNames { name: name(), other });
        }
    }
    Ok(())
}

/// The entry whose data start at `start`.
fn placed(central: &Header<'_>, start: u64, limit: u64) -> Result<Entry> {
    let (name, offset) = (|| central.display_name(), central.local_offset);
    let method = Method::from(central.method);
    if method == Method::Stored && central.compressed_len != central.len {
        let (central, local) = (central.len, central.compressed_len);
        return Err(Error::Local { name: name(), what: "the size of stored data", central, local, offset });
    }
    let end = start.saturating_add(central.compressed_len);
    if end > limit {
        return Err(Error::PastEnd { name: name(), end, limit });
    }
    let entry = Entry {
        name: name(),
        method,
        data: start..end,
        len: central.len,
        crc: u32::try_from(central.crc).unwrap_or_default(),
        header_offset: offset,
        link: central.is_link(),
    };
    if leads_out(&entry.name) {
        return Err(Error::Path { name: name() });
    }
    Ok(entry)
}

/// Whether a path would leave the folder that the archive is unpacked into.
pub(crate) fn leads_out(name: &str) -> bool {
    name.starts_with('/') || name.split(['/', '\\']).any(|part| part == "..")
}

fn reject_overlaps(entries: &[Entry]) -> Result<()> {
    let mut by_offset: Vec<&Entry> = entries.iter().collect();
    // Writers list the entries as they wrote them, which this sort notices.
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
    // Names whose hashes differ are different. The hashes take a sixth of the memory of a map of the names.
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

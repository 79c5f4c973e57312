//! The directory, checked.

use std::ops::Range;

use mapped::MappedFile;

use crate::record::{End, Header, Method};
use crate::{Error, Result};

/// Local headers lie between the data, each on pages of its own. After so many of them their pages are
/// given back: where the page cache holds huge pages, each header maps 2 MiB.
const RELEASE_AFTER: usize = 16;

/// One file in the zip file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The path inside the archive.
    pub name: String,
    /// How the data are compressed.
    pub method: Method,
    /// Where the data lie, compressed as they are, in bytes from the file's start.
    pub data: Range<usize>,
    /// Bytes of the data once they are decompressed.
    pub len: u64,
    /// The CRC-32 of the decompressed data, as the directory has it.
    pub crc: u32,
    /// Where the local header starts.
    pub header_offset: u64,
    /// Whether it is a symbolic link, its data the path that the link leads to.
    pub link: bool,
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
    /// When a record is missing, lies outside the file, or says something else than another one; when
    /// entries overlap, share a name, or are encrypted.
    pub fn read(file: &MappedFile) -> Result<Self> {
        let bytes = file.bytes();
        let end = End::read(bytes)?;
        let limit = end.directory_offset;
        if limit.checked_add(end.directory_len) != Some(end.offset) {
            return Err(Error::Disagreement {
                what: "the end of the directory",
                expected: end.offset,
                found: limit.saturating_add(end.directory_len),
                offset: end.offset,
            });
        }
        let mut entries = Vec::new();
        let mut offset = limit;
        while offset < end.offset {
            let central = Header::central(bytes, offset)?;
            entries.push(entry(bytes, &central, limit)?);
            offset = offset.saturating_add(central.span);
            if entries.len().is_multiple_of(RELEASE_AFTER) {
                file.release(0..bytes.len());
            }
        }
        file.release(0..bytes.len());
        for (what, expected, found) in [
            ("the number of entries", end.entries, entries.len() as u64),
            ("the end of the directory", end.offset, offset),
        ] {
            if expected != found {
                return Err(Error::Disagreement { what, expected, found, offset: end.offset });
            }
        }
        refuse_overlaps(&entries)?;
        refuse_duplicates(&entries)?;
        Ok(Self { entries })
    }

    /// The entry called `name`.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// One entry, its local header compared with its line in the directory.
fn entry(bytes: &[u8], central: &Header<'_>, limit: u64) -> Result<Entry> {
    let name = || central.display_name();
    let offset = central.local_offset;
    if offset >= limit {
        return Err(Error::PastEnd { name: name(), end: offset, limit });
    }
    let local = Header::local(bytes, offset)?;
    if local.name != central.name {
        return Err(Error::Renamed { central: name(), local: local.display_name(), offset });
    }
    if central.is_encrypted() || local.is_encrypted() {
        return Err(Error::Encrypted { name: name() });
    }
    let numbers = [
        ("the compression method", u64::from(central.method), u64::from(local.method)),
        ("the CRC-32", central.crc, local.crc),
        ("the compressed size", central.compressed_len, local.compressed_len),
        ("the size", central.len, local.len),
    ];
    // With bit 3 only the method stands in the local header.
    let compared = if local.has_descriptor() { 1 } else { numbers.len() };
    for (what, central, local) in numbers.into_iter().take(compared) {
        if central != local {
            return Err(Error::Local { name: name(), what, central, local, offset });
        }
    }
    let method = Method::from(central.method);
    if method == Method::Stored && central.compressed_len != central.len {
        let (central, local) = (central.len, central.compressed_len);
        return Err(Error::Local { name: name(), what: "the size of stored data", central, local, offset });
    }
    let start = offset.saturating_add(local.span);
    let end = start.saturating_add(central.compressed_len);
    if end > limit {
        return Err(Error::PastEnd { name: name(), end, limit });
    }
    // `end` is inside the mapped file, so both fit.
    let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let entry = Entry {
        name: central.display_name(),
        method,
        data: at(start)..at(end),
        len: central.len,
        crc: u32::try_from(central.crc).unwrap_or_default(),
        header_offset: offset,
        link: central.link,
    };
    if leads_out(&entry.name) {
        return Err(Error::Path { name: name() });
    }
    Ok(entry)
}

/// Whether a path would leave the folder that the archive is unpacked into.
fn leads_out(name: &str) -> bool {
    name.starts_with('/') || name.split(['/', '\\']).any(|part| part == "..")
}

fn refuse_overlaps(entries: &[Entry]) -> Result<()> {
    let mut by_offset: Vec<&Entry> = entries.iter().collect();
    by_offset.sort_by_key(|entry| entry.header_offset);
    for pair in by_offset.windows(2) {
        if let [first, second] = pair
            && first.data.end as u64 > second.header_offset
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

fn refuse_duplicates(entries: &[Entry]) -> Result<()> {
    let mut by_name: Vec<&Entry> = entries.iter().collect();
    by_name.sort_by(|a, b| a.name.cmp(&b.name).then(a.header_offset.cmp(&b.header_offset)));
    for pair in by_name.windows(2) {
        if let [first, second] = pair
            && first.name == second.name
        {
            return Err(Error::Duplicate {
                name: first.name.clone(),
                first: first.header_offset,
                second: second.header_offset,
            });
        }
    }
    Ok(())
}

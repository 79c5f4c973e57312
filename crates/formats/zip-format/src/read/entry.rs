//! Entry of a zip file, from its central header and its local header.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

use std::ops::Range;

use crate::CompressionMethod;
use crate::read::record::Header;
use crate::{Error, Result};

/// One file inside a zip file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Path inside the archive.
    pub name: String,
    pub method: CompressionMethod,
    /// Byte range of the stored (possibly compressed) data, from the start of the file.
    pub data: Range<u64>,
    /// Length of the decompressed data in bytes.
    pub len: u64,
    /// CRC-32 of the decompressed data, from the directory.
    pub crc: u32,
    /// Byte offset of the local header.
    pub header_offset: u64,
    /// True if the entry is a symbolic link; its data are then the path of the target.
    pub is_link: bool,
}

impl Entry {
    /// Returns the length of the stored data in bytes.
    pub fn stored_len(&self) -> u64 {
        self.data.end.saturating_sub(self.data.start)
    }

    /// Returns the stored data as a slice of `archive`, the whole file; empty if they are outside of it.
    pub fn stored<'b>(&self, archive: &'b [u8]) -> &'b [u8] {
        byte_source::slice_range(archive, &self.data).unwrap_or_default()
    }
}

/// Returns the offset of an entry's local header. Fails if it is at or after `limit`, the start of the directory.
pub(crate) fn local_offset(central: &Header<'_>, limit: u64) -> Result<u64> {
    let offset = central.local_offset;
    if offset >= limit {
        return Err(Error::PastEnd { name: central.display_name(), end: offset, limit });
    }
    Ok(offset)
}

/// Returns the entry that both headers describe. Fails if they disagree.
pub(crate) fn entry_from_headers(central: &Header<'_>, local: &Header<'_>, limit: u64) -> Result<Entry> {
    compare_headers(central, local)?;
    entry_with_data_at(central, central.local_offset.saturating_add(local.span), limit)
}

/// Returns the entry of a central header whose local header was not read. The data range starts at the smallest
/// possible offset, because the directory does not contain the length of the local header's extra field.
pub(crate) fn entry_from_central(central: &Header<'_>, limit: u64) -> Result<Entry> {
    let span = (Header::LOCAL_MIN as u64).saturating_add(central.name.len() as u64);
    let start = local_offset(central, limit)?.saturating_add(span);
    reject_ambiguous(central, central)?;
    entry_with_data_at(central, start, limit)
}

pub(crate) fn compare_headers(central: &Header<'_>, local: &Header<'_>) -> Result<()> {
    let (name, offset) = (|| central.display_name(), central.local_offset);
    if local.name != central.name {
        return Err(Error::NameMismatch { central: name(), local: local.display_name(), offset });
    }
    reject_ambiguous(central, local)?;
    let numbers = [
        ("the compression method", u64::from(central.method), u64::from(local.method)),
        ("the CRC-32", central.crc, local.crc),
        ("the compressed size", central.compressed_len, local.compressed_len),
        ("the size", central.len, local.len),
    ];
    // With flag bit 3 (data descriptor), only the method is in the local header.
    let compared = if local.has_descriptor() { 1 } else { numbers.len() };
    for (what, central, local) in numbers.into_iter().take(compared) {
        if central != local {
            return Err(Error::HeaderMismatch { name: name(), what, central, local, offset });
        }
    }
    Ok(())
}

/// Rejects entries that other readers may interpret differently, from both headers of an entry.
fn reject_ambiguous(central: &Header<'_>, local: &Header<'_>) -> Result<()> {
    let name = || central.display_name();
    if central.is_encrypted() || local.is_encrypted() {
        return Err(Error::Encrypted { name: name() });
    }
    for header in [central, local] {
        if header.is_patch() {
            return Err(Error::Patch { name: name() });
        }
        if header.has_duplicate_zip64() {
            return Err(Error::DuplicateZip64 { name: name() });
        }
        if let Some(other) = header.conflicting_unicode_name() {
            let other = String::from_utf8_lossy(other).into_owned();
            return Err(Error::SecondName { name: name(), other });
        }
    }
    Ok(())
}

/// Returns the entry of a central header whose data start at `start`. Fails if the data end after `limit`.
fn entry_with_data_at(central: &Header<'_>, start: u64, limit: u64) -> Result<Entry> {
    let (name, offset) = (|| central.display_name(), central.local_offset);
    let method = CompressionMethod::from(central.method);
    if method == CompressionMethod::Stored && central.compressed_len != central.len {
        let (central, local) = (central.len, central.compressed_len);
        return Err(Error::HeaderMismatch {
            name: name(),
            what: "the size of stored data",
            central,
            local,
            offset,
        });
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
        is_link: central.is_link(),
    };
    if escapes_folder(&entry.name) {
        return Err(Error::UnsafePath { name: name() });
    }
    Ok(entry)
}

/// Returns true if a path would leave the folder into which the archive is unpacked.
pub(crate) fn escapes_folder(name: &str) -> bool {
    name.starts_with('/') || name.contains('.') && name.split(['/', '\\']).any(|part| part == "..")
}

//! Flaws that readers of zip files do not check: bytes that belong to no entry, and fields that are never compared.
//!
//! [`ZipIndex::read`](crate::ZipIndex::read) checks all fields that determine an entry's bytes. Other fields can be wrong
//! without consequences, but then the file is not as its author wrote it.
//!
//! Sources: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5; Info-ZIP's `proginfo/extrafld.txt`.

use byte_source::Source;

use crate::read::index::LocalHeaders;
use crate::read::lazy::TailBytes;
use crate::read::record::{EndRecords, ExtraFields, FOLDER, FULL_32, Header, LINK, REGULAR, ZIP64};

/// Flags that an entry may have: two for Deflate's level, the data descriptor, and the name in UTF-8.
const KNOWN_FLAGS: u16 = 1 << 1 | 1 << 2 | FLAG_DESCRIPTOR | FLAG_UTF8;
const FLAG_DESCRIPTOR: u16 = 1 << 3;
const FLAG_UTF8: u16 = 1 << 11;
/// Newest version of the zip format, 6.3.
const ZIP_VERSION_MAX: u16 = 63;
/// Id of PyTorch's padding field, `FB`.
const PADDING: u16 = u16::from_le_bytes(*b"FB");
/// Ids of extra fields with times and owners, and padding: NTFS, Info-ZIP (three), Android (two).
const KNOWN_EXTRA_IDS: &[u16] = &[0x000a, 0x5455, 0x7855, 0x7875, 0xd935, 0xa11e];
/// Systems whose external attributes are Unix modes: Unix and macOS.
const UNIX_SYSTEMS: &[u16] = &[3, 19];
/// Accepted DOS attributes of files and folders: read-only, folder, archive.
const DOS_ATTRIBUTES: u64 = 0x01 | 0x10 | 0x20;
/// Set-user-id, set-group-id and sticky bits of a Unix mode.
const SPECIAL_MODE_BITS: u64 = 0o7000;

/// A flaw that [`ZipIndex::read`](crate::ZipIndex::read) accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The local header and the directory disagree on a field that does not affect the data.
    #[error("entry `{}`: {what} is {local} in its local header and {central} in the directory", name.escape_debug())]
    Local {
        name: String,
        /// Description of the field in question.
        what: &'static str,
        /// Value in the local header.
        local: u64,
        /// Value in the directory.
        central: u64,
    },
    /// A field has an undefined value.
    #[error("entry `{}`: {what} is 0x{found:x}, expected {expected}", name.escape_debug())]
    Field {
        name: String,
        /// Description of the field in question.
        what: &'static str,
        /// Value of the field.
        found: u64,
        /// Description of the valid values.
        expected: &'static str,
    },
    /// A data descriptor disagrees with the directory.
    #[error("entry `{}`: its data descriptor does not match CRC-32 {crc:08x} and sizes {packed} and {len}", name.escape_debug())]
    Descriptor {
        name: String,
        /// CRC-32 in the directory.
        crc: u32,
        /// Length of the stored data in bytes, from the directory.
        packed: u64,
        /// Length of the decompressed data in bytes, from the directory.
        len: u64,
    },
    /// An extra field is truncated.
    #[error("entry `{}`: the extra field in {place} is cut short", name.escape_debug())]
    ExtraCut {
        name: String,
        /// The header with the extra field: `its local header` or `the directory`.
        place: &'static str,
    },
    /// An extra field has an unknown id.
    #[error("entry `{}`: the extra field 0x{id:04x} in {place} is of an unknown kind", name.escape_debug())]
    Extra {
        name: String,
        /// The header with the extra field: `its local header` or `the directory`.
        place: &'static str,
        /// Id of the extra field.
        id: u16,
    },
    /// A padding field has bytes other than `Z`.
    #[error("entry `{}`: the padding in {place} is not all `Z`", name.escape_debug())]
    Padding {
        name: String,
        /// The header with the extra field: `its local header` or `the directory`.
        place: &'static str,
    },
    /// Bytes between entries belong to no entry.
    #[error("{len} bytes at offset 0x{offset:x} belong to no entry, after {}", after.as_ref().map_or_else(|| "the start of the file".to_owned(), |name| format!("entry `{}`", name.escape_debug())))]
    StrayBytes {
        /// Name of the entry before the gap.
        after: Option<String>,
        /// Byte offset of the gap from the start of the file.
        offset: u64,
        /// Length of the gap in bytes.
        len: u64,
    },
    /// The end records count more than one disk.
    #[error("the end of the directory counts entries on other disks")]
    Disks,
}

impl Flaw {
    /// Returns the name of the entry with the flaw.
    pub fn entry(&self) -> Option<&str> {
        match self {
            Self::Local { name, .. }
            | Self::Field { name, .. }
            | Self::Descriptor { name, .. }
            | Self::ExtraCut { name, .. }
            | Self::Extra { name, .. }
            | Self::Padding { name, .. }
            | Self::StrayBytes { after: Some(name), .. } => Some(name),
            Self::StrayBytes { after: None, .. } | Self::Disks => None,
        }
    }
}

/// Returns all flaws of `file`, which [`ZipIndex::read`](crate::ZipIndex::read) must accept.
///
/// Not checked: times and dates, except that both headers agree; comments; the contents of extra fields with times and
/// owners; permissions; the writing program.
///
/// # Errors
/// Returns an error if a record is missing or is outside the file.
pub fn flaws(file: &dyn Source) -> byte_source::Result<Vec<Flaw>> {
    let read = TailBytes::of(file)?;
    let bytes = read.tail();
    let end = EndRecords::read(bytes)?;
    let mut found = Vec::new();
    if !end.one_disk {
        found.push(Flaw::Disks);
    }
    let mut spans = Vec::new();
    let mut locals = LocalHeaders::new(file);
    let mut offset = end.directory_offset;
    while offset < end.offset {
        let central = Header::central(bytes, offset)?;
        let name = central.display_name();
        let start = central.local_offset;
        let local = locals.at(start, &|| name.clone())?;
        header_flaws(&name, &local, &central, &mut found);
        let data_end = start.saturating_add(local.span).saturating_add(central.compressed_len);
        spans.push(EntrySpan {
            start,
            data_end,
            has_descriptor: local.has_descriptor(),
            listed: DirectoryFields::from_header(&central),
            name,
        });
        offset = offset.saturating_add(central.span);
    }
    file.release(0..file.len());
    spans.sort_unstable_by_key(|span| span.start);
    let starts = spans.iter().map(|span| span.start).skip(1).chain([end.directory_offset]);
    let first = spans.first().map_or(end.directory_offset, |span| span.start);
    if first > 0 {
        found.push(Flaw::StrayBytes { after: None, offset: 0, len: first });
    }
    for (span, next) in spans.iter().zip(starts) {
        let (name, len) = (span.name.clone(), next.saturating_sub(span.data_end));
        if span.has_descriptor {
            // The longest data descriptor has a signature, a CRC-32 and two 64-bit sizes: 24 bytes.
            let descriptor_len = usize::try_from(len).ok().filter(|len| *len <= 24);
            let is_kept = match descriptor_len {
                Some(len) => {
                    let bytes = locals.bytes(span.data_end, len)?;
                    bytes.get(..len).is_some_and(|bytes| span.listed.is_descriptor(bytes))
                }
                None => false,
            };
            if !is_kept {
                let DirectoryFields { crc, packed, len } = span.listed;
                found.push(Flaw::Descriptor { name, crc, packed, len });
            }
        } else if len > 0 {
            found.push(Flaw::StrayBytes { after: Some(name), offset: span.data_end, len });
        }
    }
    Ok(found)
}

/// Byte range of an entry in the file, and the directory's fields for its data.
struct EntrySpan {
    start: u64,
    data_end: u64,
    has_descriptor: bool,
    listed: DirectoryFields,
    name: String,
}

/// CRC-32 and lengths of an entry's data in the directory.
#[derive(Clone, Copy)]
struct DirectoryFields {
    crc: u32,
    packed: u64,
    len: u64,
}

impl DirectoryFields {
    fn from_header(central: &Header<'_>) -> Self {
        let crc = u32::try_from(central.crc).unwrap_or_default();
        Self { crc, packed: central.compressed_len, len: central.len }
    }

    /// Returns true if `bytes` are the matching data descriptor, in one of its four forms.
    fn is_descriptor(self, bytes: &[u8]) -> bool {
        let fields = bytes.strip_prefix(b"PK\x07\x08").unwrap_or(bytes);
        let crc = self.crc.to_le_bytes();
        let (packed, len) = (self.packed.to_le_bytes(), self.len.to_le_bytes());
        let wide = [&crc[..], &packed, &len].concat();
        let narrow = [&crc[..], &packed[..4], &len[..4]].concat();
        fields == wide || (fields == narrow && self.packed.max(self.len) <= FULL_32)
    }
}

fn header_flaws(name: &str, local: &Header<'_>, central: &Header<'_>, found: &mut Vec<Flaw>) {
    let same = [
        ("the version needed", u64::from(local.version), u64::from(central.version)),
        ("the flags", u64::from(local.flags), u64::from(central.flags)),
        ("the time", local.time, central.time),
    ];
    for (what, local, central) in same {
        if local != central {
            found.push(Flaw::Local { name: name.to_owned(), what, local, central });
        }
    }
    let numbers = [
        ("the CRC-32", local.crc, central.crc),
        ("the compressed size", local.compressed_len, central.compressed_len),
        ("the size", local.len, central.len),
    ];
    // With a data descriptor these fields are zero, because the writer does not know their values in advance.
    let unknown = local.has_descriptor() && numbers.iter().filter(|(_, local, _)| *local == 0).count() > 1;
    for (what, local, central) in numbers {
        if local != if unknown { 0 } else { central } {
            found.push(Flaw::Local { name: name.to_owned(), what, local, central });
        }
    }
    let mut field = |is_right: bool, what, found_value: u64, expected| {
        if !is_right {
            found.push(Flaw::Field { name: name.to_owned(), what, found: found_value, expected });
        }
    };
    let flags = central.flags;
    field(flags & !KNOWN_FLAGS == 0, "the flags", flags.into(), "only 0x2, 0x4, 0x8 or 0x800");
    let is_plain = central.name.is_ascii() || flags & FLAG_UTF8 != 0;
    field(is_plain, "the flags", flags.into(), "0x800 set, because the name is not ASCII");
    let version = u64::from(central.version);
    field(central.version <= ZIP_VERSION_MAX, "the version needed", version, "at most 0x3f");
    field(central.disk == 0, "the disk", central.disk.into(), "0x0");
    field(
        central.internal_attributes <= 1,
        "the internal attributes",
        central.internal_attributes.into(),
        "0x0 or 0x1",
    );
    let is_unix = UNIX_SYSTEMS.contains(&(central.version_made_by >> 8));
    let expected = "a file, a folder or a link of Unix";
    let known = match central.file_type() {
        0 | REGULAR => true,
        FOLDER => central.name.ends_with(b"/"),
        LINK => is_unix,
        _ => false,
    };
    let special = is_unix && (central.external_attributes >> 16) & SPECIAL_MODE_BITS != 0;
    let dos = central.external_attributes & 0xffff & !DOS_ATTRIBUTES != 0;
    field(known && !special && !dos, "the external attributes", central.external_attributes, expected);
    for (header, place) in [(local, "its local header"), (central, "the directory")] {
        for extra in ExtraFields(header.extra) {
            let name = || name.to_owned();
            match extra {
                None => found.push(Flaw::ExtraCut { name: name(), place }),
                Some((PADDING, data)) if data.iter().all(|byte| *byte == b'Z') => {}
                Some((PADDING, _)) => found.push(Flaw::Padding { name: name(), place }),
                Some((ZIP64, data)) if matches!(data.len(), 8 | 16 | 24) => {}
                Some((id, _)) if KNOWN_EXTRA_IDS.contains(&id) => {}
                Some((id, _)) => found.push(Flaw::Extra { name: name(), place, id }),
            }
        }
    }
}

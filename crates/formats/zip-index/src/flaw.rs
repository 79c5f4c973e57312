//! Flaws that no reader of a zip file checks: bytes that belong to no entry, and fields that are never compared.
//!
//! [`Index::read`](crate::Index::read) checks everything that determines an entry's bytes. The rest can be wrong
//! without consequences, but then the file is not what its author wrote.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5; Info-ZIP's `proginfo/extrafld.txt`.

use byte_source::Source;

use crate::Result;
use crate::index::{LocalHeaders, in_memory};
use crate::record::{End, Extra, FOLDER, FULL_32, Header, LINK, REGULAR, ZIP64};

/// Flags that an entry may have: two for Deflate's level, the data descriptor, the name in UTF-8.
const FLAGS: u16 = 1 << 1 | 1 << 2 | FLAG_DESCRIPTOR | FLAG_UTF8;
const FLAG_DESCRIPTOR: u16 = 1 << 3;
const FLAG_UTF8: u16 = 1 << 11;
/// The newest version of the format, 6.3.
const NEWEST: u16 = 63;
/// `FB` as a number: PyTorch's padding.
const PADDING: u16 = u16::from_le_bytes(*b"FB");
/// Extra fields with times and owners, and padding: NTFS, the two of Info-ZIP, the two of Android.
const HARMLESS: &[u16] = &[0x000a, 0x5455, 0x7855, 0x7875, 0xd935, 0xa11e];
/// The systems whose attributes are Unix modes: Unix and macOS.
const UNIX: &[u16] = &[3, 19];
/// DOS attributes of files and folders: read-only, folder, archive.
const DOS: u64 = 0x01 | 0x10 | 0x20;
/// The set-user-id, set-group-id and sticky bits of a Unix mode.
const SPECIAL: u64 = 0o7000;

/// Something that [`Index::read`](crate::Index::read) accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The local header and the directory disagree on a field without consequences.
    #[error("entry `{}`: {what} is {local} in its local header and {central} in the directory", name.escape_debug())]
    Local {
        /// The entry.
        name: String,
        /// What they disagree on.
        what: &'static str,
        /// The number in the local header.
        local: u64,
        /// The number in the directory.
        central: u64,
    },
    /// A field has an undefined value.
    #[error("entry `{}`: {what} is 0x{found:x}, expected {expected}", name.escape_debug())]
    Field {
        /// The entry.
        name: String,
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What it should be.
        expected: &'static str,
    },
    /// A data descriptor that disagrees with the directory.
    #[error("entry `{}`: its data descriptor does not match CRC-32 {crc:08x} and sizes {packed} and {len}", name.escape_debug())]
    Descriptor {
        /// The entry.
        name: String,
        /// The checksum in the directory.
        crc: u32,
        /// Bytes of the data as stored, in the directory.
        packed: u64,
        /// Bytes of the decompressed data, in the directory.
        len: u64,
    },
    /// An extra field that is cut short.
    #[error("entry `{}`: the extra field in {place} is cut short", name.escape_debug())]
    ExtraCut {
        /// The entry.
        name: String,
        /// Its local header or the directory.
        place: &'static str,
    },
    /// An extra field of an unknown kind.
    #[error("entry `{}`: the extra field 0x{id:04x} in {place} is of an unknown kind", name.escape_debug())]
    Extra {
        /// The entry.
        name: String,
        /// Its local header or the directory.
        place: &'static str,
        /// The field's number.
        id: u16,
    },
    /// Padding that hides something.
    #[error("entry `{}`: the padding in {place} is not all `Z`", name.escape_debug())]
    Padding {
        /// The entry.
        name: String,
        /// Its local header or the directory.
        place: &'static str,
    },
    /// Bytes between entries.
    #[error("{len} bytes at offset 0x{offset:x} belong to no entry, after {}", after.as_ref().map_or_else(|| "the start of the file".to_owned(), |name| format!("entry `{}`", name.escape_debug())))]
    Gap {
        /// The entry before them.
        after: Option<String>,
        /// Where they start, in bytes from the file's start.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// The end records count more than one disk.
    #[error("the end of the directory counts entries on other disks")]
    Disks,
}

impl Flaw {
    /// The entry that the flaw is about.
    pub fn entry(&self) -> Option<&str> {
        match self {
            Self::Local { name, .. }
            | Self::Field { name, .. }
            | Self::Descriptor { name, .. }
            | Self::ExtraCut { name, .. }
            | Self::Extra { name, .. }
            | Self::Padding { name, .. }
            | Self::Gap { after: Some(name), .. } => Some(name),
            Self::Gap { after: None, .. } | Self::Disks => None,
        }
    }
}

/// All flaws of `file`, which [`Index::read`](crate::Index::read) can read.
///
/// Not checked: times and dates, except that header and directory agree; comments; the contents of extra
/// fields with times and owners; permissions; and which program made an entry.
///
/// # Errors
/// When a record is missing or is outside the file.
pub fn flaws(file: &dyn Source) -> Result<Vec<Flaw>> {
    let bytes = in_memory(file)?;
    let end = End::read(bytes.into())?;
    let mut found = Vec::new();
    if !end.one_disk {
        found.push(Flaw::Disks);
    }
    let mut spans = Vec::new();
    let mut locals = LocalHeaders::new(file);
    let mut offset = end.directory_offset;
    while offset < end.offset {
        let central = Header::central(bytes.into(), offset)?;
        let name = central.display_name();
        let start = central.local_offset;
        let local = locals.at(start, &|| name.clone())?;
        headers(&name, &local, &central, &mut found);
        let data_end = start.saturating_add(local.span).saturating_add(central.compressed_len);
        spans.push(Span {
            start,
            data_end,
            has_descriptor: local.has_descriptor(),
            listed: Listed::from_header(&central),
            name,
        });
        offset = offset.saturating_add(central.span);
    }
    file.release(0..file.len());
    spans.sort_unstable_by_key(|span| span.start);
    let starts = spans.iter().map(|span| span.start).skip(1).chain([end.directory_offset]);
    let first = spans.first().map_or(end.directory_offset, |span| span.start);
    if first > 0 {
        found.push(Flaw::Gap { after: None, offset: 0, len: first });
    }
    for (span, next) in spans.iter().zip(starts) {
        let (name, len) = (span.name.clone(), next.saturating_sub(span.data_end));
        if span.has_descriptor {
            // The longest has a signature, a checksum and two sizes of 64 bits.
            let descriptor_len = usize::try_from(len).ok().filter(|len| *len <= 24);
            let is_kept = match descriptor_len {
                Some(len) => {
                    let bytes = locals.bytes(span.data_end, len)?;
                    bytes.get(..len).is_some_and(|bytes| span.listed.is_descriptor(bytes))
                }
                None => false,
            };
            if !is_kept {
                let Listed { crc, packed, len } = span.listed;
                found.push(Flaw::Descriptor { name, crc, packed, len });
            }
        } else if len > 0 {
            found.push(Flaw::Gap { after: Some(name), offset: span.data_end, len });
        }
    }
    Ok(found)
}

/// The range of an entry, in bytes from the file's start, and what the directory lists for it.
struct Span {
    start: u64,
    data_end: u64,
    has_descriptor: bool,
    listed: Listed,
    name: String,
}

/// What the directory lists for an entry's data.
#[derive(Clone, Copy)]
struct Listed {
    crc: u32,
    packed: u64,
    len: u64,
}

impl Listed {
    fn from_header(central: &Header<'_>) -> Self {
        let crc = u32::try_from(central.crc).unwrap_or_default();
        Self { crc, packed: central.compressed_len, len: central.len }
    }

    /// Whether `bytes` are the matching data descriptor, in one of its four forms.
    fn is_descriptor(self, bytes: &[u8]) -> bool {
        let fields = bytes.strip_prefix(b"PK\x07\x08").unwrap_or(bytes);
        let crc = self.crc.to_le_bytes();
        let (packed, len) = (self.packed.to_le_bytes(), self.len.to_le_bytes());
        let wide = [&crc[..], &packed, &len].concat();
        let narrow = [&crc[..], &packed[..4], &len[..4]].concat();
        fields == wide || (fields == narrow && self.packed.max(self.len) <= FULL_32)
    }
}

fn headers(name: &str, local: &Header<'_>, central: &Header<'_>, found: &mut Vec<Flaw>) {
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
    // With a descriptor, these fields are zero because their values are not known yet.
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
    field(flags & !FLAGS == 0, "the flags", flags.into(), "only 0x2, 0x4, 0x8 or 0x800");
    let is_plain = central.name.is_ascii() || flags & FLAG_UTF8 != 0;
    field(is_plain, "the flags", flags.into(), "0x800 set, because the name is not ASCII");
    let version = u64::from(central.version);
    field(central.version <= NEWEST, "the version needed", version, "at most 0x3f");
    field(central.disk == 0, "the disk", central.disk.into(), "0x0");
    field(central.internal <= 1, "the internal attributes", central.internal.into(), "0x0 or 0x1");
    let is_unix = UNIX.contains(&(central.made_by >> 8));
    let expected = "a file, a folder or a link of Unix";
    let known = match central.file_type() {
        0 | REGULAR => true,
        FOLDER => central.name.ends_with(b"/"),
        LINK => is_unix,
        _ => false,
    };
    let special = is_unix && (central.external >> 16) & SPECIAL != 0;
    let dos = central.external & 0xffff & !DOS != 0;
    field(known && !special && !dos, "the external attributes", central.external, expected);
    for (header, place) in [(local, "its local header"), (central, "the directory")] {
        for extra in Extra(header.extra) {
            let name = || name.to_owned();
            match extra {
                None => found.push(Flaw::ExtraCut { name: name(), place }),
                Some((PADDING, data)) if data.iter().all(|byte| *byte == b'Z') => {}
                Some((PADDING, _)) => found.push(Flaw::Padding { name: name(), place }),
                Some((ZIP64, data)) if matches!(data.len(), 8 | 16 | 24) => {}
                Some((id, _)) if HARMLESS.contains(&id) => {}
                Some((id, _)) => found.push(Flaw::Extra { name: name(), place, id }),
            }
        }
    }
}

//! Makes archives byte by byte.

use std::io::Write;
use std::path::Path;

use byte_source::MappedFile;
use tempfile::NamedTempFile;
use zip_format::{Error, Flaw, ZipIndex, flaws};

/// The fields of a local header and of a line of the directory, which has more of them.
#[derive(Clone)]
pub(crate) struct Header {
    pub(crate) made_by: u16,
    pub(crate) version: u16,
    pub(crate) flags: u16,
    pub(crate) time: u32,
    pub(crate) crc: u32,
    pub(crate) packed: u32,
    pub(crate) len: u32,
    pub(crate) disk: u16,
    pub(crate) internal: u16,
    pub(crate) external: u32,
    pub(crate) name: &'static str,
    pub(crate) extra: Vec<u8>,
}

/// One entry: its two headers, its data, and what follows them.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) local: Header,
    pub(crate) central: Header,
    pub(crate) data: &'static [u8],
    pub(crate) after: Vec<u8>,
}

impl Entry {
    /// A stored entry of three bytes.
    pub(crate) fn new(name: &'static str) -> Self {
        let header = Header {
            made_by: 0,
            version: 20,
            flags: 0,
            time: 7,
            crc: 0x1122_3344,
            packed: 3,
            len: 3,
            disk: 0,
            internal: 0,
            external: 0,
            name,
            extra: Vec::new(),
        };
        Self { local: header.clone(), central: header, data: b"123", after: Vec::new() }
    }

    pub(crate) fn with(mut self, change: impl Fn(&mut Header)) -> Self {
        change(&mut self.local);
        change(&mut self.central);
        self
    }

    pub(crate) fn with_local(mut self, change: impl Fn(&mut Header)) -> Self {
        change(&mut self.local);
        self
    }

    pub(crate) fn with_central(mut self, change: impl Fn(&mut Header)) -> Self {
        change(&mut self.central);
        self
    }

    pub(crate) fn followed_by(mut self, after: &[u8]) -> Self {
        self.after = after.to_vec();
        self
    }

    /// An entry whose checksum and sizes follow its data.
    pub(crate) fn streamed(descriptor: &[u8]) -> Self {
        let entry = Self::new("a").with(|header| header.flags = 8);
        let zeros = |header: &mut Header| (header.crc, header.packed, header.len) = (0, 0, 0);
        entry.with_local(zeros).followed_by(descriptor)
    }
}

/// What the end records say.
pub(crate) struct End {
    pub(crate) disk: u16,
    pub(crate) directory_disk: u16,
    pub(crate) here: u16,
    pub(crate) wide: Option<Wide>,
}

/// The zip64 records: two disks and the entries here in the end record, the disk and the number of disks in the locator.
pub(crate) struct Wide {
    pub(crate) disk: u32,
    pub(crate) directory_disk: u32,
    pub(crate) here: u64,
    pub(crate) end_disk: u32,
    pub(crate) disks: u32,
}

pub(crate) const ONE: End = End { disk: 0, directory_disk: 0, here: 1, wide: None };

pub(crate) fn archive(entries: &[Entry], end: &End) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for Entry { local, central, data, after } in entries {
        let offset = u32::try_from(file.len()).expect("it is short");
        file.extend([&b"PK\x03\x04"[..], &fields(local), &lengths(local)].concat());
        file.extend([local.name.as_bytes(), &local.extra, data, after].concat());
        directory.extend([&b"PK\x01\x02"[..], &central.made_by.to_le_bytes(), &fields(central)].concat());
        directory.extend([&lengths(central)[..], &[0; 2], &central.disk.to_le_bytes()].concat());
        directory.extend([&central.internal.to_le_bytes()[..], &central.external.to_le_bytes()].concat());
        directory.extend([&offset.to_le_bytes()[..], central.name.as_bytes(), &central.extra].concat());
    }
    let (start, len, count) = (file.len() as u64, directory.len() as u64, entries.len() as u64);
    file.extend(directory);
    if let Some(wide) = &end.wide {
        let at = file.len() as u64;
        file.extend([&b"PK\x06\x06"[..], &44_u64.to_le_bytes(), &[45, 0, 45, 0]].concat());
        file.extend([wide.disk.to_le_bytes(), wide.directory_disk.to_le_bytes()].concat());
        file.extend([wide.here, count, len, start].map(u64::to_le_bytes).concat());
        file.extend([&b"PK\x06\x07"[..], &wide.end_disk.to_le_bytes(), &at.to_le_bytes()].concat());
        file.extend(wide.disks.to_le_bytes());
    }
    let count = u16::try_from(count).expect("they are few");
    file.extend(b"PK\x05\x06");
    file.extend([end.disk, end.directory_disk, end.here, count].map(u16::to_le_bytes).concat());
    file.extend([len, start].map(|n| u32::try_from(n).expect("it is short").to_le_bytes()).concat());
    file.extend([0; 2]);
    file
}

/// The fields that both kinds of header have, from the version to the size.
fn fields(header: &Header) -> Vec<u8> {
    let Header { version, flags, time, crc, packed, len, .. } = header;
    let short = [version.to_le_bytes(), flags.to_le_bytes(), [0; 2]].concat();
    [short, [time, crc, packed, len].map(|field| field.to_le_bytes()).concat()].concat()
}

fn lengths(header: &Header) -> Vec<u8> {
    [header.name.len(), header.extra.len()]
        .map(|len| u16::try_from(len).expect("short").to_le_bytes())
        .concat()
}

pub(crate) fn extra(id: u16, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(data.len()).expect("it is short");
    [&id.to_le_bytes()[..], &len.to_le_bytes(), data].concat()
}

pub(crate) fn mapped(bytes: &[u8]) -> MappedFile {
    let mut file = NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(bytes).expect("it can be written");
    MappedFile::from_file(file.as_file(), Path::new("a.zip")).expect("it can be mapped")
}

pub(crate) fn flaws_of(entries: &[Entry], end: &End) -> Vec<Flaw> {
    flaws(&mapped(&archive(entries, end))).expect("all records are there")
}

pub(crate) fn error(entries: &[Entry], end: &End) -> Option<Error> {
    ZipIndex::read(&mapped(&archive(entries, end))).err()?.downcast().ok()
}

//! Parsers of the records of a zip file. No length in the file causes an allocation.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

use memchr::memmem;

use crate::{Error, Result};

pub(crate) const FULL_32: u64 = 0xffff_ffff;
const FULL_16: u64 = 0xffff;
/// File type bits of a Unix mode, which is in the upper half of the external attributes.
const FILE_TYPE: u64 = 0o170_000;
/// File type bits of a symbolic link.
pub(crate) const LINK: u64 = 0o120_000;
/// File type bits of a regular file.
pub(crate) const REGULAR: u64 = 0o100_000;
/// File type bits of a folder.
pub(crate) const FOLDER: u64 = 0o040_000;
/// Id of the zip64 extra field, with 64-bit sizes and offsets.
pub(crate) const ZIP64: u16 = 1;
/// Id of Info-ZIP's Unicode path extra field: a version, a CRC-32 of the name in the header, the name in UTF-8.
const UNICODE_PATH: u16 = 0x7075;
/// Flags of encrypted entries: encryption, strong encryption, and masked values in the local header.
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
/// Flag of an entry that is a patch of another file.
const PATCH: u16 = 1 << 5;

/// Reader of consecutive little-endian fields.
struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u64> {
        self.bytes().map(u32::from_le_bytes).map(u64::from)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn signature(&mut self, signature: [u8; 4]) -> Option<()> {
        (self.bytes()? == signature).then_some(())
    }
}

/// Last bytes of a file, or all bytes, addressed by their offsets in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail<'b> {
    pub(crate) bytes: &'b [u8],
    /// Offset of the first of these bytes in the file.
    pub(crate) start: u64,
}

impl<'b> From<&'b [u8]> for Tail<'b> {
    fn from(whole: &'b [u8]) -> Self {
        Self { bytes: whole, start: 0 }
    }
}

impl<'b> Tail<'b> {
    /// Returns the bytes from the file offset `offset` on.
    fn starting_at(self, offset: u64) -> Option<&'b [u8]> {
        self.bytes.get(usize::try_from(offset.checked_sub(self.start)?).ok()?..)
    }

    fn file_len(self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }
}

/// Contents of the end-of-central-directory record and of the zip64 end record.
#[derive(Debug)]
pub(crate) struct EndRecords {
    pub(crate) entries: u64,
    pub(crate) directory_offset: u64,
    pub(crate) directory_len: u64,
    /// Offset of the first end record: the end of the directory.
    pub(crate) offset: u64,
    /// Offset of the last end record.
    pub(crate) record: u64,
    /// True if all disk numbers and counts are consistent with an archive on one disk.
    pub(crate) one_disk: bool,
}

impl EndRecords {
    /// Length of the last end record without its comment, in bytes.
    pub(crate) const LEN: u64 = Self::RECORD as u64;
    const RECORD: usize = 22;
    const SIGNATURE: &[u8] = b"PK\x05\x06";

    /// Returns the error for a number in the end records that the directory contradicts.
    pub(crate) fn disagreement(&self, what: &'static str, expected: u64, found: u64) -> Error {
        Error::Disagreement { what, expected, found, offset: self.offset }
    }

    /// Length of the locator of a zip64 end record, in bytes.
    pub(crate) const LOCATOR_LEN: u64 = 20;

    /// Maximum total length of the end records with the longest comment, in bytes.
    pub(crate) const END_RECORDS_MAX: u64 = 56 + Self::LOCATOR_LEN + Self::LEN + u16::MAX as u64;

    pub(crate) fn read(tail: Tail<'_>) -> Result<Self> {
        let Tail { bytes, start } = tail;
        // The record and its comment of at most 65,535 bytes are at the end of the file.
        let first = bytes.len().saturating_sub(Self::RECORD.saturating_add(usize::from(u16::MAX)));
        let end = bytes.get(first..).unwrap_or_default();
        let is_last = |at: &usize| {
            let after = at.saturating_add(Self::RECORD);
            let Some([.., low, high]) = end.get(*at..after) else { return false };
            let comment = usize::from(u16::from_le_bytes([*low, *high]));
            after.saturating_add(comment) == end.len()
        };
        let found = memmem::rfind_iter(end, Self::SIGNATURE).find(is_last);
        let at = found.ok_or(Error::NoEnd { len: tail.file_len() })?;
        Self::read_at_offset(tail, start.saturating_add(first.saturating_add(at) as u64))
    }

    /// Reads the last record with the signature, whatever bytes follow it.
    pub(crate) fn read_last_signature(bytes: &[u8]) -> Option<Self> {
        let at = memmem::rfind(bytes, Self::SIGNATURE)?;
        Self::read_at_offset(bytes.into(), at as u64).ok()
    }

    /// Returns the start of the archive that ends at the end of `bytes`, to which its offsets are relative. Returns
    /// `None` if the end records disagree.
    pub(crate) fn archive_start(bytes: &[u8]) -> Option<u64> {
        let at = bytes.len().checked_sub(Self::RECORD)? as u64;
        let tail = Tail::from(bytes);
        let (disks, narrow) = Self::parse(tail, at).filter(|_| bytes.ends_with(&[0, 0]))?;
        // The zip64 end record is directly before its locator, which is directly before the end record.
        let wide =
            at.checked_sub(Self::LOCATOR_LEN).and_then(|at| locator(tail, at)).and_then(|(offset, _, _)| {
                let record = at.checked_sub(Self::LOCATOR_LEN + 56)?;
                Some((record.checked_sub(offset)?, Self::parse_wide(tail, record)?))
            });
        let (start, end) = match wide {
            Some((start, end)) => (Some(start), end),
            None if disks == 0 => (None, narrow),
            None => return None,
        };
        let directory = end.offset.checked_sub(end.directory_len)?;
        let first = directory.checked_sub(end.directory_offset)?;
        let has_header = end.entries == 0 || Header::central(tail, directory).is_ok();
        (start.is_none_or(|start| start == first) && has_header).then_some(first)
    }

    /// Returns the offsets of the zip64 end record, if there is one, and of the directory, as the end records at the end of `bytes` give
    /// them.
    pub(crate) fn stated_offsets(bytes: &[u8]) -> Option<(Option<u64>, u64)> {
        let at = bytes.len().checked_sub(Self::RECORD)? as u64;
        let (_, narrow) = Self::parse(bytes.into(), at)?;
        let wide = at.checked_sub(Self::LOCATOR_LEN).and_then(|at| locator(bytes.into(), at));
        Some((wide.map(|(offset, _, _)| offset), narrow.directory_offset))
    }

    fn read_at_offset(tail: Tail<'_>, at: u64) -> Result<Self> {
        let (disks, end) = Self::parse(tail, at).ok_or(Error::NoEnd { len: tail.file_len() })?;
        let Some((wide_offset, wide_disk, wide_disks)) =
            at.checked_sub(Self::LOCATOR_LEN).and_then(|at| locator(tail, at))
        else {
            return if disks == 0 { Ok(end) } else { Err(Error::MultipleDisks) };
        };
        let mut wide = Self::parse_wide(tail, wide_offset)
            .ok_or(Error::NoRecord { record: "zip64 end of central directory", offset: wide_offset })?;
        if wide_disks > 1 {
            return Err(Error::MultipleDisks);
        }
        for (what, narrow, value, full) in [
            ("the number of entries", end.entries, wide.entries, FULL_16),
            ("the directory's offset", end.directory_offset, wide.directory_offset, FULL_32),
            ("the directory's length", end.directory_len, wide.directory_len, FULL_32),
        ] {
            if narrow != full && narrow != value {
                return Err(Error::Disagreement { what, expected: value, found: narrow, offset: at });
            }
        }
        wide.one_disk &= end.one_disk && wide_disk == 0 && wide_disks == 1;
        Ok(Self { record: at, ..wide })
    }

    fn parse(tail: Tail<'_>, offset: u64) -> Option<(u64, Self)> {
        let mut fields = FieldReader(tail.starting_at(offset)?);
        fields.signature(*b"PK\x05\x06")?;
        let disks = u64::from(fields.u16()?).checked_add(u64::from(fields.u16()?))?;
        let here = u64::from(fields.u16()?);
        let entries = u64::from(fields.u16()?);
        let directory_len = fields.u32()?;
        let directory_offset = fields.u32()?;
        let one_disk = disks == 0 && here == entries;
        Some((disks, Self { entries, directory_offset, directory_len, offset, record: offset, one_disk }))
    }

    fn parse_wide(tail: Tail<'_>, offset: u64) -> Option<Self> {
        let mut fields = FieldReader(tail.starting_at(offset)?);
        fields.signature(*b"PK\x06\x06")?;
        fields.take(8 + 2 + 2)?; // its length, versions
        let disks = fields.u32()?.checked_add(fields.u32()?)?;
        let here = fields.u64()?;
        let entries = fields.u64()?;
        let directory_len = fields.u64()?;
        let directory_offset = fields.u64()?;
        let one_disk = disks == 0 && here == entries;
        Some(Self { entries, directory_offset, directory_len, offset, record: offset, one_disk })
    }
}

/// Returns the zip64 end record's offset, its disk and the number of disks, if there is a locator at `offset`.
fn locator(tail: Tail<'_>, offset: u64) -> Option<(u64, u64, u64)> {
    let mut fields = FieldReader(tail.starting_at(offset)?);
    fields.signature(*b"PK\x06\x07")?;
    let disk = fields.u32()?;
    Some((fields.u64()?, disk, fields.u32()?))
}

/// A local header, or a header of the central directory.
#[derive(Debug)]
pub(crate) struct Header<'a> {
    pub(crate) flags: u16,
    pub(crate) method: u16,
    pub(crate) crc: u64,
    pub(crate) compressed_len: u64,
    pub(crate) len: u64,
    pub(crate) name: &'a [u8],
    pub(crate) local_offset: u64,
    /// Length of this header in bytes.
    pub(crate) span: u64,
    /// System (upper byte) and version of the writing program; 0 in a local header.
    pub(crate) version_made_by: u16,
    /// Version of the zip format that a reader needs.
    pub(crate) version: u16,
    /// MS-DOS time (lower half) and date (upper half).
    pub(crate) time: u64,
    /// Number of the disk with the local header. This field and the attributes are 0 in a local header.
    pub(crate) disk: u16,
    pub(crate) internal_attributes: u16,
    /// External attributes: on Unix the file mode in the upper half.
    pub(crate) external_attributes: u64,
    pub(crate) extra: &'a [u8],
}

impl<'a> Header<'a> {
    pub(crate) fn central(tail: Tail<'a>, offset: u64) -> Result<Self> {
        let parsed = tail.starting_at(offset).and_then(|line| Self::parse(line, true));
        parsed.ok_or(Error::NoRecord { record: "directory entry", offset })
    }

    /// Returns the length of the central header at `offset`: 46 bytes, and its name, extra field and comment. The name comes
    /// with it.
    pub(crate) fn central_span(tail: Tail<'a>, offset: u64) -> Result<(u64, &'a [u8])> {
        let span = || {
            let mut fields = FieldReader(tail.starting_at(offset)?);
            fields.signature(*b"PK\x01\x02")?;
            fields.take(24)?;
            let lengths = [fields.u16()?, fields.u16()?, fields.u16()?];
            fields.take(12)?;
            let span = lengths.iter().fold(46, |span, len| u64::from(*len).saturating_add(span));
            Some((span, fields.take(lengths[0].into())?))
        };
        span().ok_or(Error::NoRecord { record: "directory entry", offset })
    }

    /// Length of a local header without its name and extra field, whose lengths are its last two numbers.
    pub(crate) const LOCAL_MIN: usize = 30;

    /// Parses the local header at the start of `bytes`.
    pub(crate) fn local(bytes: &'a [u8]) -> Option<Self> {
        Self::parse(bytes, false)
    }

    /// Returns the length of the local header at the start of `bytes`.
    pub(crate) fn local_span(bytes: &[u8]) -> Option<usize> {
        let mut lengths = FieldReader(bytes.get(Self::LOCAL_MIN.checked_sub(4)?..)?);
        let name_and_extra = usize::from(lengths.u16()?).checked_add(lengths.u16()?.into())?;
        name_and_extra.checked_add(Self::LOCAL_MIN)
    }

    fn parse(whole: &'a [u8], central: bool) -> Option<Self> {
        let mut fields = FieldReader(whole);
        fields.signature(if central { *b"PK\x01\x02" } else { *b"PK\x03\x04" })?;
        let made_by = if central { fields.u16()? } else { 0 };
        let version = fields.u16()?;
        let flags = fields.u16()?;
        let method = fields.u16()?;
        let time = fields.u32()?;
        let crc = fields.u32()?;
        let compressed_len = fields.u32()?;
        let len = fields.u32()?;
        let name_len = fields.u16()?;
        let extra_len = fields.u16()?;
        let (mut comment_len, mut disk, mut internal, mut external, mut local_offset) = (0, 0, 0, 0, 0);
        if central {
            comment_len = fields.u16()?;
            disk = fields.u16()?;
            internal = fields.u16()?;
            external = fields.u32()?;
            local_offset = fields.u32()?;
        }
        let name = fields.take(usize::from(name_len))?;
        let extra = fields.take(usize::from(extra_len))?;
        fields.take(usize::from(comment_len))?;
        let span = (whole.len() as u64).checked_sub(fields.0.len() as u64)?;
        let mut header = Self {
            flags,
            method,
            crc,
            compressed_len,
            len,
            name,
            local_offset,
            span,
            version_made_by: made_by,
            version,
            time,
            disk,
            internal_attributes: internal,
            external_attributes: external,
            extra,
        };
        header.apply_zip64()?;
        Some(header)
    }

    /// Replaces full 32-bit fields with the values of the zip64 extra field, in the order of APPNOTE 4.5.3.
    fn apply_zip64(&mut self) -> Option<()> {
        let mut wide = FieldReader(zip64(self.extra).unwrap_or_default());
        for field in [&mut self.len, &mut self.compressed_len, &mut self.local_offset] {
            // A full field without a zip64 value is a length of 2^32 - 1 bytes.
            if *field == FULL_32 && !wide.0.is_empty() {
                *field = wide.u64()?;
            }
        }
        Some(())
    }

    /// Returns true if CRC and sizes are in a data descriptor after the data instead of the local header.
    pub(crate) fn has_descriptor(&self) -> bool {
        self.flags & 8 != 0
    }

    /// Returns the file type bits of the Unix mode, which only a central header has.
    pub(crate) fn file_type(&self) -> u64 {
        (self.external_attributes >> 16) & FILE_TYPE
    }

    /// Returns true if the entry is a symbolic link.
    pub(crate) fn is_link(&self) -> bool {
        self.file_type() == LINK
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.flags & ENCRYPTED != 0
    }

    pub(crate) fn is_patch(&self) -> bool {
        self.flags & PATCH != 0
    }

    /// Returns true if there are several zip64 fields: some readers use the first field, other readers the last.
    pub(crate) fn has_duplicate_zip64(&self) -> bool {
        ExtraFields(self.extra).flatten().filter(|(id, _)| *id == ZIP64).count() > 1
    }

    /// Returns a name in the extra field that differs from the name in the header. Some readers, such as Info-ZIP's
    /// unzip, use the name in the extra field.
    pub(crate) fn conflicting_unicode_name(&self) -> Option<&'a [u8]> {
        let names = ExtraFields(self.extra).flatten().filter(|(id, _)| *id == UNICODE_PATH);
        names.filter_map(|(_, data)| data.get(5..)).find(|name| *name != self.name)
    }

    pub(crate) fn display_name(&self) -> String {
        String::from_utf8_lossy(self.name).into_owned()
    }
}

/// Returns the zip64 field of an extra field. Bytes after a field that is too long are ignored: the only other field in
/// PyTorch's files is their padding.
fn zip64(extra: &[u8]) -> Option<&[u8]> {
    ExtraFields(extra).map_while(|field| field).find(|(id, _)| *id == ZIP64).map(|(_, data)| data)
}

/// Iterator over the fields of an extra field, each with its id; the last item is `None` if the field is truncated.
pub(crate) struct ExtraFields<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for ExtraFields<'a> {
    type Item = Option<(u16, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut fields = FieldReader(std::mem::take(&mut self.0));
        if fields.0.is_empty() {
            return None;
        }
        let mut field = || {
            let (id, len) = (fields.u16()?, fields.u16()?);
            Some((id, fields.take(usize::from(len))?))
        };
        let found = field();
        if found.is_some() {
            self.0 = fields.0;
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a central header for the entry `a`, and an end record.
    fn narrow(offset: u32, len: u32, entries: u16) -> Vec<u8> {
        let (offset, len, entries) = (offset.to_le_bytes(), len.to_le_bytes(), entries.to_le_bytes());
        [&b"PK\x05\x06"[..], &[0; 4], &entries, &entries, &len, &offset, &[0; 2]].concat()
    }

    fn wide(offset: u64, len: u64, entries: u64) -> Vec<u8> {
        let (offset, len, entries) = (offset.to_le_bytes(), len.to_le_bytes(), entries.to_le_bytes());
        let size = 44_u64.to_le_bytes();
        [&b"PK\x06\x06"[..], &size, &[45, 0, 45, 0], &[0; 8], &entries, &entries, &len, &offset].concat()
    }

    fn locator(offset: u64) -> Vec<u8> {
        [&b"PK\x06\x07"[..], &[0; 4], &offset.to_le_bytes(), &[1, 0, 0, 0]].concat()
    }

    /// Returns 10 bytes of data, and a central header of 47 bytes.
    fn body() -> Vec<u8> {
        let line = [&b"PK\x01\x02"[..], &[0; 24], &[1, 0], &[0; 16], b"a"].concat();
        assert_eq!(line.len(), 47);
        [&[7; 10], &line[..]].concat()
    }

    #[test]
    fn the_start_of_an_archive_is_where_its_offsets_count_from() {
        let whole = [body(), narrow(10, 47, 1)].concat();
        assert_eq!(EndRecords::archive_start(&whole), Some(0));
        assert_eq!(EndRecords::archive_start(&[b"12345", &whole[..]].concat()), Some(5));
        // Without entries, only the numbers in the end record determine the start of the archive.
        assert_eq!(EndRecords::archive_start(&narrow(0, 0, 0)), Some(0));
        assert_eq!(EndRecords::archive_start(&[b"12345", &narrow(0, 0, 0)[..]].concat()), Some(5));
        for wrong in [
            Vec::new(),
            whole[..whole.len() - 1].to_vec(),
            // A byte after the archive, and a comment.
            [&whole[..], b"\0"].concat(),
            [&whole[..whole.len() - 2], b"\x01\0x"].concat(),
            // The directory is longer than the file, or its offset is after its actual start.
            [body(), narrow(10, 58, 1)].concat(),
            [body(), narrow(11, 47, 1)].concat(),
            // No central header is at the directory's offset.
            [body(), narrow(10, 46, 1)].concat(),
            narrow(0, 0, 1),
        ] {
            assert_eq!(EndRecords::archive_start(&wrong), None, "{}", wrong.escape_ascii());
        }
        // A disk number that is not zero.
        let mut disks = whole;
        let at = disks.len() - 22 + 4;
        disks[at] = 1;
        assert_eq!(EndRecords::archive_start(&disks), None);
    }

    #[test]
    fn the_wide_end_record_has_to_agree() {
        let zip64 = |offset, end: &[u8]| [&body()[..], &wide(10, 47, 1), &locator(offset), end].concat();
        let full = narrow(u32::MAX, u32::MAX, u16::MAX);
        let whole = zip64(57, &full);
        assert_eq!(EndRecords::archive_start(&whole), Some(0));
        assert_eq!(EndRecords::archive_start(&[b"12345", &whole[..]].concat()), Some(5));
        // The locator's offset is not the offset of the record before it.
        assert_eq!(EndRecords::archive_start(&zip64(56, &full)), None);
        assert_eq!(EndRecords::archive_start(&zip64(58, &full)), None);
        assert_eq!(EndRecords::archive_start(&zip64(u64::MAX, &full)), None);
        // No zip64 end record precedes the locator: the end record decides, and its numbers are invalid.
        let broken = [&body()[..], &[0; 56], &locator(57), &full].concat();
        assert_eq!(EndRecords::archive_start(&broken), None);
    }
}

//! Serialization of the records of a zip file.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

/// Value of a 32-bit field that refers to the zip64 extra field.
const ZIP64_MARK_32: u64 = 0xffff_ffff;
/// Value of a 16-bit field that refers to the zip64 end record.
const ZIP64_MARK_16: u64 = 0xffff;
/// Flag of an entry whose CRC and sizes are in a data descriptor after the data.
const FLAG_DESCRIPTOR: u16 = 1 << 3;
/// Flag of an entry whose name is UTF-8.
const FLAG_UTF8: u16 = 1 << 11;
/// MS-DOS date 1980-01-01, the earliest date: a constant, so that two runs give the same bytes.
const DATE: u16 = (1 << 5) | 1;
/// Compression method number of Zstandard.
const ZSTD: u16 = 93;
/// Value of the "version made by" field: Unix, version 4.5 (zip64).
const MADE_BY: u16 = (3 << 8) | 0x2d;
/// External attributes of a regular file, `-rw-r--r--`, in the upper half.
pub(crate) const FILE: u32 = 0o100_644 << 16;
/// External attributes of a symbolic link, `lrwxrwxrwx`; the data are the path of the target.
pub(crate) const LINK: u32 = 0o120_777 << 16;

/// Fields of an entry's local header, data descriptor and central header.
#[derive(Clone, Debug)]
pub(crate) struct Record<'n> {
    pub(crate) name: &'n str,
    /// Byte offset of the local header from the start of the zip file.
    pub(crate) offset: u64,
    /// Length of the decompressed data in bytes.
    pub(crate) len: u64,
    /// Length of the stored data in bytes.
    pub(crate) packed_len: u64,
    pub(crate) method: u16,
    /// External attributes: [`FILE`] or [`LINK`].
    pub(crate) attributes: u32,
    /// True if a data descriptor with the CRC follows the data.
    pub(crate) uses_descriptor: bool,
    /// CRC-32 of the decompressed data; not known before the data of an entry with a descriptor are written.
    pub(crate) crc: u32,
}

/// Appends consecutive little-endian fields to a shared buffer: a zip file can have millions of records.
struct FieldWriter<'o>(&'o mut Vec<u8>);

impl FieldWriter<'_> {
    fn u16(self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends a 32-bit field, with all bits set if the zip64 extra field contains the value.
    fn u32_or_full(self, value: u64) -> Self {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// Appends a 16-bit field, with all bits set if the zip64 end record contains the value.
    fn u16_or_full(self, value: u64) -> Self {
        self.u16(u16::try_from(value).unwrap_or(u16::MAX))
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn fill(self, byte: u8, count: u16) -> Self {
        self.0.resize(self.0.len().saturating_add(count.into()), byte);
        self
    }
}

/// Length of a local header's zip64 extra field, with both sizes, in bytes.
const ZIP64_SIZES_LEN: u16 = 4 + 16;

impl Record<'_> {
    fn needs_zip64_sizes(&self) -> bool {
        self.len.max(self.packed_len) >= ZIP64_MARK_32
    }

    fn version_needed(&self) -> u16 {
        if self.method == ZSTD {
            63
        } else if self.needs_zip64_sizes() || self.offset >= ZIP64_MARK_32 {
            45
        } else {
            20
        }
    }

    fn flags(&self) -> u16 {
        let utf8 = if self.name.is_ascii() { 0 } else { FLAG_UTF8 };
        utf8 | if self.uses_descriptor { FLAG_DESCRIPTOR } else { 0 }
    }

    /// Returns the length of the name in bytes, which is checked when an entry is added.
    fn name_len(&self) -> u16 {
        u16::try_from(self.name.len()).unwrap_or(u16::MAX)
    }

    /// Appends the local header, padded so that the data start at a multiple of `alignment` bytes.
    pub(crate) fn append_local_header(&self, alignment: u64, out: &mut Vec<u8>) {
        // With a data descriptor these fields are zero, as APPNOTE 4.4.4 requires.
        let (crc, len, packed) =
            if self.uses_descriptor { (0, 0, 0) } else { (self.crc, self.len, self.packed_len) };
        let wide = if self.needs_zip64_sizes() { ZIP64_SIZES_LEN } else { 0 };
        let unpadded = [30, u64::from(self.name_len()), u64::from(wide)]
            .iter()
            .fold(self.offset, |sum, part| sum.saturating_add(*part));
        let padding = padding_to(unpadded, alignment);
        let extra_len = padding.map_or(wide, |padding| wide.saturating_add(4).saturating_add(padding));
        let (narrow_len, narrow_packed) =
            if self.needs_zip64_sizes() { (ZIP64_MARK_32, ZIP64_MARK_32) } else { (len, packed) };
        let mut fields = FieldWriter(out)
            .bytes(b"PK\x03\x04")
            .u16(self.version_needed())
            .u16(self.flags())
            .u16(self.method)
            .u16(0) // midnight
            .u16(DATE)
            .u32(crc)
            .u32_or_full(narrow_packed)
            .u32_or_full(narrow_len)
            .u16(self.name_len())
            .u16(extra_len)
            .bytes(self.name.as_bytes());
        if self.needs_zip64_sizes() {
            fields = fields.u16(1).u16(16).u64(len).u64(packed);
        }
        if let Some(padding) = padding {
            fields.bytes(b"FB").u16(padding).fill(b'Z', padding);
        }
    }

    /// Appends the data descriptor of an entry.
    pub(crate) fn append_descriptor(&self, out: &mut Vec<u8>) {
        let fields = FieldWriter(out).bytes(b"PK\x07\x08").u32(self.crc);
        if self.needs_zip64_sizes() {
            fields.u64(self.packed_len).u64(self.len);
        } else {
            fields.u32_or_full(self.packed_len).u32_or_full(self.len);
        }
    }

    /// Appends the entry's header in the central directory.
    pub(crate) fn append_central_header(&self, out: &mut Vec<u8>) {
        // Both sizes are in the extra field if one of them is too large.
        let narrow = |len: u64| if self.needs_zip64_sizes() { ZIP64_MARK_32 } else { len };
        let far = self.offset >= ZIP64_MARK_32;
        let wide_len: u16 = match (self.needs_zip64_sizes(), far) {
            (false, false) => 0,
            (false, true) => 8,
            (true, false) => 16,
            (true, true) => 24,
        };
        let extra_len = if wide_len == 0 { 0 } else { wide_len.saturating_add(4) };
        let mut fields = FieldWriter(out)
            .bytes(b"PK\x01\x02")
            .u16(MADE_BY)
            .u16(self.version_needed())
            .u16(self.flags())
            .u16(self.method)
            .u16(0) // midnight
            .u16(DATE)
            .u32(self.crc)
            .u32_or_full(narrow(self.packed_len))
            .u32_or_full(narrow(self.len))
            .u16(self.name_len())
            .u16(extra_len)
            .u16(0) // no comment
            .u16(0) // the first disk
            .u16(0) // no internal attributes
            .u32(self.attributes)
            .u32_or_full(self.offset)
            .bytes(self.name.as_bytes());
        if wide_len > 0 {
            fields = fields.u16(1).u16(wide_len);
        }
        if self.needs_zip64_sizes() {
            fields = fields.u64(self.len).u64(self.packed_len);
        }
        if far {
            fields.u64(self.offset);
        }
    }
}

/// Comment at the end of an archive, of at most 65,535 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Comment<'c> {
    text: &'c [u8],
    len: u16,
}

impl<'c> Comment<'c> {
    /// Creates a comment. Returns `None` if the text is longer than 65,535 bytes.
    pub(crate) fn new(text: &'c [u8]) -> Option<Self> {
        Some(Self { text, len: u16::try_from(text.len()).ok()? })
    }
}

/// Returns the number of `Z` bytes in an `FB` field after which the data start at a multiple of `alignment`; `None` if
/// they already start at a multiple.
fn padding_to(offset: u64, alignment: u64) -> Option<u16> {
    const HEADER: u64 = 4;
    if alignment == 0 || offset.is_multiple_of(alignment) {
        return None;
    }
    let least = offset.saturating_add(HEADER);
    u16::try_from(least.next_multiple_of(alignment).saturating_sub(least)).ok()
}

/// Appends the records after the central directory: the zip64 end record and locator if a number needs them, then the
/// end record with the archive's comment.
pub(crate) fn append_end_records(
    entries: u64,
    directory_offset: u64,
    directory_len: u64,
    comment: &Comment<'_>,
    out: &mut Vec<u8>,
) {
    let mut fields = FieldWriter(out);
    if entries >= ZIP64_MARK_16 || directory_offset >= ZIP64_MARK_32 || directory_len >= ZIP64_MARK_32 {
        fields = fields
            .bytes(b"PK\x06\x06")
            .u64(44) // bytes of this record after this field
            .u16(MADE_BY)
            .u16(45)
            .u32(0) // this disk
            .u32(0) // the directory's disk
            .u64(entries)
            .u64(entries)
            .u64(directory_len)
            .u64(directory_offset)
            .bytes(b"PK\x06\x07")
            .u32(0)
            .u64(directory_offset.saturating_add(directory_len))
            .u32(1); // one disk in all
    }
    fields
        .bytes(b"PK\x05\x06")
        .u16(0)
        .u16(0)
        .u16_or_full(entries)
        .u16_or_full(entries)
        .u32_or_full(directory_len)
        .u32_or_full(directory_offset)
        .u16(comment.len)
        .bytes(comment.text);
}

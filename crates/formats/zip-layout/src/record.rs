//! The records of a zip file as bytes.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

/// A 32-bit field with this value refers to the zip64 extra field.
const LIMIT_32: u64 = 0xffff_ffff;
/// The same for 16-bit fields.
const LIMIT_16: u64 = 0xffff;
/// The CRC and the sizes are in a data descriptor after the data.
const FLAG_DESCRIPTOR: u16 = 1 << 3;
/// The name is UTF-8.
const FLAG_UTF8: u16 = 1 << 11;
/// 1980-01-01, the earliest possible date: two runs give the same bytes.
const DATE: u16 = (1 << 5) | 1;
/// Zstandard's method number.
pub(crate) const ZSTD: u16 = 93;
/// Made by Unix, version 4.5 (zip64).
const MADE_BY: u16 = (3 << 8) | 0x2d;
/// `-rw-r--r--`, in the half that Unix uses.
pub(crate) const FILE: u32 = 0o100_644 << 16;
/// `lrwxrwxrwx`: the data are the path that the link leads to.
pub(crate) const LINK: u32 = 0o120_777 << 16;

/// The contents of one entry's local header, descriptor and line of the directory.
#[derive(Clone, Debug)]
pub(crate) struct Record<'n> {
    pub(crate) name: &'n str,
    /// Where the local header starts, in bytes from the start of the zip file.
    pub(crate) offset: u64,
    /// Bytes of data.
    pub(crate) len: u64,
    /// Bytes of data as stored in the file.
    pub(crate) packed_len: u64,
    /// The compression method's number.
    pub(crate) method: u16,
    /// [`FILE`] or [`LINK`].
    pub(crate) attributes: u32,
    /// Whether the CRC follows the data.
    pub(crate) descriptor: bool,
    /// The CRC-32 of the data; not yet known before the data of an entry with a descriptor.
    pub(crate) crc: u32,
}

/// Appends little-endian fields, one after the other. A zip file can have millions of records, so none has memory of its own.
struct Fields<'o>(&'o mut Vec<u8>);

impl Fields<'_> {
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

    /// A 32-bit field that is full if the zip64 extra field holds the value.
    fn u32_or_full(self, value: u64) -> Self {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// A 16-bit field that is full if the zip64 end record holds the value.
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

/// Bytes of a zip64 extra field with both sizes in a local header.
const WIDE_SIZES: u16 = 4 + 16;

impl Record<'_> {
    fn large(&self) -> bool {
        self.len.max(self.packed_len) >= LIMIT_32
    }

    fn version_needed(&self) -> u16 {
        if self.method == ZSTD {
            63
        } else if self.large() || self.offset >= LIMIT_32 {
            45
        } else {
            20
        }
    }

    fn flags(&self) -> u16 {
        let utf8 = if self.name.is_ascii() { 0 } else { FLAG_UTF8 };
        utf8 | if self.descriptor { FLAG_DESCRIPTOR } else { 0 }
    }

    /// The length of the name, which is checked when an entry is added.
    fn name_len(&self) -> u16 {
        u16::try_from(self.name.len()).unwrap_or(u16::MAX)
    }

    /// Appends the local header, padded so that the data starts at a multiple of `alignment` bytes.
    pub(crate) fn local_header(&self, alignment: u64, out: &mut Vec<u8>) {
        // With a descriptor the fields here are zero, as APPNOTE 4.4.4 requires.
        let (crc, len, packed) =
            if self.descriptor { (0, 0, 0) } else { (self.crc, self.len, self.packed_len) };
        let wide = if self.large() { WIDE_SIZES } else { 0 };
        let unpadded = [30, u64::from(self.name_len()), u64::from(wide)]
            .iter()
            .fold(self.offset, |sum, part| sum.saturating_add(*part));
        let padding = padding_to(unpadded, alignment);
        let extra_len = padding.map_or(wide, |padding| wide.saturating_add(4).saturating_add(padding));
        let (narrow_len, narrow_packed) = if self.large() { (LIMIT_32, LIMIT_32) } else { (len, packed) };
        let mut fields = Fields(out)
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
        if self.large() {
            fields = fields.u16(1).u16(16).u64(len).u64(packed);
        }
        if let Some(padding) = padding {
            fields.bytes(b"FB").u16(padding).fill(b'Z', padding);
        }
    }

    /// Appends the data descriptor, for entries that have one.
    pub(crate) fn descriptor(&self, out: &mut Vec<u8>) {
        let fields = Fields(out).bytes(b"PK\x07\x08").u32(self.crc);
        if self.large() {
            fields.u64(self.packed_len).u64(self.len);
        } else {
            fields.u32_or_full(self.packed_len).u32_or_full(self.len);
        }
    }

    /// Appends the entry's line in the central directory.
    pub(crate) fn central_header(&self, out: &mut Vec<u8>) {
        // Both sizes are in the extra field if one of them is too large.
        let narrow = |len: u64| if self.large() { LIMIT_32 } else { len };
        let far = self.offset >= LIMIT_32;
        let wide_len: u16 = match (self.large(), far) {
            (false, false) => 0,
            (false, true) => 8,
            (true, false) => 16,
            (true, true) => 24,
        };
        let extra_len = if wide_len == 0 { 0 } else { wide_len.saturating_add(4) };
        let mut fields = Fields(out)
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
        if self.large() {
            fields = fields.u64(self.len).u64(self.packed_len);
        }
        if far {
            fields.u64(self.offset);
        }
    }
}

/// What an archive says at its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Comment<'c> {
    text: &'c [u8],
    len: u16,
}

impl<'c> Comment<'c> {
    /// `None` when the text is longer than a zip file can hold.
    pub(crate) fn new(text: &'c [u8]) -> Option<Self> {
        Some(Self { text, len: u16::try_from(text.len()).ok()? })
    }
}

/// How many bytes of `Z` an `FB` field needs so that the data after it starts at a multiple of
/// `alignment`; `None` if it already starts there.
fn padding_to(offset: u64, alignment: u64) -> Option<u16> {
    const HEADER: u64 = 4;
    if alignment == 0 || offset.is_multiple_of(alignment) {
        return None;
    }
    let least = offset.saturating_add(HEADER);
    u16::try_from(least.next_multiple_of(alignment).saturating_sub(least)).ok()
}

/// Appends the records after the central directory: zip64's two where a number needs them, then the end with the
/// archive's comment.
pub(crate) fn end(
    entries: u64,
    directory_offset: u64,
    directory_len: u64,
    comment: &Comment<'_>,
    out: &mut Vec<u8>,
) {
    let mut fields = Fields(out);
    if entries >= LIMIT_16 || directory_offset >= LIMIT_32 || directory_len >= LIMIT_32 {
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

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
pub(crate) struct Record {
    pub(crate) name: String,
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

/// Little-endian fields, one after the other.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
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

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

/// The length of a name or an extra field. Names are checked when an entry is added, extra fields are
/// at most 20 + 4 + 128 bytes.
fn u16_len(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).unwrap_or(u16::MAX)
}

impl Record {
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

    /// The local header, padded so that the data starts at a multiple of `alignment` bytes.
    pub(crate) fn local_header(&self, alignment: u64) -> Vec<u8> {
        // With a descriptor the fields here are zero, as APPNOTE 4.4.4 requires.
        let (crc, len, packed) =
            if self.descriptor { (0, 0, 0) } else { (self.crc, self.len, self.packed_len) };
        let mut extra = Fields::default();
        if self.large() {
            extra = extra.u16(1).u16(16).u64(len).u64(packed);
        }
        let unpadded = [30, self.name.len() as u64, extra.0.len() as u64]
            .iter()
            .fold(self.offset, |sum, part| sum.saturating_add(*part));
        if let Some(padding) = padding_to(unpadded, alignment) {
            extra = extra.bytes(b"FB").u16(padding).bytes(&vec![b'Z'; usize::from(padding)]);
        }
        let (len, packed) = if self.large() { (LIMIT_32, LIMIT_32) } else { (len, packed) };
        Fields::default()
            .bytes(b"PK\x03\x04")
            .u16(self.version_needed())
            .u16(self.flags())
            .u16(self.method)
            .u16(0) // midnight
            .u16(DATE)
            .u32(crc)
            .u32_or_full(packed)
            .u32_or_full(len)
            .u16(u16_len(self.name.as_bytes()))
            .u16(u16_len(&extra.0))
            .bytes(self.name.as_bytes())
            .bytes(&extra.0)
            .0
    }

    /// The data descriptor, for entries that have one.
    pub(crate) fn descriptor(&self) -> Vec<u8> {
        let fields = Fields::default().bytes(b"PK\x07\x08").u32(self.crc);
        if self.large() {
            fields.u64(self.packed_len).u64(self.len).0
        } else {
            fields.u32_or_full(self.packed_len).u32_or_full(self.len).0
        }
    }

    /// The entry's line in the central directory.
    pub(crate) fn central_header(&self) -> Vec<u8> {
        let mut wide = Fields::default();
        if self.large() {
            wide = wide.u64(self.len).u64(self.packed_len);
        }
        if self.offset >= LIMIT_32 {
            wide = wide.u64(self.offset);
        }
        // Both sizes are in the extra field if one of them is too large.
        let narrow = |len: u64| if self.large() { LIMIT_32 } else { len };
        let extra = if wide.0.is_empty() {
            Vec::new()
        } else {
            Fields::default().u16(1).u16(u16_len(&wide.0)).bytes(&wide.0).0
        };
        Fields::default()
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
            .u16(u16_len(self.name.as_bytes()))
            .u16(u16_len(&extra))
            .u16(0) // no comment
            .u16(0) // the first disk
            .u16(0) // no internal attributes
            .u32(self.attributes)
            .u32_or_full(self.offset)
            .bytes(self.name.as_bytes())
            .bytes(&extra)
            .0
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

/// The records after the central directory: zip64's two where a number needs them, then the end.
pub(crate) fn end(entries: u64, directory_offset: u64, directory_len: u64) -> Vec<u8> {
    let mut fields = Fields::default();
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
        .u16(0)
        .0
}

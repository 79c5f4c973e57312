//! Reader of the header, which is checked against the length of the file.
//!
//! Facts: `docs/gguf.md` of ggml, `gguf.cpp` there, and `gguf_reader.py` of the Python package `gguf` 0.19.0. As in `gguf.cpp`, each
//! tensor starts at the end of the one before it, aligned. A file without tensors may end before the alignment.

use std::ops::Range;

use byte_source::Source;
use bytes::Bytes;
use foldhash::{HashSet, HashSetExt};
use tensor::ByteOrder;

use crate::cursor::Cursor;
use crate::{EntryError, Error, GgmlType, GgufValue, Result};

/// Longest header that is read, in bytes. One with a vocabulary of 256,000 tokens and its merges has about 16 million.
pub const MAX_HEADER: u64 = 64 << 20;
/// Bytes at the start of a file that are read, step by step until the header ends, if each read is a request.
const STEPS: [u64; 3] = [64 << 10, 16 << 20, MAX_HEADER];

/// Key of the alignment of tensors.
pub const ALIGNMENT_KEY: &str = "general.alignment";
/// Alignment of tensors in bytes, unless a key has another.
pub const ALIGNMENT: u64 = 32;
/// Largest number of dimensions of a tensor.
pub const MAX_DIMS: u64 = 4;

pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
/// Length of the least entry of a tensor in bytes: name, number of dimensions, type, offset.
const LEAST_TENSOR: u64 = 8 + 4 + 4 + 8;
/// Length of the least entry of a key in bytes: name, type, a byte.
const LEAST_KEY: u64 = 8 + 4 + 1;

/// Parsed header of a GGUF file.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufHeader {
    pub version: u32,
    pub byte_order: ByteOrder,
    /// Keys and their values, in the file's order.
    pub entries: Vec<(String, GgufValue)>,
    /// Tensors in the file's order.
    pub tensors: Vec<GgufTensor>,
}

/// Type, shape and place of a tensor in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufTensor {
    pub name: String,
    pub kind: &'static GgmlType,
    /// Number of elements along each dimension, in the order of PyTorch: that of a row is the last one.
    pub shape: Vec<u64>,
    /// Range of the tensor's bytes in the file.
    pub range: Range<u64>,
}

/// Returns true if a file starts with the letters of GGUF.
pub fn is_gguf(file: &[u8]) -> bool {
    file.starts_with(&MAGIC)
}

impl GgufHeader {
    /// Reads the header of a file. If each read is a request, a header of up to 64 KiB takes one, and one of up to 16 MiB two.
    ///
    /// # Errors
    /// When the file cannot be read, and those of [`parse`](Self::parse).
    pub fn read(file: &dyn Source) -> byte_source::Result<Self> {
        let mut steps = STEPS.iter().skip(if file.is_mappable() { STEPS.len().saturating_sub(1) } else { 0 });
        loop {
            let step = steps.next().copied();
            let start = file.share(0..file.len().min(step.unwrap_or(0)))?;
            match Self::parse(&start, file.len()) {
                Err(Error::TruncatedHeader { end, .. }) if end <= file.len() => {
                    if step.is_none_or(|step| step >= MAX_HEADER) {
                        return Err(Error::HeaderSize.into());
                    }
                }
                parsed => return Ok(parsed?),
            }
        }
    }

    /// Reads the header of a file of `file_len` bytes that starts with `start`.
    ///
    /// # Errors
    /// [`Error::TruncatedHeader`] when more of the file is needed; others when the version is not 2 or 3, the header is not as the format
    /// describes it, two keys or two tensors have the same name, a type is not known, tensors overlap or leave holes, or do not end where
    /// the file ends.
    pub fn parse(start: &Bytes, file_len: u64) -> Result<Self> {
        let (mut header, mut cursor, tensor_count) = Self::without_tensors(start, file_len)?;
        for _ in 0..tensor_count {
            header.tensors.push(read_tensor(&mut cursor, header.byte_order)?);
        }
        if let Some(tensor) = repeated(header.tensors.iter().map(|it| &it.name)) {
            return Err(Error::DuplicateTensor { tensor });
        }
        header.located(cursor.at as u64, file_len)
    }

    /// Reads the keys and their values, whatever follows.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), but none of the tensors.
    pub fn parse_entries(start: &Bytes, file_len: u64) -> Result<Vec<(String, GgufValue)>> {
        Ok(Self::without_tensors(start, file_len)?.0.entries)
    }

    /// Reads a header up to its tensors, and returns their number.
    fn without_tensors(start: &Bytes, file_len: u64) -> Result<(Self, Cursor<'_>, u64)> {
        if !is_gguf(start) {
            return Err(Error::Magic);
        }
        let preamble = start.get(4..).and_then(<[u8]>::first_chunk).copied();
        let version = u32::from_le_bytes(preamble.ok_or(Error::TruncatedHeader { at: 4, end: 8 })?);
        // The numbers of versions are small, in the byte order of the file.
        let (version, byte_order) = match version {
            small if small & 0xffff != 0 => (small, ByteOrder::Little),
            large => (large.swap_bytes(), ByteOrder::Big),
        };
        if !(2..=3).contains(&version) {
            return Err(Error::Version { version });
        }
        let mut cursor = Cursor::new(start, 8, byte_order, file_len);
        let tensor_count = cursor.count(LEAST_TENSOR)?;
        let key_count = cursor.count(LEAST_KEY)?;
        let mut entries = Vec::new();
        for _ in 0..key_count {
            let key = cursor.name()?;
            let kind = cursor.value_type()?;
            entries.push((key, cursor.value(kind, 0)?));
        }
        if let Some(key) = repeated(entries.iter().map(|(key, _)| key)) {
            return Err(Error::DuplicateKey { key });
        }
        Ok((Self { version, byte_order, entries, tensors: Vec::new() }, cursor, tensor_count))
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&GgufValue> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns what kind of file this is, with its article, or `None` if it is a model.
    pub fn role(&self) -> Option<&'static str> {
        let is = |key, value: &str| self.get(key).and_then(GgufValue::text).is_some_and(|text| text == value);
        [
            ("general.type", "adapter", "a LoRA adapter"),
            ("general.type", "imatrix", "an importance matrix (imatrix), which steers quantization"),
            (
                "general.type",
                "mmproj",
                "a projector of images or sound (mmproj), which belongs to a model in another file",
            ),
            (
                "general.architecture",
                "clip",
                "a projector of images or sound (mmproj), which belongs to a model in another file",
            ),
        ]
        .into_iter()
        .find(|(key, value, _)| is(key, value))
        .map(|(_, _, role)| role)
    }

    fn alignment(&self) -> Result<u64> {
        match self.get(ALIGNMENT_KEY) {
            None => Ok(ALIGNMENT),
            Some(GgufValue::UInt32(alignment)) if alignment.is_power_of_two() => Ok(u64::from(*alignment)),
            Some(_) => Err(Error::Alignment),
        }
    }

    /// Checks for holes, overlaps, and the end of the file, and makes the ranges those of the file. `header_end` is the end of the header
    /// without the alignment.
    fn located(mut self, header_end: u64, file_len: u64) -> Result<Self> {
        let alignment = self.alignment()?;
        let aligned = |at: u64| at.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        let data_start = aligned(header_end);
        let mut in_order: Vec<&mut GgufTensor> = self.tensors.iter_mut().collect();
        in_order.sort_by_key(|it| (it.range.start, it.range.end));
        let (mut end, mut first_missing) = (0, None);
        for tensor in in_order {
            let start = tensor.range.start;
            if start != aligned(end) {
                let reason = EntryError::Offset { start, expected: aligned(end) };
                return Err(Error::Entry { name: tensor.name.clone(), reason });
            }
            end = tensor.range.end;
            let (start, file_end) = (data_start.saturating_add(start), data_start.saturating_add(end));
            if file_end > file_len && start < file_end {
                first_missing = first_missing.or_else(|| Some(tensor.name.clone()));
            }
            tensor.range = start..file_end;
        }
        if let Some(first) = first_missing {
            let missing = data_start.saturating_add(end).saturating_sub(file_len);
            return Err(Error::TruncatedTensors { described: end, missing, first });
        }
        // Tensors without elements at the end of a file that is not aligned.
        for tensor in self.tensors.iter_mut().filter(|it| it.range.is_empty()) {
            tensor.range = header_end..header_end;
        }
        match file_len.saturating_sub(data_start.saturating_add(aligned(end))) {
            0 => Ok(self),
            bytes => Err(Error::Trailing { bytes }),
        }
    }
}

/// Reads the entry of a tensor, whose range is still that after the header.
fn read_tensor(cursor: &mut Cursor<'_>, order: ByteOrder) -> Result<GgufTensor> {
    let name = cursor.name()?;
    let wrong = |name: &str, reason| Error::Entry { name: name.to_owned(), reason };
    let dims = u64::from(cursor.number32()?);
    if dims > MAX_DIMS {
        return Err(wrong(&name, EntryError::Dimensions { dims }));
    }
    let mut shape = (0..dims).map(|_| cursor.number64()).collect::<Result<Vec<u64>>>()?;
    shape.reverse();
    let id = cursor.number32()?;
    let start = cursor.number64()?;
    let kind = GgmlType::from_id(id).ok_or_else(|| wrong(&name, EntryError::Type { id }))?;
    if order == ByteOrder::Big && kind.dtype.is_none() && kind.words.is_none() {
        return Err(wrong(&name, EntryError::ByteOrder { kind: kind.name }));
    }
    let end = kind.nbytes(&shape).and_then(|nbytes| start.checked_add(nbytes));
    let Some(end) = end else {
        return Err(wrong(&name, EntryError::Shape { shape, kind: kind.name }));
    };
    Ok(GgufTensor { name, kind, shape, range: start..end })
}

/// Returns a name that appears twice.
pub(crate) fn repeated<'n>(names: impl Iterator<Item = &'n String>) -> Option<String> {
    let mut known = HashSet::new();
    names.into_iter().find(|name| !known.insert(name.as_str())).cloned()
}

//! Reader of the fields of a header, which may be hostile or cut off.

use bytes::Bytes;
use tensor::ByteOrder;

use crate::{Error, GgufArray, GgufValue, Result, ValueType};

/// Levels of arrays in arrays that are read.
const MAX_NESTED: usize = 8;

/// Position in the bytes at the start of a file.
pub(crate) struct Cursor<'b> {
    bytes: &'b Bytes,
    pub(crate) at: usize,
    order: ByteOrder,
    file_len: u64,
}

impl<'b> Cursor<'b> {
    pub(crate) fn new(bytes: &'b Bytes, at: usize, order: ByteOrder, file_len: u64) -> Self {
        Self { bytes, at, order, file_len }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Error::TooLong`] when the file does not have as many, [`Error::TruncatedHeader`] when they were not read or are missing.
    fn take(&mut self, len: u64) -> Result<Bytes> {
        let at = self.at as u64;
        if len > self.file_len {
            return Err(Error::TooLong { at, len });
        }
        let end = usize::try_from(at.saturating_add(len)).unwrap_or(usize::MAX);
        if end > self.bytes.len() {
            return Err(Error::TruncatedHeader { at, end: at.saturating_add(len) });
        }
        let taken = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }

    /// Reads a number of `SIZE` bytes as those of a little-endian one.
    fn word<const SIZE: usize>(&mut self) -> Result<[u8; SIZE]> {
        let mut word: [u8; SIZE] = self.take(SIZE as u64)?.first_chunk().copied().unwrap_or([0; SIZE]);
        if self.order == ByteOrder::Big {
            word.reverse();
        }
        Ok(word)
    }

    pub(crate) fn number32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.word()?))
    }

    pub(crate) fn number64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.word()?))
    }

    /// Reads a number of things, each of which takes at least `least` bytes.
    ///
    /// # Errors
    /// [`Error::TooLong`] when the file does not have as many bytes.
    pub(crate) fn count(&mut self, least: u64) -> Result<u64> {
        let (at, count) = (self.at as u64, self.number64()?);
        let len = count.saturating_mul(least);
        if len > self.file_len { Err(Error::TooLong { at, len }) } else { Ok(count) }
    }

    pub(crate) fn text(&mut self) -> Result<Bytes> {
        let len = self.number64()?;
        self.take(len)
    }

    /// Reads the name of a key or a tensor.
    ///
    /// # Errors
    /// [`Error::NotText`] when it is not UTF-8.
    pub(crate) fn name(&mut self) -> Result<String> {
        let at = self.at as u64;
        String::from_utf8(self.text()?.into()).map_err(|_| Error::NotText { at })
    }

    /// Reads a type of a value.
    ///
    /// # Errors
    /// [`Error::ValueType`] when there is no such type.
    pub(crate) fn value_type(&mut self) -> Result<ValueType> {
        let (at, id) = (self.at as u64, self.number32()?);
        ValueType::from_id(id).ok_or(Error::ValueType { at, id })
    }

    /// Reads a value of a type. `level` is the number of arrays around it.
    ///
    /// # Errors
    /// When it is cut off, or an array in it has elements of an unknown type or arrays that are nested too deep.
    pub(crate) fn value(&mut self, kind: ValueType, level: usize) -> Result<GgufValue> {
        Ok(match kind {
            ValueType::UInt8 => GgufValue::UInt8(u8::from_le_bytes(self.word()?)),
            ValueType::Int8 => GgufValue::Int8(i8::from_le_bytes(self.word()?)),
            ValueType::UInt16 => GgufValue::UInt16(u16::from_le_bytes(self.word()?)),
            ValueType::Int16 => GgufValue::Int16(i16::from_le_bytes(self.word()?)),
            ValueType::UInt32 => GgufValue::UInt32(self.number32()?),
            ValueType::Int32 => GgufValue::Int32(i32::from_le_bytes(self.word()?)),
            ValueType::Float32 => GgufValue::Float32(f32::from_le_bytes(self.word()?)),
            ValueType::Bool => GgufValue::Bool(self.word::<1>()? != [0]),
            ValueType::Text => GgufValue::Text(self.text()?),
            ValueType::Array => GgufValue::Array(self.array(level)?),
            ValueType::UInt64 => GgufValue::UInt64(self.number64()?),
            ValueType::Int64 => GgufValue::Int64(i64::from_le_bytes(self.word()?)),
            ValueType::Float64 => GgufValue::Float64(f64::from_le_bytes(self.word()?)),
        })
    }

    fn array(&mut self, level: usize) -> Result<GgufArray> {
        let (element, len) = self.array_head()?;
        let start = self.at;
        // Elements that are left in each of the arrays around this place.
        let mut open = vec![(element, len)];
        while let Some((element, left)) = open.last_mut() {
            if *left == 0 {
                open.pop();
                continue;
            }
            if let Some(size) = element.size() {
                let len = left.saturating_mul(size);
                *left = 0;
                self.take(len)?;
                continue;
            }
            *left = left.saturating_sub(1);
            if *element == ValueType::Text {
                self.text()?;
                continue;
            }
            if open.len().saturating_add(level) >= MAX_NESTED {
                return Err(Error::Nested { at: self.at as u64 });
            }
            open.push(self.array_head()?);
        }
        Ok(GgufArray { element, len, bytes: self.bytes.slice(start..self.at), order: self.order })
    }

    fn array_head(&mut self) -> Result<(ValueType, u64)> {
        let element = self.value_type()?;
        // A text has a length of 8 bytes, an array a type and a length.
        let least = element.size().unwrap_or(if element == ValueType::Text { 8 } else { 12 });
        Ok((element, self.count(least)?))
    }
}

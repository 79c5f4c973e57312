//! Fields of protocol buffers.
//!
//! Facts: the wire format of protocol buffers. Groups, which no model has, are refused.

use bytes::Bytes;

use crate::{Error, Result};

/// Value of a field of a message.
pub(crate) enum Field {
    Number(u64),
    Bytes(Bytes),
    Word(u32),
    Other,
}

/// The fields of a message that are left.
pub(crate) struct Fields {
    pub(crate) bytes: Bytes,
}

impl Fields {
    /// Returns the number and the value of the next field; `None` at the end.
    ///
    /// # Errors
    /// When the message is cut off, or is none.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Field)>> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let field = match tag & 7 {
            0 => Field::Number(self.number()?),
            1 => {
                self.take(8)?;
                Field::Other
            }
            2 => {
                let len = self.number()?;
                Field::Bytes(self.take(len)?)
            }
            5 => Field::Word(u32::from_le_bytes(self.take(4)?.first_chunk().copied().unwrap_or_default())),
            _ => return Err(Error::Damaged("it is no SentencePiece model")),
        };
        Ok(Some((tag >> 3, field)))
    }

    fn number(&mut self) -> Result<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?.first().copied().unwrap_or_default();
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Error::Damaged("a number in it is too long"))
    }

    fn take(&mut self, len: u64) -> Result<Bytes> {
        match usize::try_from(len) {
            Ok(len) if len <= self.bytes.len() => Ok(self.bytes.split_to(len)),
            _ => Err(Error::Damaged("it is cut off")),
        }
    }
}

/// Appends a field with bytes.
pub(crate) fn put_bytes(message: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(message, field << 3 | 2);
    put_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// Appends a field with a number.
pub(crate) fn put_number(message: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(message, field << 3);
    put_varint(message, number);
}

/// Appends a field with four bytes.
pub(crate) fn put_word(message: &mut Vec<u8>, field: u64, word: u32) {
    put_varint(message, field << 3 | 5);
    message.extend(word.to_le_bytes());
}

fn put_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    message.push(number.to_le_bytes()[0]);
}

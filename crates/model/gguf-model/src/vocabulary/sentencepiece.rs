//! Reader of a `SentencePiece` model: its pieces, with scores and types.
//!
//! Facts: `sentencepiece_model.proto` of `SentencePiece` 0.2: pieces are field 1, and have a text, a score and a type.

use byte_source::Result;
use bytes::Bytes;

use super::damaged;

/// Types of pieces in the model, which are those of llama.cpp, too.
pub(crate) const NORMAL: i32 = 1;
pub(crate) const CONTROL: i32 = 3;
pub(crate) const USER_DEFINED: i32 = 4;
pub(crate) const UNUSED: i32 = 5;
pub(crate) const BYTE: i32 = 6;

const FILE: &str = "tokenizer.model";
/// Largest number of pieces.
const PIECES_MAX: usize = 1 << 22;

/// Piece of a vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenPiece {
    pub(crate) text: Bytes,
    pub(crate) score: f32,
    pub(crate) kind: i32,
}

/// Reads the pieces of a model.
///
/// # Errors
/// When the file is cut off, or has no pieces.
pub(crate) fn read_pieces(file: &Bytes) -> Result<Vec<TokenPiece>> {
    let mut pieces = Vec::new();
    let mut fields = Fields { bytes: file.clone() };
    while let Some((number, field)) = fields.next()? {
        if let (1, Field::Bytes(piece)) = (number, field) {
            if pieces.len() >= PIECES_MAX {
                return Err(damaged(FILE, "it has too many pieces"));
            }
            pieces.push(read_piece(piece)?);
        }
    }
    if pieces.is_empty() { Err(damaged(FILE, "it is no SentencePiece model")) } else { Ok(pieces) }
}

fn read_piece(bytes: Bytes) -> Result<TokenPiece> {
    let mut piece = TokenPiece { text: Bytes::new(), score: 0.0, kind: NORMAL };
    let mut fields = Fields { bytes };
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Bytes(text)) => piece.text = text,
            (2, Field::Word(bits)) => piece.score = f32::from_bits(bits),
            (3, Field::Number(kind)) => piece.kind = i32::try_from(kind).unwrap_or(NORMAL),
            _ => {}
        }
    }
    // What a user defined is like any other piece.
    if piece.kind == USER_DEFINED {
        piece.kind = NORMAL;
    }
    Ok(piece)
}

/// Value of a field of a message.
enum Field {
    Number(u64),
    Bytes(Bytes),
    Word(u32),
    Other,
}

/// The fields of a message that are left.
struct Fields {
    bytes: Bytes,
}

impl Fields {
    fn next(&mut self) -> Result<Option<(u64, Field)>> {
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
            _ => return Err(damaged(FILE, "it is no SentencePiece model")),
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
        Err(damaged(FILE, "a number in it is too long"))
    }

    fn take(&mut self, len: u64) -> Result<Bytes> {
        match usize::try_from(len) {
            Ok(len) if len <= self.bytes.len() => Ok(self.bytes.split_to(len)),
            _ => Err(damaged(FILE, "it is cut off")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read() {
        let mut file = vec![10, 10, 10, 3];
        file.extend(b"<s>");
        file.extend([24, 3, 0x80 | 32, 1, 7]);
        file.extend([10, 8, 10, 1, b'a', 21]);
        file.extend((-1.5_f32).to_le_bytes());
        let pieces = read_pieces(&Bytes::from(file.clone())).expect("a model");
        let texts: Vec<_> = pieces.iter().map(|it| (it.text.as_ref(), it.score, it.kind)).collect();
        assert_eq!(texts, [(b"<s>".as_slice(), 0.0, CONTROL), (b"a", -1.5, NORMAL)]);
        for len in 0..file.len() {
            // Some beginnings have fewer pieces.
            let _ = read_pieces(&Bytes::from(file.clone()).slice(..len));
        }
        for wrong in [
            &b""[..],
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x0f",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(read_pieces(&Bytes::from(wrong)).is_err(), "{wrong:?}");
        }
    }
}

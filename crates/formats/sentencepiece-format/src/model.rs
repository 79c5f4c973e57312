//! Content of the file of a model.

use bytes::Bytes;

use crate::wire::{Field, Fields, put_bytes, put_number, put_word};
use crate::{Error, Result};

/// Largest number of pieces.
const PIECES_MAX: usize = 1 << 22;

/// Piece of a vocabulary; its place in the list is its id.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Piece {
    /// Text, in which `▁` stands for a space.
    pub text: Bytes,
    pub score: f32,
    pub kind: PieceKind,
}

/// Kind of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum PieceKind {
    Normal = 1,
    Unknown = 2,
    /// A piece without a text, such as `<s>`.
    Control = 3,
    /// A piece that is found in any text before all others.
    UserDefined = 4,
    Unused = 5,
    /// One byte, such as `<0x0A>`.
    Byte = 6,
}

/// Algorithm that divides a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    #[default]
    Unigram = 1,
    Bpe,
    Word,
    Char,
}

/// Changes of a text before it is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Normalization {
    /// Compiled replacements; empty if there are none.
    pub charsmap: Bytes,
    /// True if a text gets a space before its first word.
    pub adds_dummy_prefix: bool,
    /// True if spaces at both ends, and all but one of several, are removed.
    pub removes_extra_spaces: bool,
    /// True if a space becomes `▁`.
    pub escapes_spaces: bool,
}

impl Default for Normalization {
    fn default() -> Self {
        Self {
            charsmap: Bytes::new(),
            adds_dummy_prefix: true,
            removes_extra_spaces: true,
            escapes_spaces: true,
        }
    }
}

/// A model: its pieces, and how texts are divided into them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PieceModel {
    pub pieces: Vec<Piece>,
    pub algorithm: Algorithm,
    /// True if the space of a word comes after it.
    pub has_space_after_word: bool,
    /// True if what no piece has is written as bytes.
    pub has_byte_fallback: bool,
    /// Text of an unknown piece.
    pub unknown_text: Bytes,
    /// Pieces at the beginning and the end of a text.
    pub ends: [Bytes; 2],
    pub normalization: Normalization,
}

impl PieceModel {
    /// Creates a model of these pieces, with the settings that a file without any has.
    pub fn new(algorithm: Algorithm, pieces: Vec<Piece>) -> Self {
        Self {
            pieces,
            algorithm,
            has_space_after_word: false,
            has_byte_fallback: false,
            unknown_text: Bytes::from_static(" \u{2047} ".as_bytes()),
            ends: [Bytes::from_static(b"<s>"), Bytes::from_static(b"</s>")],
            normalization: Normalization::default(),
        }
    }

    /// Reads the file of a model.
    ///
    /// # Errors
    /// When the file is cut off, has no pieces or too many, or changes texts after decoding, which no published model does.
    pub fn from_bytes(file: &Bytes) -> Result<Self> {
        let mut model = Self::new(Algorithm::default(), Vec::new());
        let mut fields = Fields { bytes: file.clone() };
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(_)) if model.pieces.len() >= PIECES_MAX => {
                    return Err(Error::Damaged("it has too many pieces"));
                }
                (1, Field::Bytes(piece)) => model.pieces.push(Piece::read(piece)?),
                (2, Field::Bytes(settings)) => model.read_settings(settings)?,
                (3, Field::Bytes(settings)) => model.normalization = Normalization::read(settings)?,
                (5, Field::Bytes(settings))
                    if !Normalization::read(settings.clone())?.charsmap.is_empty() =>
                {
                    return Err(Error::Unsupported("a SentencePiece model that changes decoded texts"));
                }
                _ => {}
            }
        }
        if model.pieces.is_empty() { Err(Error::Damaged("it is no SentencePiece model")) } else { Ok(model) }
    }

    /// Returns the file of the model, without settings that it has by default.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for piece in &self.pieces {
            let mut message = Vec::new();
            put_bytes(&mut message, 1, &piece.text);
            put_word(&mut message, 2, piece.score.to_bits());
            put_number(&mut message, 3, piece.kind as u64);
            put_bytes(&mut file, 1, &message);
        }
        let flag = |message: &mut Vec<u8>, field: u64, is_set: bool| {
            put_number(message, field, u64::from(is_set));
        };
        let mut settings = Vec::new();
        put_number(&mut settings, 3, self.algorithm as u64);
        flag(&mut settings, 24, self.has_space_after_word);
        flag(&mut settings, 35, self.has_byte_fallback);
        for (field, text) in [(44, &self.unknown_text), (46, &self.ends[0]), (47, &self.ends[1])] {
            put_bytes(&mut settings, field, text);
        }
        put_bytes(&mut file, 2, &settings);
        let Normalization { charsmap, adds_dummy_prefix, removes_extra_spaces, escapes_spaces } =
            &self.normalization;
        let mut settings = Vec::new();
        put_bytes(&mut settings, 2, charsmap);
        for (field, is_set) in [(3, adds_dummy_prefix), (4, removes_extra_spaces), (5, escapes_spaces)] {
            flag(&mut settings, field, *is_set);
        }
        put_bytes(&mut file, 3, &settings);
        file
    }

    fn read_settings(&mut self, bytes: Bytes) -> Result<()> {
        let mut fields = Fields { bytes };
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (3, Field::Number(kind)) => {
                    self.algorithm = match kind {
                        2 => Algorithm::Bpe,
                        3 => Algorithm::Word,
                        4 => Algorithm::Char,
                        _ => Algorithm::Unigram,
                    }
                }
                (24, Field::Number(is_set)) => self.has_space_after_word = is_set != 0,
                (35, Field::Number(is_set)) => self.has_byte_fallback = is_set != 0,
                (44, Field::Bytes(text)) => self.unknown_text = text,
                (46, Field::Bytes(text)) => self.ends[0] = text,
                (47, Field::Bytes(text)) => self.ends[1] = text,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Piece {
    /// Creates a piece with its score.
    pub fn new(text: impl Into<Bytes>, score: f32, kind: PieceKind) -> Self {
        Self { text: text.into(), score, kind }
    }

    fn read(bytes: Bytes) -> Result<Self> {
        let mut piece = Self::new(Bytes::new(), 0.0, PieceKind::Normal);
        let mut fields = Fields { bytes };
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(text)) => piece.text = text,
                (2, Field::Word(bits)) => piece.score = f32::from_bits(bits),
                (3, Field::Number(kind)) => piece.kind = PieceKind::from_number(kind).unwrap_or(piece.kind),
                _ => {}
            }
        }
        Ok(piece)
    }

    /// Returns the byte that a piece of this kind stands for.
    pub fn byte(&self) -> Option<u8> {
        let hex = self.text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
        let hex = std::str::from_utf8(hex).ok().filter(|hex| hex.len() == 2)?;
        u8::from_str_radix(hex, 16).ok().filter(|_| self.kind == PieceKind::Byte)
    }
}

impl PieceKind {
    /// Returns the kind with a number, which files of llama.cpp also use.
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

impl Normalization {
    fn read(bytes: Bytes) -> Result<Self> {
        let mut read = Self::default();
        let mut fields = Fields { bytes };
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (2, Field::Bytes(charsmap)) => read.charsmap = charsmap,
                (3, Field::Number(is_set)) => read.adds_dummy_prefix = is_set != 0,
                (4, Field::Number(is_set)) => read.removes_extra_spaces = is_set != 0,
                (5, Field::Number(is_set)) => read.escapes_spaces = is_set != 0,
                _ => {}
            }
        }
        Ok(read)
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
        let model = PieceModel::from_bytes(&Bytes::from(file.clone())).expect("a model");
        let expected = [Piece::new("<s>", 0.0, PieceKind::Control), Piece::new("a", -1.5, PieceKind::Normal)];
        assert_eq!(model.pieces, expected);
        for len in 0..file.len() {
            // Some beginnings have fewer pieces.
            let _ = PieceModel::from_bytes(&Bytes::from(file.clone()).slice(..len));
        }
        for wrong in [
            &b""[..],
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x0f",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(PieceModel::from_bytes(&Bytes::from(wrong)).is_err(), "{wrong:?}");
        }
        let written = PieceModel::from_bytes(&Bytes::from(model.to_bytes()));
        assert_eq!(written.expect("a model"), model);
    }
}

//! Texts to the ids of pieces, and back.

use crate::normalizer::{Normalizer, SPACE};
use crate::vocabulary::{PieceVocabulary, PlacedPiece};
use crate::{Algorithm, Error, Piece, PieceKind, PieceModel, Result, bpe, unigram};

/// Encodes and decodes texts with a model.
#[derive(Debug)]
pub struct PieceTokenizer {
    vocabulary: PieceVocabulary,
    normalizer: Normalizer,
}

impl PieceTokenizer {
    /// Prepares a model for encoding.
    ///
    /// # Errors
    /// When a piece is empty, too long or twice there, none or two are unknown, one of the bytes has none, the table of replacements
    /// is damaged, or the algorithm is neither BPE nor Unigram.
    pub fn new(model: PieceModel) -> Result<Self> {
        if matches!(model.algorithm, Algorithm::Word | Algorithm::Char) {
            return Err(Error::Unsupported("a SentencePiece model of words or characters"));
        }
        let normalizer = Normalizer::new(&model)?;
        Ok(Self { vocabulary: PieceVocabulary::new(model)?, normalizer })
    }

    /// Returns the model that it encodes with.
    pub fn model(&self) -> &PieceModel {
        &self.vocabulary.model
    }

    /// Returns a piece by its id.
    pub fn piece(&self, id: u32) -> Option<&Piece> {
        self.vocabulary.piece(id)
    }

    /// Returns the id of the piece at the beginning and at the end of a text, if the model has them.
    pub fn ends(&self) -> [Option<u32>; 2] {
        self.vocabulary.ends()
    }

    /// Encodes a text, without the pieces at its beginning and its end.
    ///
    /// # Errors
    /// When the text becomes too long, or the model's table of replacements is damaged.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let vocabulary = &self.vocabulary;
        let text = self.normalizer.normalize(text, &self.vocabulary.fixed)?;
        let parts = match vocabulary.model.algorithm {
            Algorithm::Bpe => bpe::divide(vocabulary, &text),
            _ => unigram::divide(vocabulary, &text),
        };
        let mut ids = Vec::with_capacity(parts.len());
        let mut is_after_unknown = false;
        for PlacedPiece { start, len, id } in parts {
            let is_unknown = id == vocabulary.unknown;
            if !is_unknown {
                ids.push(id);
            } else if !vocabulary.bytes.is_empty() {
                let bytes = text.get(start..start.saturating_add(len)).unwrap_or_default();
                ids.extend(bytes.iter().filter_map(|byte| vocabulary.bytes.get(usize::from(*byte))));
            } else if !is_after_unknown {
                // Neighbours that are unknown are one.
                ids.push(id);
            }
            is_after_unknown = is_unknown;
        }
        Ok(ids)
    }

    /// Decodes ids, of which those without a piece have no text.
    pub fn decode(&self, ids: &[u32]) -> String {
        let vocabulary = &self.vocabulary;
        let rules = &vocabulary.model.normalization;
        let (mut text, mut bytes) = (Vec::new(), Vec::new());
        let (mut is_start, mut had_space) = (true, false);
        for piece in ids.iter().filter_map(|id| self.piece(*id)) {
            if let Some(byte) = piece.byte() {
                bytes.push(byte);
                continue;
            }
            push_bytes(&mut text, &mut bytes);
            is_start &= !had_space && text.is_empty();
            had_space = false;
            let mut rest = match piece.kind {
                PieceKind::Control => continue,
                PieceKind::Unknown => &vocabulary.model.unknown_text,
                _ => piece.text.as_ref(),
            };
            if is_start
                && piece.kind != PieceKind::Unknown
                && (rules.adds_dummy_prefix || rules.removes_extra_spaces)
                && let Some(after) = rest.strip_prefix(SPACE)
            {
                rest = after;
                had_space = !rules.removes_extra_spaces;
            }
            while let Some((first, after)) = rest.split_first() {
                if let Some(after) = rest.strip_prefix(SPACE) {
                    text.push(b' ');
                    rest = after;
                } else {
                    text.push(*first);
                    rest = after;
                }
            }
        }
        push_bytes(&mut text, &mut bytes);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Adds the characters of bytes. Each byte that belongs to none becomes U+FFFD.
fn push_bytes(text: &mut Vec<u8>, bytes: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        text.extend_from_slice(chunk.valid().as_bytes());
        for _ in chunk.invalid() {
            text.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    bytes.clear();
}

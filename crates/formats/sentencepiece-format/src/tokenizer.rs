//! Texts to the ids of pieces, and back.

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};

use crate::index::PieceIndex;
use crate::normalizer::{Normalizer, SPACE};
use crate::{Algorithm, Error, Piece, PieceKind, PieceModel, Result, bpe, unigram};

/// Largest length of a piece, in bytes. Each piece may be compared at each place of a text.
const PIECE_MAX: usize = 512;

/// A part of a text, and the id of its piece.
pub(crate) struct PlacedPiece {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) id: u32,
}

/// Encodes and decodes texts with a model.
#[derive(Debug)]
pub struct PieceTokenizer {
    model: PieceModel,
    normalizer: Normalizer,
    /// Ids of the pieces that texts can have.
    pub(crate) pieces: HashMap<Bytes, u32>,
    /// Ids of all others.
    reserved: HashMap<Bytes, u32>,
    /// The pieces that texts can have, for models that need their prefixes.
    pub(crate) index: PieceIndex,
    /// The user-defined ones of them.
    pub(crate) fixed: PieceIndex,
    pub(crate) unknown: u32,
    /// Lowest and highest score of a piece.
    pub(crate) score_range: [f32; 2],
    /// Ids of the pieces of bytes; empty without byte fallback.
    bytes: Vec<u32>,
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
        let (mut pieces, mut reserved) = (HashMap::with_capacity(model.pieces.len()), HashMap::new());
        let (mut index, mut fixed, mut unknown) = (Vec::new(), Vec::new(), None);
        let mut bytes = vec![None; 256];
        let mut score_range = [f32::MAX, f32::MIN_POSITIVE];
        for (id, piece) in (0_u32..).zip(&model.pieces) {
            if piece.text.is_empty() || piece.text.len() > PIECE_MAX {
                return Err(Error::Damaged("a piece in it is empty, or longer than 512 bytes"));
            }
            let is_text =
                matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined | PieceKind::Unused);
            let known = if is_text { &mut pieces } else { &mut reserved };
            if known.insert(piece.text.clone(), id).is_some() {
                return Err(Error::Damaged("a piece in it is there twice"));
            }
            if is_text && model.algorithm == Algorithm::Unigram {
                index.push((piece.text.clone(), id));
            }
            match piece.kind {
                PieceKind::Normal => {
                    let [lowest, highest] = score_range;
                    score_range = [lowest.min(piece.score), highest.max(piece.score)];
                }
                PieceKind::UserDefined => fixed.push((piece.text.clone(), id)),
                PieceKind::Unknown if unknown.replace(id).is_some() => {
                    return Err(Error::Damaged("two pieces in it are unknown"));
                }
                _ => {}
            }
            if let Some(place) = piece.byte().and_then(|byte| bytes.get_mut(usize::from(byte))) {
                *place = Some(id);
            }
        }
        let bytes = if model.has_byte_fallback {
            let all: Option<Vec<u32>> = bytes.into_iter().collect();
            all.ok_or(Error::Damaged("a byte has no piece in it"))?
        } else {
            Vec::new()
        };
        let unknown = unknown.ok_or(Error::Damaged("no piece in it is unknown"))?;
        let (index, fixed) = (PieceIndex::new(index), PieceIndex::new(fixed));
        Ok(Self { model, normalizer, pieces, reserved, index, fixed, unknown, score_range, bytes })
    }

    /// Returns the model that it encodes with.
    pub fn model(&self) -> &PieceModel {
        &self.model
    }

    /// Returns a piece by its id.
    pub fn piece(&self, id: u32) -> Option<&Piece> {
        self.model.pieces.get(id as usize)
    }

    /// Returns the id of the piece at the beginning and at the end of a text, if the model has them.
    pub fn ends(&self) -> [Option<u32>; 2] {
        self.model
            .ends
            .each_ref()
            .map(|text| self.reserved.get(text).copied().filter(|id| *id != self.unknown))
    }

    pub(crate) fn score(&self, id: u32) -> f32 {
        self.piece(id).map_or(0.0, |piece| piece.score)
    }

    fn is(&self, id: u32, kind: PieceKind) -> bool {
        self.piece(id).is_some_and(|piece| piece.kind == kind)
    }

    pub(crate) fn is_unused(&self, id: u32) -> bool {
        self.is(id, PieceKind::Unused)
    }

    pub(crate) fn is_fixed(&self, id: u32) -> bool {
        self.is(id, PieceKind::UserDefined)
    }

    /// Returns the id of a text, that of the unknown piece if it is none.
    pub(crate) fn id(&self, text: &[u8]) -> u32 {
        self.reserved.get(text).or_else(|| self.pieces.get(text)).copied().unwrap_or(self.unknown)
    }

    /// Encodes a text, without the pieces at its beginning and its end.
    ///
    /// # Errors
    /// When the text becomes too long, or the model's table of replacements is damaged.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let text = self.normalizer.normalize(text, &self.fixed)?;
        let parts = match self.model.algorithm {
            Algorithm::Bpe => bpe::divide(self, &text),
            _ => unigram::divide(self, &text),
        };
        let mut ids = Vec::with_capacity(parts.len());
        let mut is_after_unknown = false;
        for PlacedPiece { start, len, id } in parts {
            let is_unknown = id == self.unknown;
            if !is_unknown {
                ids.push(id);
            } else if !self.bytes.is_empty() {
                let bytes = text.get(start..start.saturating_add(len)).unwrap_or_default();
                ids.extend(bytes.iter().filter_map(|byte| self.bytes.get(usize::from(*byte))));
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
        let rules = &self.model.normalization;
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
                PieceKind::Unknown => &self.model.unknown_text,
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

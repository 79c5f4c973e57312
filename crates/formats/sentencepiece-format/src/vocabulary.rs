//! The pieces of a model, by their texts and their ids.

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};

use crate::index::PieceIndex;
use crate::{Algorithm, Error, Piece, PieceKind, PieceModel, Result};

/// Largest length of a piece, in bytes. Each piece may be compared at each place of a text.
const PIECE_MAX: usize = 512;

/// A part of a text, and the id of its piece.
pub(crate) struct PlacedPiece {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) id: u32,
}

/// The pieces of a model, prepared for encoding.
#[derive(Debug)]
pub(crate) struct PieceVocabulary {
    pub(crate) model: PieceModel,
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
    pub(crate) bytes: Vec<u32>,
}

impl PieceVocabulary {
    /// # Errors
    /// When a piece is empty, too long or twice there, none or two are unknown, or one of the bytes has none.
    pub(crate) fn new(model: PieceModel) -> Result<Self> {
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
        Ok(Self { model, pieces, reserved, index, fixed, unknown, score_range, bytes })
    }

    pub(crate) fn piece(&self, id: u32) -> Option<&Piece> {
        self.model.pieces.get(id as usize)
    }

    /// Returns the id of the piece at the beginning and at the end of a text, if the model has them.
    pub(crate) fn ends(&self) -> [Option<u32>; 2] {
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
}

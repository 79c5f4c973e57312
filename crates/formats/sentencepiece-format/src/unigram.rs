//! The division of a text with the highest sum of scores.

use crate::normalizer::char_len;
use crate::vocabulary::{PieceVocabulary, PlacedPiece};

/// Difference between the lowest score and that of an unknown character.
const UNKNOWN_PENALTY: f32 = 10.0;

/// The best way to a place of the text.
#[derive(Clone, Copy, Default)]
struct BestPath {
    id: u32,
    score: f32,
    /// Beginning of the last piece; `None` if no way leads here.
    start: Option<usize>,
}

impl BestPath {
    /// The library adds scores in double precision, and keeps the sums in single precision.
    #[expect(clippy::cast_possible_truncation, reason = "so does the library")]
    fn improve(&mut self, id: u32, score: f64, start: usize) {
        if self.start.is_none() || score > f64::from(self.score) {
            *self = Self { id, score: score as f32, start: Some(start) };
        }
    }
}

/// Divides a normalized text.
pub(crate) fn divide(vocabulary: &PieceVocabulary, text: &[u8]) -> Vec<PlacedPiece> {
    let [lowest, highest] = vocabulary.score_range;
    let unknown = lowest - UNKNOWN_PENALTY;
    let mut steps = vec![BestPath::default(); text.len().saturating_add(1)];
    let mut start = 0;
    while let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
        let here = steps.get(start).copied().unwrap_or_default().score;
        let first = char_len(rest);
        let mut has_first = false;
        for (len, id) in vocabulary.index.prefixes(rest) {
            if vocabulary.is_unused(id) {
                continue;
            }
            let score = if vocabulary.is_fixed(id) {
                #[expect(clippy::cast_precision_loss, reason = "pieces are short")]
                let len = len as f32;
                f64::from(len * highest) - 0.1
            } else {
                f64::from(vocabulary.score(id))
            };
            if let Some(step) = steps.get_mut(start.saturating_add(len)) {
                step.improve(id, score + f64::from(here), start);
            }
            has_first |= len == first;
        }
        let after = start.saturating_add(first);
        if !has_first && let Some(step) = steps.get_mut(after) {
            step.improve(vocabulary.unknown, f64::from(unknown + here), start);
        }
        start = after;
    }
    let mut parts = Vec::new();
    let mut end = text.len();
    while let Some(BestPath { id, start: Some(start), .. }) = steps.get(end).copied() {
        parts.push(PlacedPiece { start, len: end.saturating_sub(start), id });
        end = start;
    }
    parts.reverse();
    parts
}

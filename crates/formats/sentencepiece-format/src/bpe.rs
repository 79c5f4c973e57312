//! Byte-pair encoding: of neighbours that form a piece, those of the highest score are joined first, the leftmost of equals.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use foldhash::{HashMap, HashMapExt};

use crate::vocabulary::{PieceVocabulary, PlacedPiece};

/// A part of the text; empty after it was joined to the one before it.
struct Symbol {
    prev: Option<usize>,
    next: Option<usize>,
    start: usize,
    len: usize,
    /// True for a user-defined piece, which is never joined.
    is_fixed: bool,
}

/// Two neighbours that form a piece.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Length of the piece, by which a pair is known to be out of date.
    len: usize,
}

impl Pair {
    fn key(&self) -> (Reverse<usize>, usize) {
        (Reverse(self.left), self.len)
    }
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| self.key().cmp(&other.key()))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pair {}

/// The division of a text as it is made.
struct Division<'t> {
    vocabulary: &'t PieceVocabulary,
    text: &'t [u8],
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Pair>,
    /// Lengths of the left sides of unused pieces that were made.
    unused: HashMap<&'t [u8], usize>,
}

/// Divides a normalized text.
pub(crate) fn divide(vocabulary: &PieceVocabulary, text: &[u8]) -> Vec<PlacedPiece> {
    let mut division = Division {
        vocabulary,
        text,
        symbols: vocabulary.symbols(text),
        pairs: BinaryHeap::new(),
        unused: HashMap::new(),
    };
    for right in 1..division.symbols.len() {
        division.add_pair(right.checked_sub(1), Some(right));
    }
    while let Some(pair) = division.pairs.pop() {
        division.join(&pair);
    }
    division.parts()
}

impl PieceVocabulary {
    /// Divides a text into characters and user-defined pieces.
    fn symbols(&self, text: &[u8]) -> Vec<Symbol> {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
        let mut start = 0;
        while let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
            let fixed = self.fixed.longest(rest);
            let len = if fixed > 0 { fixed } else { crate::normalizer::char_len(rest) };
            let at = symbols.len();
            let next = (len < rest.len()).then_some(at.saturating_add(1));
            symbols.push(Symbol { prev: at.checked_sub(1), next, start, len, is_fixed: fixed > 0 });
            start = start.saturating_add(len);
        }
        symbols
    }
}

impl Division<'_> {
    fn add_pair(&mut self, left: Option<usize>, right: Option<usize>) {
        let (Some(left), Some(right)) = (left, right) else { return };
        let (Some(first), Some(second)) = (self.symbols.get(left), self.symbols.get(right)) else { return };
        if first.is_fixed || second.is_fixed {
            return;
        }
        let len = first.len.saturating_add(second.len);
        let text = self.text.get(first.start..first.start.saturating_add(len)).unwrap_or_default();
        let Some(id) = self.vocabulary.pieces.get(text) else { return };
        // Zeros of both signs are equal.
        self.pairs.push(Pair { score: self.vocabulary.score(*id) + 0.0, left, right, len });
        if self.vocabulary.is_unused(*id) {
            self.unused.insert(text, first.len);
        }
    }

    fn join(&mut self, pair: &Pair) {
        let (Some(left), Some(right)) = (self.symbols.get(pair.left), self.symbols.get(pair.right)) else {
            return;
        };
        if left.len == 0 || right.len == 0 || left.len.saturating_add(right.len) != pair.len {
            return;
        }
        let (prev, next) = (left.prev, right.next);
        if let Some(left) = self.symbols.get_mut(pair.left) {
            (left.len, left.next) = (pair.len, next);
        }
        if let Some(right) = self.symbols.get_mut(pair.right) {
            right.len = 0;
        }
        if let Some(after) = next.and_then(|next| self.symbols.get_mut(next)) {
            after.prev = Some(pair.left);
        }
        self.add_pair(prev, Some(pair.left));
        self.add_pair(Some(pair.left), next);
    }

    /// Returns the parts; unused pieces are taken apart again.
    fn parts(&self) -> Vec<PlacedPiece> {
        let mut parts = Vec::new();
        let mut stack = Vec::new();
        for symbol in self.symbols.iter().filter(|symbol| symbol.len > 0) {
            stack.push((symbol.start, symbol.len));
            while let Some((start, len)) = stack.pop() {
                let text = self.text.get(start..start.saturating_add(len)).unwrap_or_default();
                let id = self.vocabulary.id(text);
                let split = self.unused.get(text).filter(|_| self.vocabulary.is_unused(id));
                match split.and_then(|left| Some((*left, len.checked_sub(*left)?))) {
                    Some((left, right)) => {
                        stack.push((start.saturating_add(left), right));
                        stack.push((start, left));
                    }
                    None => parts.push(PlacedPiece { start, len, id }),
                }
            }
        }
        parts
    }
}

//! Pieces in the order of their texts, to find those that a text begins with.

use bytes::Bytes;

/// Ids of pieces by their texts.
#[derive(Debug, Default)]
pub(crate) struct PieceIndex {
    /// Texts in their order, each once.
    sorted: Vec<(Bytes, u32)>,
}

impl PieceIndex {
    pub(crate) fn new(mut pieces: Vec<(Bytes, u32)>) -> Self {
        pieces.sort_unstable();
        Self { sorted: pieces }
    }

    /// Returns the lengths and ids of the pieces that a text begins with, the shortest first.
    pub(crate) fn prefixes<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = (usize, u32)> + 't {
        // Pieces that begin with the bytes so far.
        let mut left = self.sorted.as_slice();
        let of_byte = move |(byte, len): (&u8, usize)| {
            let at = |piece: &(Bytes, u32)| piece.0.get(len.saturating_sub(1)).copied();
            let start = left.partition_point(|piece| at(piece) < Some(*byte));
            let rest = left.get(start..).unwrap_or_default();
            left = rest.get(..rest.partition_point(|piece| at(piece) == Some(*byte))).unwrap_or_default();
            let (first, id) = left.first()?;
            Some((first.len() == len).then_some((len, *id)))
        };
        text.iter().zip(1..).map_while(of_byte).flatten()
    }

    /// Returns the length of the longest piece that a text begins with; 0 if there is none.
    pub(crate) fn longest(&self, text: &[u8]) -> usize {
        self.prefixes(text).last().map_or(0, |(len, _)| len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_found_in_order() {
        let texts = ["b", "ab", "a", "abcd", "ac"];
        let index = PieceIndex::new(texts.into_iter().map(Bytes::from).zip(0..).collect());
        let found = |text: &str| index.prefixes(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(found("abcde"), [(1, 2), (2, 1), (4, 3)]);
        assert_eq!(found("abc"), [(1, 2), (2, 1)]);
        assert_eq!(found("ca"), []);
        assert_eq!(index.longest(b"abcd"), 4);
        assert_eq!(PieceIndex::default().longest(b"a"), 0);
    }
}

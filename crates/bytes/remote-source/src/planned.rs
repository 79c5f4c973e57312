//! What a caller says it will read: requested in that order, each byte once, and nothing else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::slot::{Chunk, Slot};

/// Distance up to which two ranges that are read one after the other are one: a record's header and padding.
pub(crate) const SKIP_MAX: u64 = 64 << 10;
/// Largest number of bytes of short ranges that are next to each other, and requested as one in whatever order they are read.
const BLOCK: u64 = 1 << 20;
/// Largest number of bytes of such blocks that are kept until all of them is read.
const BLOCKS_MAX: u64 = 32 << 20;
/// Largest number of requests for what is read later.
const AHEAD_MAX: usize = 8;
/// Largest number of sequences that are being read at the same time.
const READERS_MAX: usize = 4;

/// Range that is requested as one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlannedPiece {
    range: Range<u64>,
    /// True if it has several ranges, which are not read in their order.
    is_block: bool,
}

#[derive(Debug)]
struct OpenPiece {
    number: usize,
    /// Chunks of which some bytes were not read yet, with their number.
    chunks: Vec<(Chunk, u64)>,
    is_begun: bool,
}

/// Pieces in the order in which they are read, and those of them that are requested.
#[derive(Debug, Default)]
pub(crate) struct PlannedReads {
    pieces: Vec<PlannedPiece>,
    by_start: BTreeMap<u64, usize>,
    /// The last used one is at the end.
    open: Vec<OpenPiece>,
    /// Number of the piece to request next.
    next: usize,
}

impl PlannedReads {
    /// Plans to read `ranges` in this order, but none of `known`, in requests of at most `longest` bytes.
    pub(crate) fn new(ranges: &[Range<u64>], known: impl Iterator<Item = Range<u64>>, longest: u64) -> Self {
        let pieces = pieces_of(&runs_of(ranges, known), longest.max(1));
        let by_start = pieces.iter().zip(0..).map(|(piece, number)| (piece.range.start, number)).collect();
        Self { pieces, by_start, ..Self::default() }
    }

    /// Returns true if it is planned to read the byte at `at`.
    pub(crate) fn has(&self, at: u64) -> bool {
        self.number_at(at).is_some()
    }

    /// Returns where the next piece after `at` begins.
    pub(crate) fn next_start(&self, at: u64) -> Option<u64> {
        self.by_start.range(at..).next().map(|(start, _)| *start)
    }

    fn number_at(&self, at: u64) -> Option<usize> {
        let (_, number) = self.by_start.range(..=at).next_back()?;
        self.pieces.get(*number).filter(|piece| at < piece.range.end).map(|_| *number)
    }

    /// Returns the chunk that has the byte at `at`, of which the reader wants `wanted` bytes, and requests what is read after it, up to
    /// `ahead` bytes. `None` if it is not planned.
    pub(crate) fn chunk_at(
        &mut self,
        (at, wanted): (u64, u64),
        ahead: u64,
        request: &mut dyn FnMut(Range<u64>) -> Vec<Chunk>,
    ) -> Option<(Range<u64>, Arc<Slot>)> {
        let number = self.number_at(at)?;
        let place = self.open.iter().position(|open| open.number == number);
        let mut piece = if let Some(place) = place {
            self.open.remove(place)
        } else {
            let is_block = self.pieces.get(number).is_some_and(|piece| piece.is_block);
            // A block that was dropped is requested once more, and the others go on.
            if number >= self.next || !is_block {
                self.next = number.saturating_add(1);
            }
            self.request(number, request)?
        };
        piece.is_begun = true;
        let found = piece.chunks.iter().map(|(chunk, _)| chunk).find(|chunk| chunk.range.contains(&at));
        let found = found.map(|chunk| (chunk.range.clone(), Arc::clone(&chunk.slot)));
        // What was read before is requested again.
        let found = found.or_else(|| {
            let later = piece.chunks.iter().map(|(chunk, _)| chunk.range.start).filter(|start| *start > at);
            let end = later.min().unwrap_or(self.pieces.get(number)?.range.end);
            let again = request(at..at.saturating_add(wanted).min(end)).into_iter().next()?;
            Some((again.range, again.slot))
        });
        self.open.push(piece);
        self.drop_oldest();
        self.request_ahead(ahead, request);
        found
    }

    /// Records that bytes from `at` on were read.
    pub(crate) fn consume(&mut self, at: u64, bytes: &Bytes) {
        let Some(number) = self.number_at(at) else { return };
        if let Some(place) = self.open.iter().position(|open| open.number == number)
            && let Some(open) = self.open.get_mut(place)
        {
            let of_chunk = open.chunks.iter_mut().find(|(chunk, _)| chunk.range.contains(&at));
            if let Some((_, unread)) = of_chunk {
                *unread = unread.saturating_sub(bytes.len() as u64);
            }
            open.chunks.retain(|(_, unread)| *unread > 0);
            if open.chunks.is_empty() {
                self.open.remove(place);
            }
        }
    }

    fn is_block(&self, open: &OpenPiece) -> bool {
        self.pieces.get(open.number).is_some_and(|piece| piece.is_block)
    }

    fn request(&self, number: usize, request: &mut dyn FnMut(Range<u64>) -> Vec<Chunk>) -> Option<OpenPiece> {
        let chunks = request(self.pieces.get(number)?.range.clone()).into_iter();
        let chunks = chunks.map(|chunk| {
            let unread = chunk.range.end.saturating_sub(chunk.range.start);
            (chunk, unread)
        });
        Some(OpenPiece { number, chunks: chunks.collect(), is_begun: false })
    }

    /// Drops the pieces whose readers seem to have left, and blocks that are too many.
    fn drop_oldest(&mut self) {
        let (mut readers, mut kept) = (0_usize, 0_u64);
        let mut open = std::mem::take(&mut self.open);
        open.reverse();
        open.retain(|piece| {
            if !piece.is_begun {
                return true;
            }
            if self.is_block(piece) {
                kept = kept.saturating_add(piece.len());
                return kept <= BLOCKS_MAX;
            }
            readers = readers.saturating_add(1);
            readers <= READERS_MAX
        });
        open.reverse();
        self.open = open;
    }

    fn request_ahead(&mut self, ahead: u64, request: &mut dyn FnMut(Range<u64>) -> Vec<Chunk>) {
        let is_counted = |open: &&OpenPiece| !(open.is_begun && self.is_block(open));
        let mut kept = self.open.iter().filter(is_counted).map(OpenPiece::len).fold(0, u64::saturating_add);
        let mut waiting = self.open.iter().filter(|open| !open.is_begun).count();
        while waiting < AHEAD_MAX
            && let Some(piece) = self.pieces.get(self.next)
        {
            if !self.open.iter().any(|open| open.number == self.next) {
                kept = kept.saturating_add(piece.range.end.saturating_sub(piece.range.start));
                if kept > ahead {
                    return;
                }
                if let Some(requested) = self.request(self.next, request) {
                    self.open.insert(0, requested);
                }
                waiting = waiting.saturating_add(1);
            }
            self.next = self.next.saturating_add(1);
        }
    }
}

impl OpenPiece {
    fn len(&self) -> u64 {
        self.chunks.iter().map(|(chunk, _)| chunk.len()).fold(0, u64::saturating_add)
    }
}

/// Returns what is read without a jump, in the order of reading, each byte once.
fn runs_of(ranges: &[Range<u64>], known: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let known = known.filter(|range| !range.is_empty());
    let mut covered: BTreeMap<u64, u64> = known.map(|range| (range.start, range.end)).collect();
    let mut runs: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        for part in missing(&covered, range) {
            covered.insert(part.start, part.end);
            match runs.last_mut() {
                Some(last)
                    if last.end <= part.start
                        && part.start <= last.end.saturating_add(SKIP_MAX)
                        && covered.range(last.end..part.start).next().is_none() =>
                {
                    last.end = part.end;
                }
                _ => runs.push(part),
            }
        }
    }
    runs
}

/// Returns the parts of a range that are not covered.
fn missing(covered: &BTreeMap<u64, u64>, range: &Range<u64>) -> Vec<Range<u64>> {
    let before = covered.range(..=range.start).next_back();
    let mut at = before.map_or(range.start, |(_, end)| range.start.max(*end));
    let mut parts = Vec::new();
    while at < range.end {
        let next = covered.range(at..range.end).next();
        let end = next.map_or(range.end, |(start, _)| *start);
        if at < end {
            parts.push(at..end);
        }
        at = next.map_or(range.end, |(_, end)| *end);
    }
    parts
}

/// Cuts long runs, and joins short ones that are neighbours in the file.
fn pieces_of(runs: &[Range<u64>], longest: u64) -> Vec<PlannedPiece> {
    let len = |range: &Range<u64>| range.end.saturating_sub(range.start);
    let mut by_place: Vec<(usize, &Range<u64>)> = runs.iter().enumerate().collect();
    by_place.sort_by_key(|(_, run)| run.start);
    let mut joined: Vec<(usize, PlannedPiece)> = Vec::new();
    for (number, run) in by_place {
        if let Some((first, last)) = joined.last_mut()
            && len(&last.range).max(len(run)) < BLOCK
            && run.start <= last.range.end.saturating_add(SKIP_MAX)
            && run.end.saturating_sub(last.range.start) <= BLOCK
        {
            *first = number.min(*first);
            *last = PlannedPiece { range: last.range.start..run.end, is_block: true };
        } else {
            joined.push((number, PlannedPiece { range: run.clone(), is_block: false }));
        }
    }
    joined.sort_by_key(|(number, _)| *number);
    let mut pieces = Vec::with_capacity(joined.len());
    for (_, PlannedPiece { range, is_block }) in joined {
        let mut at = range.start;
        while at < range.end {
            let end = at.saturating_add(longest).min(range.end);
            pieces.push(PlannedPiece { range: at..end, is_block });
            at = end;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn planned(ranges: &[Range<u64>], known: Range<u64>) -> Vec<Range<u64>> {
        let planned = PlannedReads::new(ranges, std::iter::once(known), 8 * MIB);
        planned.pieces.into_iter().map(|piece| piece.range).collect()
    }

    #[test]
    fn each_byte_is_planned_once() {
        // Overlapping ranges, one of which is known in part.
        assert_eq!(planned(&[10..20, 15..40, 0..50], 0..5), from_ref(&(5..50)));
        assert_eq!(planned(&[0..0, 5..9], 0..100), [] as [Range<u64>; 0]);
        // A long run is cut; its neighbours in the file that are read elsewhere are not joined with it.
        let long = [0..10 * MIB, 30 * MIB..31 * MIB, 10 * MIB..12 * MIB];
        let expected = [0..8 * MIB, 8 * MIB..10 * MIB, 30 * MIB..31 * MIB, 10 * MIB..12 * MIB];
        assert_eq!(planned(&long, 0..0), expected);
        // The header of a record is read with it, unless the bytes there are read elsewhere.
        assert_eq!(planned(&[0..MIB, MIB + 64..3 * MIB], 0..0), from_ref(&(0..3 * MIB)));
        assert_eq!(
            planned(&[MIB..MIB + 64, 0..MIB, MIB + 64..3 * MIB], 0..0),
            [MIB..MIB + 64, 0..MIB, MIB + 64..3 * MIB]
        );
        // Short ranges are requested together.
        let short: Vec<Range<u64>> = (0..100).map(|n| n * 37 % 100 * 1000).map(|at| at..at + 900).collect();
        assert_eq!(planned(&short, 0..0), from_ref(&(0..99_900)));
    }

    #[test]
    fn what_is_read_is_requested_once() {
        let ranges: Vec<Range<u64>> =
            (0..60).map(|n| n * 7 % 60 * 3 * MIB).map(|at| at..at + 2 * MIB).collect();
        let short = (0..9000).map(|n| 200 * MIB + n * 77 % 9000 * 1000).map(|at| at..at + 1000);
        let ranges: Vec<Range<u64>> = ranges.into_iter().chain(short).collect();
        let mut planned = PlannedReads::new(&ranges, std::iter::empty(), 8 * MIB);
        let mut asked = Vec::new();
        let mut request = |range: Range<u64>| {
            asked.push(range.clone());
            vec![Chunk { range, slot: Arc::new(Slot::empty()) }]
        };
        for range in &ranges {
            let mut at = range.start;
            while at < range.end {
                let (chunk, _) =
                    planned.chunk_at((at, range.end - at), 40 * MIB, &mut request).expect("it is planned");
                let len = (chunk.end.min(range.end) - at).min(MIB / 2);
                let bytes = vec![0; usize::try_from(len).expect("small")];
                planned.consume(at, &bytes.into());
                at += len;
            }
        }
        assert!(planned.open.is_empty(), "{:?}", planned.open.len());
        let total: u64 = asked.iter().map(|range| range.end - range.start).sum();
        assert_eq!(total, 120 * MIB + 9_000_000);
        assert_eq!(asked.len(), 60 + 9);
        assert!(!planned.has(180 * MIB) && planned.next_start(180 * MIB) == Some(200 * MIB));
    }
}

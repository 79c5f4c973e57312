//! Source that keeps some byte ranges of another source in memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Error, Source, Window};

/// A source with prefetched ranges, which are not read again.
#[derive(Clone, Debug)]
pub struct Prefetched {
    source: Arc<dyn Source>,
    /// Offset and bytes of each prefetched range, in order and disjoint.
    parts: Vec<(u64, Bytes)>,
}

/// Consecutive bytes that are all prefetched, or all missing.
enum PrefetchedPiece {
    Kept(Bytes),
    Missing(Range<u64>),
}

impl Prefetched {
    /// Reads and keeps `ranges`, which must be in order and disjoint.
    ///
    /// # Errors
    /// Returns the errors of [`Source::read_ranges`].
    pub fn new(source: Arc<dyn Source>, ranges: &[Range<u64>]) -> Result<Self, Error> {
        let bytes = source.read_ranges(ranges)?;
        let parts = ranges.iter().map(|range| range.start).zip(bytes).collect();
        Ok(Self { source, parts })
    }

    /// Prefetches one more range, after the ranges that are already prefetched.
    ///
    /// # Errors
    /// Returns the errors of [`Source::read_ranges`].
    pub fn and(mut self, range: Range<u64>) -> Result<Self, Error> {
        if !range.is_empty() {
            let bytes = self.source.read_range(range.clone())?;
            self.parts.push((range.start, bytes));
        }
        Ok(self)
    }

    /// Returns the prefetched bytes at the start of the source.
    pub fn prefetched_start(&self) -> &[u8] {
        self.parts.first().filter(|(start, _)| *start == 0).map_or(&[], |(_, bytes)| bytes)
    }

    fn pieces(&self, range: Range<u64>) -> Vec<PrefetchedPiece> {
        let (mut at, mut pieces) = (range.start, Vec::new());
        for (start, bytes) in &self.parts {
            let from = at.max(*start);
            let end = start.saturating_add(bytes.len() as u64).min(range.end);
            // A part before or after the rest of the range, or an empty one.
            if end <= from {
                continue;
            }
            if at < from {
                pieces.push(PrefetchedPiece::Missing(at..from));
            }
            let within = |offset: u64| usize::try_from(offset.saturating_sub(*start)).unwrap_or(usize::MAX);
            pieces.push(PrefetchedPiece::Kept(bytes.slice(within(from)..within(end))));
            at = end;
        }
        if at < range.end {
            pieces.push(PrefetchedPiece::Missing(at..range.end));
        }
        pieces
    }
}

#[deny(clippy::missing_trait_methods)]
impl Source for Prefetched {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn is_empty(&self) -> bool {
        self.source.is_empty()
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, Error> {
        Ok(self.read_ranges(&[range])?.into_iter().next().unwrap_or_default())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        let mut rest = buffer;
        for piece in self.pieces(offset..offset.saturating_add(rest.len() as u64)) {
            let len = match &piece {
                PrefetchedPiece::Kept(bytes) => bytes.len(),
                PrefetchedPiece::Missing(range) => {
                    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
                }
            };
            let (part, later) = rest.split_at_mut(len.min(rest.len()));
            match piece {
                PrefetchedPiece::Kept(bytes) => part.copy_from_slice(&bytes),
                PrefetchedPiece::Missing(range) => self.source.read_at(part, range.start)?,
            }
            rest = later;
        }
        Ok(())
    }

    fn read_ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, Error> {
        let pieces: Vec<Vec<PrefetchedPiece>> =
            ranges.iter().map(|range| self.pieces(range.clone())).collect();
        let missing: Vec<Range<u64>> = pieces
            .iter()
            .flatten()
            .filter_map(|piece| match piece {
                PrefetchedPiece::Missing(range) => Some(range.clone()),
                PrefetchedPiece::Kept(_) => None,
            })
            .collect();
        let mut read =
            if missing.is_empty() { Vec::new() } else { self.source.read_ranges(&missing)? }.into_iter();
        let joined = pieces.into_iter().map(|pieces| {
            let mut parts = pieces.into_iter().map(|piece| match piece {
                PrefetchedPiece::Kept(bytes) => bytes,
                PrefetchedPiece::Missing(_) => read.next().unwrap_or_default(),
            });
            match (parts.next(), parts.next()) {
                (None, _) => Bytes::new(),
                (Some(only), None) => only,
                (Some(first), Some(second)) => {
                    let mut bytes = [first, second].concat();
                    parts.for_each(|part| bytes.extend_from_slice(&part));
                    bytes.into()
                }
            }
        });
        Ok(joined.collect())
    }

    fn read_window(&self, range: Range<u64>) -> Result<Window, Error> {
        let pieces = self.pieces(range.clone());
        match pieces.as_slice() {
            [PrefetchedPiece::Kept(bytes)] => Ok(bytes.clone().into()),
            [] | [PrefetchedPiece::Missing(_)] => self.source.read_window(range),
            _ => {
                let len = range.end.saturating_sub(range.start);
                let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
                Window::filled(len, |bytes| self.read_at(bytes, range.start))
            }
        }
    }

    fn read_first(&self, range: Range<u64>) -> Result<Window, Error> {
        match self.pieces(range.clone()).as_slice() {
            [PrefetchedPiece::Missing(_)] => self.source.read_first(range),
            _ => self.read_window(range),
        }
    }

    fn share(&self, range: Range<u64>) -> Result<Bytes, Error> {
        match self.pieces(range.clone()).as_slice() {
            [PrefetchedPiece::Kept(bytes)] => Ok(bytes.clone()),
            _ if self.source.is_mappable() => self.source.share(range),
            _ => self.read_range(range),
        }
    }

    fn in_memory(&self) -> Option<&[u8]> {
        self.source.in_memory()
    }

    fn file(&self) -> Option<(&File, u64)> {
        self.source.file()
    }

    fn is_mappable(&self) -> bool {
        self.source.is_mappable()
    }

    fn has_latency(&self) -> bool {
        self.source.has_latency()
    }

    fn will_read(&self, ranges: &[Range<u64>]) {
        let missing = ranges.iter().flat_map(|range| self.pieces(range.clone()));
        let missing = missing.filter_map(|piece| match piece {
            PrefetchedPiece::Missing(range) => Some(range),
            PrefetchedPiece::Kept(_) => None,
        });
        self.source.will_read(&missing.collect::<Vec<_>>());
    }

    fn locate(&self, range: Range<u64>) -> Result<Range<u64>, Error> {
        self.source.locate(range)
    }

    fn check_unchanged(&self) -> Result<(), Error> {
        self.source.check_unchanged()
    }

    fn release(&self, range: Range<u64>) {
        self.source.release(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferSource;

    #[test]
    fn every_range_has_the_bytes_of_the_source() {
        let bytes: Vec<u8> = (0..40).collect();
        let source: Arc<dyn Source> = Arc::new(BufferSource::new("x", bytes.clone()));
        let kept = Prefetched::new(source, &[0..5, 5..6, 10..20, 38..40]).expect("inside");
        assert_eq!(kept.prefetched_start(), &bytes[..5]);
        for start in 0..40 {
            for end in start..=40 {
                let range = start as u64..end as u64;
                let read = kept.read_ranges(&[range.clone(), 0..1, range]).expect("inside");
                assert_eq!(read, [&bytes[start..end], &[0], &bytes[start..end]]);
                let mut buffer = vec![0; end - start];
                kept.read_at(&mut buffer, start as u64).expect("inside");
                assert_eq!(buffer, bytes[start..end]);
            }
        }
        kept.read_range(39..41).expect_err("past the end");
        kept.read_at(&mut [0; 2], 39).expect_err("past the end");
    }
}

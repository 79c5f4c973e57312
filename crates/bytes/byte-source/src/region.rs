//! Regions of sources.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::source::send_windows;
use crate::{Blob, Error, Sink, Source, Window, slice_range};

/// A byte range of a source, as a source with offsets relative to the range. Clones share the source.
#[derive(Clone, Debug)]
pub struct Region {
    source: Arc<dyn Source>,
    range: Range<u64>,
    /// Name in messages; that of the source if it has none.
    path: Option<Arc<Path>>,
}

impl Region {
    /// Creates a region of the bytes of `range`. Returns `None` if the range is not inside the source.
    pub fn new(source: &Arc<dyn Source>, range: Range<u64>) -> Option<Self> {
        let is_inside = range.start <= range.end && range.end <= source.len();
        is_inside.then(|| Self { source: Arc::clone(source), range, path: None })
    }

    /// Creates a region of all bytes of a source.
    pub fn whole(source: &Arc<dyn Source>) -> Self {
        Self { range: 0..source.len(), source: Arc::clone(source), path: None }
    }

    /// Returns the region with a name of its own in messages, such as that of a file in an archive.
    #[must_use]
    pub fn named(self, path: &Path) -> Self {
        Self { path: Some(path.into()), ..self }
    }

    /// Returns the source of the region.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Returns the region's byte range in the source.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Returns a part of the region; `range` is relative to the region. Returns `None` if the range is not inside.
    pub fn slice(&self, range: Range<u64>) -> Option<Self> {
        let start = self.range.start.checked_add(range.start)?;
        let end = self.range.start.checked_add(range.end).filter(|end| *end <= self.range.end)?;
        (start <= end).then(|| Self { range: start..end, ..self.clone() })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Source for Region {
    fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or_else(|| self.source.path())
    }

    fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > Source::len(self)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.source.read_at(buffer, self.range.start.saturating_add(offset))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, Error> {
        self.source.read_range(self.slice(range).ok_or(io::ErrorKind::UnexpectedEof)?.range())
    }

    fn read_ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, Error> {
        let of = |range: &Range<u64>| self.slice(range.clone()).map(|part| part.range());
        let ranges: Option<Vec<Range<u64>>> = ranges.iter().map(of).collect();
        self.source.read_ranges(&ranges.ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    fn read_window(&self, range: Range<u64>) -> Result<Window, Error> {
        self.source.read_window(self.slice(range).ok_or(io::ErrorKind::UnexpectedEof)?.range())
    }

    fn read_first(&self, range: Range<u64>) -> Result<Window, Error> {
        self.source.read_first(self.slice(range).ok_or(io::ErrorKind::UnexpectedEof)?.range())
    }

    fn share(&self, range: Range<u64>) -> Result<Bytes, Error> {
        self.source.share(self.slice(range).ok_or(io::ErrorKind::UnexpectedEof)?.range())
    }

    fn in_memory(&self) -> Option<&[u8]> {
        slice_range(self.source.in_memory()?, &self.range)
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
        let of = |range: &Range<u64>| Some(self.slice(range.clone())?.range());
        self.source.will_read(&ranges.iter().filter_map(of).collect::<Vec<_>>());
    }

    fn locate(&self, range: Range<u64>) -> Result<Range<u64>, Error> {
        self.source.locate(self.slice(range).ok_or(io::ErrorKind::UnexpectedEof)?.range())
    }

    fn check_unchanged(&self) -> Result<(), Error> {
        self.source.check_unchanged()
    }

    fn release(&self, range: Range<u64>) {
        let at = |n: u64| self.range.start.saturating_add(n).min(self.range.end);
        self.source.release(at(range.start)..at(range.end));
    }
}

impl Blob for Region {
    fn len(&self) -> u64 {
        Source::len(self)
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        send_windows(&*self.source, self.range(), sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferSource;

    fn bytes() -> Vec<u8> {
        (0..1_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
    }

    #[test]
    fn a_region_is_a_source() {
        let all = bytes();
        let source: Arc<dyn Source> = Arc::new(BufferSource::new("x", all.clone()));
        let region = Region::new(&source, 1000..900_000).expect("inside");
        let part = region.slice(500..600).expect("inside");
        assert_eq!((part.range(), part.in_memory()), (1500..1600, Some(&all[1500..1600])));
        let mut buffer = [0; 50];
        part.read_at(&mut buffer, 50).expect("inside");
        assert_eq!(buffer, all[1550..1600]);
        part.read_at(&mut buffer, 51).expect_err("past the end of the region");
        part.read_at(&mut buffer, u64::MAX).expect_err("far past the end");
        let mut sent: Vec<u8> = Vec::new();
        region.write_to(&mut sent).expect("memory can be read");
        assert_eq!(sent, all[1000..900_000]);
        assert_eq!(Blob::len(&region), 899_000);
        assert!(region.slice(0..899_001).is_none() && region.slice(Range { start: 2, end: 1 }).is_none());
        assert!(region.slice(u64::MAX..u64::MAX).is_none());
        assert!(Region::new(&source, 0..1_000_001).is_none());
        assert!(Region::new(&source, Range { start: 2, end: 1 }).is_none());
        assert_eq!(Source::len(&Region::whole(&source)), 1_000_000);
    }
}

//! Sources of bytes that can be read at any offset: mapped files and buffers.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::{Blob, Error, MappedFile, Sink, WINDOW, Window};

/// Maximum distance in bytes between ranges that are read together.
const READ_TOGETHER_GAP: u64 = 64 << 10;

/// Immutable bytes that can be read at any offset.
pub trait Source: Debug + Send + Sync {
    /// Returns the name of the source in messages.
    fn path(&self) -> &Path;

    /// Returns the number of bytes.
    fn len(&self) -> u64;

    /// Returns true if the source has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// Returns an error if the bytes are not inside the source, cannot be read, or the source changed.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error>;

    /// Reads the bytes of a range.
    ///
    /// # Errors
    /// Returns an error if the range is not inside the source, cannot be read, or the source changed.
    fn read_range(&self, range: Range<u64>) -> Result<Bytes, Error> {
        Ok(self.read_ranges(&[range])?.into_iter().next().unwrap_or_default())
    }

    /// Reads the bytes of several ranges. Neighbouring ranges are read together.
    ///
    /// # Errors
    /// Returns an error if a range is not inside the source, cannot be read, or the source changed.
    fn read_ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, Error> {
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        let of = |number: &usize| ranges.get(*number).cloned().unwrap_or_default();
        order.sort_by_key(|number| of(number).start);
        let mut parts: Vec<Bytes> = vec![Bytes::new(); ranges.len()];
        let mut rest = order.as_slice();
        while let Some(first) = rest.first() {
            let Range { start, mut end } = of(first);
            let mut count = 0_usize;
            while let Some(next) = rest.get(count).map(of)
                && next.start <= end.saturating_add(READ_TOGETHER_GAP)
            {
                end = end.max(next.end);
                count = count.saturating_add(1);
            }
            let inside = end.checked_sub(start).filter(|_| end <= self.len());
            let len = inside.and_then(|len| usize::try_from(len).ok()).ok_or(io::ErrorKind::UnexpectedEof)?;
            let mut joined = vec![0; len];
            self.read_at(&mut joined, start)?;
            let joined = Bytes::from(joined);
            let (now, later) = rest.split_at_checked(count).unwrap_or_default();
            for number in now {
                let at = |n: u64| usize::try_from(n.saturating_sub(start)).unwrap_or(usize::MAX);
                let range = of(number);
                if range.start < range.end
                    && let Some(part) = parts.get_mut(*number)
                {
                    *part = joined.slice(at(range.start)..at(range.end));
                }
            }
            rest = later;
        }
        Ok(parts)
    }

    /// Reads the bytes of a range as one window, at their position and not through a map. A source that has received the
    /// bytes already shares them.
    ///
    /// # Errors
    /// Returns an error if the range is not inside the source, cannot be read, or the source changed.
    fn read_window(&self, range: Range<u64>) -> Result<Window, Error> {
        let len = range.end.saturating_sub(range.start);
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        Window::filled(len, |bytes| self.read_at(bytes, range.start))
    }

    /// Reads the first bytes of a range as one window: all of them, or fewer, but at least one, if the source shares these without a
    /// copy.
    ///
    /// # Errors
    /// Those of [`read_window`](Self::read_window).
    fn read_first(&self, range: Range<u64>) -> Result<Window, Error> {
        self.read_window(range)
    }

    /// Returns the bytes of a range, without a copy if they are in memory or mapped.
    ///
    /// # Errors
    /// Those of [`read_range`](Self::read_range).
    fn share(&self, range: Range<u64>) -> Result<Bytes, Error> {
        self.read_range(range)
    }

    /// Returns all bytes without a copy, if they are in memory or mapped.
    fn in_memory(&self) -> Option<&[u8]> {
        None
    }

    /// Returns the open file that has the bytes, and its length when it was opened, for a caller that maps it in its own way.
    /// [`locate`](Self::locate) returns the offsets in the file. `None` if no file has these bytes as they are.
    fn file(&self) -> Option<(&File, u64)> {
        None
    }

    /// Returns true if all bytes are in memory, or in a file that can be mapped, so that [`share`](Self::share) makes no copy. Does
    /// not map it.
    fn is_mappable(&self) -> bool {
        self.file().is_some() || self.in_memory().is_some()
    }

    /// Returns true if each read is a request to a service, so that a reader asks for few ranges, and for nothing that no one needs.
    fn has_latency(&self) -> bool {
        false
    }

    /// Says what will be read, and in which order, in place of what was said before. A source [with latency](Self::has_latency)
    /// requests these ranges ahead, and nothing between them.
    fn will_read(&self, ranges: &[Range<u64>]) {
        let _ = ranges;
    }

    /// Returns the range of the whole file that has the bytes of a range.
    ///
    /// # Errors
    /// Returns an error if a record that leads to the bytes cannot be read or is damaged.
    fn locate(&self, range: Range<u64>) -> Result<Range<u64>, Error> {
        Ok(range)
    }

    /// Checks that the source has not changed since it was opened.
    ///
    /// # Errors
    /// Returns [`Changed`](crate::FileChanged), or an error if the system does not report the metadata.
    fn check_unchanged(&self) -> Result<(), Error>;

    /// Returns the memory of a range to the system. Reading the range again loads it again.
    fn release(&self, range: Range<u64>) {
        let _ = range;
    }
}

/// When a reader compares what does not describe the contents, such as the local header of each record of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// When the file is opened, so that a damaged one is refused as a whole.
    AtOnce,
    /// When its bytes are read.
    WhenRead,
}

impl Checks {
    /// Returns the checks that a reader makes unless its caller knows better: at once, if a read takes no request.
    pub fn for_source(source: &dyn Source) -> Self {
        if source.has_latency() { Self::WhenRead } else { Self::AtOnce }
    }
}

/// Returns the first `len` bytes of a range, or all if that takes no copy.
///
/// # Errors
/// Those of [`Source::share`].
pub fn share_start(source: &dyn Source, range: Range<u64>, len: u64) -> Result<Bytes, Error> {
    let end = if source.is_mappable() { range.end } else { range.start.saturating_add(len).min(range.end) };
    source.share(range.start..end)
}

/// A file that was opened as a source.
pub type OpenedFile = Result<Arc<dyn Source>, crate::Error>;

/// Maps the file at `path`.
///
/// # Errors
/// Those of [`MappedFile::open`].
pub fn map_file(path: &Path) -> OpenedFile {
    Ok(Arc::new(MappedFile::open(path)?))
}

/// Opens the file at `path`, and maps it only if its bytes are needed as a slice.
///
/// # Errors
/// Those of [`MappedFile::open`], but a file that the system cannot map is read.
pub fn map_file_lazily(path: &Path) -> OpenedFile {
    Ok(Arc::new(MappedFile::open_lazily(path)?))
}

impl Source for MappedFile {
    fn path(&self) -> &Path {
        Self::path(self)
    }

    fn len(&self) -> u64 {
        Self::len(self)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        self.read_exact_at(offset, buffer)
    }

    fn share(&self, range: Range<u64>) -> Result<Bytes, Error> {
        Self::share(self, range)
    }

    fn in_memory(&self) -> Option<&[u8]> {
        self.mapped()
    }

    fn file(&self) -> Option<(&File, u64)> {
        Some((self.file(), Self::len(self)))
    }

    fn check_unchanged(&self) -> Result<(), Error> {
        Self::check_unchanged(self)
    }

    fn release(&self, range: Range<u64>) {
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Self::release(self, at(range.start)..at(range.end));
    }
}

/// Source of bytes in memory.
#[derive(Clone, Debug)]
pub struct BufferSource {
    path: PathBuf,
    bytes: Bytes,
}

impl BufferSource {
    /// Creates a source of `bytes`, called `path` in messages.
    pub fn new(path: impl Into<PathBuf>, bytes: impl Into<Bytes>) -> Self {
        Self { path: path.into(), bytes: bytes.into() }
    }
}

impl Source for BufferSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        buffer.copy_from_slice(slice_range(&self.bytes, &range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn share(&self, range: Range<u64>) -> Result<Bytes, Error> {
        let part = slice_range(&self.bytes, &range).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(self.bytes.slice_ref(part))
    }

    fn in_memory(&self) -> Option<&[u8]> {
        Some(&self.bytes)
    }

    fn check_unchanged(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Sends all bytes of the file.
impl Blob for Arc<MappedFile> {
    fn len(&self) -> u64 {
        MappedFile::len(self)
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        send_windows(&**self, 0..MappedFile::len(self), sink)
    }
}

/// Sends the bytes of a range to `sink`, window by window.
pub(crate) fn send_windows(source: &dyn Source, range: Range<u64>, sink: &mut dyn Sink) -> Result<(), Error> {
    each_window(source, range, |window| sink.write(window))
}

/// Reads the bytes of a range in windows of at most [`WINDOW`] bytes, and hands over each.
///
/// # Errors
/// Those of [`Source::read_first`] and of `take`.
pub fn each_window(
    source: &dyn Source,
    range: Range<u64>,
    mut take: impl FnMut(Window) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut at = range.start;
    while at < range.end {
        let window = source.read_first(at..at.saturating_add(WINDOW as u64).min(range.end))?;
        if window.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at = at.saturating_add(window.len() as u64);
        take(window)?;
    }
    Ok(())
}

/// Sequential reader of a byte range of a source, which does not touch a map.
#[derive(Debug)]
pub struct SourceReader<'s> {
    source: &'s dyn Source,
    /// Byte range that remains to be read.
    range: Range<u64>,
}

impl<'s> SourceReader<'s> {
    /// Creates a reader of the bytes of `range`.
    pub fn new(source: &'s dyn Source, range: Range<u64>) -> Self {
        Self { source, range }
    }
}

impl io::Read for SourceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.range.end.saturating_sub(self.range.start)).unwrap_or(usize::MAX);
        let len = left.min(buffer.len());
        self.source.read_at(buffer.get_mut(..len).unwrap_or_default(), self.range.start)?;
        self.range.start = self.range.start.saturating_add(len as u64);
        Ok(len)
    }
}

/// Reader of a source that can go to any offset.
#[derive(Debug)]
pub struct SeekableSource<'s> {
    source: &'s dyn Source,
    at: u64,
}

impl<'s> SeekableSource<'s> {
    /// Creates a reader at the first byte.
    pub fn new(source: &'s dyn Source) -> Self {
        Self { source, at: 0 }
    }
}

impl io::Read for SeekableSource<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.source.len().saturating_sub(self.at)).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        let Some(part) = buffer.get_mut(..count).filter(|part| !part.is_empty()) else { return Ok(0) };
        self.source.read_at(part, self.at)?;
        self.at = self.at.saturating_add(count as u64);
        Ok(count)
    }
}

impl io::Seek for SeekableSource<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let at = match to {
            io::SeekFrom::Start(offset) => Some(offset),
            io::SeekFrom::End(offset) => self.source.len().checked_add_signed(offset),
            io::SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// Returns the bytes of a range; `None` if the range is not inside.
pub fn slice_range<'b>(bytes: &'b [u8], range: &Range<u64>) -> Option<&'b [u8]> {
    bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

/// Splits a range into consecutive parts of [`WINDOW`] bytes; the last part may be shorter.
pub fn window_ranges(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    window_ranges_of(range, WINDOW as u64)
}

/// Splits a range like [`window_ranges`], into parts of `len` bytes: at least 1 and at most [`WINDOW`].
pub fn window_ranges_of(range: Range<u64>, len: u64) -> impl Iterator<Item = Range<u64>> {
    let len = len.clamp(1, WINDOW as u64);
    let mut start = range.start;
    std::iter::from_fn(move || {
        let end = start.saturating_add(len).min(range.end);
        let window = (start < end).then_some(start..end);
        start = end;
        window
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_into_windows() {
        const LEN: u64 = WINDOW as u64;
        assert_eq!(window_ranges(3..3).count(), 0);
        assert!(window_ranges(5..LEN).eq(std::iter::once(5..LEN)));
        assert_eq!(
            window_ranges(5..5 + 2 * LEN + 1).collect::<Vec<_>>(),
            [5..5 + LEN, 5 + LEN..5 + 2 * LEN, 5 + 2 * LEN..6 + 2 * LEN]
        );
        assert_eq!(window_ranges(Range { start: 2, end: 1 }).count(), 0);
    }
}

//! Writes entries into a sink in one pass, and computes their layout beforehand.

use std::io;
use std::ops::Range;

use byte_source::{Blob, Crc32, ReadError, Sink, WINDOW, Window};

use crate::record::{Comment, FILE, LINK, Record, ZSTD, end};

/// The content of an entry.
#[derive(Clone, Copy)]
pub enum Content<'b> {
    /// Bytes that are known in advance: the CRC is in the local header.
    Bytes(&'b [u8]),
    /// Bytes that are streamed: the CRC is in a descriptor after them.
    Blob(&'b dyn Blob),
    /// Bytes that were compressed earlier: their CRC and sizes are in the local header.
    Packed(Packed<'b>),
    /// A symbolic link; the bytes are the path that it leads to.
    Link(&'b [u8]),
}

/// Compressed bytes, with the length and CRC of the original.
#[derive(Clone, Copy)]
pub struct Packed<'b> {
    /// The compressed bytes.
    pub blob: &'b dyn Blob,
    /// How they are compressed.
    pub method: Method,
    /// Bytes before compression.
    pub len: u64,
    /// The CRC-32 of the bytes before compression.
    pub crc: u32,
}

/// How an entry's data are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Deflate, zip's method 8.
    Deflated,
    /// One Zstandard frame, zip's method 93.
    Zstd,
}

impl Content<'_> {
    fn packed_len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::Link(bytes) => bytes.len() as u64,
            Self::Blob(blob) => blob.len(),
            Self::Packed(packed) => packed.blob.len(),
        }
    }
}

/// One file of the zip.
pub struct Entry<'b> {
    /// The path inside the zip, with `/` between its parts.
    pub name: &'b str,
    /// Its data start at a multiple of this many bytes; 0 and 1 mean anywhere.
    pub alignment: u64,
    /// Its data.
    pub content: Content<'b>,
}

impl<'b> Entry<'b> {
    fn record(&self, offset: u64) -> io::Result<Record<'b>> {
        if self.name.len() > usize::from(u16::MAX) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a zip file holds names of at most 65535 bytes, not {}", self.name.len()),
            ));
        }
        let packed_len = self.content.packed_len();
        let mut record = Record {
            name: self.name,
            offset,
            len: packed_len,
            packed_len,
            method: 0,
            attributes: FILE,
            descriptor: false,
            crc: 0,
        };
        match self.content {
            Content::Bytes(bytes) => record.crc = crc32fast::hash(bytes),
            Content::Blob(_) => record.descriptor = true,
            Content::Packed(packed) => {
                record.len = packed.len;
                record.crc = packed.crc;
                record.method = match packed.method {
                    Method::Deflated => 8,
                    Method::Zstd => ZSTD,
                };
            }
            Content::Link(target) => {
                record.crc = crc32fast::hash(target);
                record.attributes = LINK;
            }
        }
        Ok(record)
    }
}

/// Where a [`ZipWriter`] puts the data of its entries. All numbers are bytes from the start of the zip file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The data of each entry as they are in the file, without header and descriptor.
    pub data: Vec<Range<u64>>,
    /// The length of the zip file.
    pub len: u64,
}

/// The layout of the zip file that a [`ZipWriter`] makes of these entries.
///
/// ```
/// use zip_layout::{Content, Entry, layout};
///
/// let entry = |name| Entry { name, alignment: 64, content: Content::Bytes(b"abc") };
/// let layout = layout([entry("a"), entry("b")])?;
/// assert_eq!(layout.data, [64..67, 128..131]);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// When a name is longer than a zip file can hold, or the sum is larger than 64 bits.
pub fn layout<'b>(entries: impl IntoIterator<Item = Entry<'b>>) -> io::Result<Layout> {
    let mut plan = Plan::default();
    let data = entries.into_iter().map(|entry| plan.add(&entry)).collect::<io::Result<_>>()?;
    Ok(Layout { data, len: plan.finish()? })
}

/// The same for entries that are made one after the other, because all of them together would take much memory.
#[derive(Debug, Default)]
pub struct Plan {
    /// Bytes of the entries so far.
    offset: u64,
    /// Bytes of their lines in the directory.
    directory: u64,
    entries: u64,
    /// The record whose bytes are being counted.
    record: Vec<u8>,
}

impl Plan {
    /// Adds an entry, and returns where its data are.
    ///
    /// # Errors
    /// When the name is longer than a zip file can hold, or the sum is larger than 64 bits.
    pub fn add(&mut self, entry: &Entry<'_>) -> io::Result<Range<u64>> {
        let record = entry.record(self.offset)?;
        let header = self.len_of(|out| record.local_header(entry.alignment, out));
        let descriptor = if record.descriptor { self.len_of(|out| record.descriptor(out)) } else { 0 };
        let line = self.len_of(|out| record.central_header(out));
        let start = self.offset.checked_add(header).ok_or_else(too_large)?;
        let end = start.checked_add(record.packed_len).ok_or_else(too_large)?;
        self.offset = end.checked_add(descriptor).ok_or_else(too_large)?;
        self.directory = self.directory.saturating_add(line);
        self.entries = self.entries.saturating_add(1);
        Ok(start..end)
    }

    /// The length of the zip file with the entries so far.
    ///
    /// # Errors
    /// When it is larger than 64 bits.
    pub fn finish(self) -> io::Result<u64> {
        self.finish_with_comment("")
    }

    /// The same, with a comment on the archive at its end.
    ///
    /// # Errors
    /// When it is larger than 64 bits, or the comment is longer than a zip file can hold.
    pub fn finish_with_comment(mut self, comment: &str) -> io::Result<u64> {
        let comment = checked(comment)?;
        let (entries, offset, directory) = (self.entries, self.offset, self.directory);
        let end = self.len_of(|out| end(entries, offset, directory, &comment, out));
        offset.checked_add(directory).and_then(|len| len.checked_add(end)).ok_or_else(too_large)
    }

    fn len_of(&mut self, append: impl FnOnce(&mut Vec<u8>)) -> u64 {
        self.record.clear();
        append(&mut self.record);
        self.record.len() as u64
    }
}

fn checked(comment: &str) -> io::Result<Comment<'_>> {
    Comment::new(comment.as_bytes()).ok_or_else(|| {
        let len = comment.len();
        let text = format!("a zip file holds a comment of at most 65535 bytes, not {len}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the zip file is larger than 2^64 bytes")
}

/// Smaller windows are collected: passing on a header of 100 bytes would cost more than copying it.
const SMALL: usize = WINDOW / 16;

/// Writes a zip file, entry by entry, into a [`Sink`].
///
/// Headers and small contents are collected into windows of at least 64 KiB.
pub struct ZipWriter<'s> {
    out: Collected<'s>,
    directory: Vec<u8>,
    entries: u64,
}

impl<'s> ZipWriter<'s> {
    /// A zip file that starts with the sink's next byte.
    pub fn new(sink: &'s mut dyn Sink) -> Self {
        let out = Collected { sink, small: Vec::new(), sent: 0 };
        Self { out, directory: Vec::new(), entries: 0 }
    }

    /// Writes one entry.
    ///
    /// # Errors
    /// When the name is too long, a blob sends another number of bytes than it announced, or the sink
    /// fails.
    pub fn add(&mut self, entry: &Entry<'_>) -> Result<(), ReadError> {
        let mut record = entry.record(self.out.len())?;
        record.local_header(entry.alignment, &mut self.out.small);
        match &entry.content {
            Content::Bytes(bytes) | Content::Link(bytes) => self.out.write_all(bytes)?,
            Content::Blob(blob) => {
                record.crc = self.pass(*blob, &record)?;
                record.descriptor(&mut self.out.small);
            }
            Content::Packed(packed) => {
                self.pass(packed.blob, &record)?;
            }
        }
        record.central_header(&mut self.directory);
        self.entries = self.entries.saturating_add(1);
        self.out.flush_if_full()
    }

    /// Writes the central directory and the end records.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn finish(self) -> Result<(), ReadError> {
        self.finish_with_comment("")
    }

    /// The same, with a comment on the archive at its end.
    ///
    /// # Errors
    /// When the sink fails, or the comment is longer than a zip file can hold.
    pub fn finish_with_comment(mut self, comment: &str) -> Result<(), ReadError> {
        let comment = checked(comment)?;
        let directory = std::mem::take(&mut self.directory);
        let offset = self.out.len();
        self.out.write_all(&directory)?;
        end(self.entries, offset, directory.len() as u64, &comment, &mut self.out.small);
        self.out.flush()
    }

    /// Sends the data of an entry and returns their CRC-32.
    fn pass(&mut self, blob: &dyn Blob, record: &Record<'_>) -> Result<u32, ReadError> {
        let mut sums = Checksum { sink: &mut self.out, crc: Crc32::default(), len: 0 };
        blob.write_to(&mut sums)?;
        if sums.len != record.packed_len {
            let Record { name, packed_len, .. } = record;
            let text = format!("`{name}` announced {packed_len} bytes and sent {}", sums.len);
            return Err(io::Error::other(text).into());
        }
        Ok(sums.crc.sum())
    }
}

/// Passes bytes on, small ones together.
struct Collected<'s> {
    sink: &'s mut dyn Sink,
    small: Vec<u8>,
    /// Bytes that the sink has taken.
    sent: u64,
}

impl Collected<'_> {
    /// Bytes so far.
    fn len(&self) -> u64 {
        self.sent.saturating_add(self.small.len() as u64)
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        bytes.chunks(SMALL).try_for_each(|chunk| {
            self.small.extend_from_slice(chunk);
            self.flush_if_full()
        })
    }

    fn flush_if_full(&mut self) -> Result<(), ReadError> {
        if self.small.len() < SMALL { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), ReadError> {
        let small = std::mem::replace(&mut self.small, Vec::with_capacity(2 * SMALL));
        if small.is_empty() { Ok(()) } else { self.send(Window::owned(small)) }
    }

    fn send(&mut self, window: Window) -> Result<(), ReadError> {
        self.sent = self.sent.saturating_add(window.len() as u64);
        self.sink.write(window)
    }
}

impl Sink for Collected<'_> {
    fn write(&mut self, window: Window) -> Result<(), ReadError> {
        if window.len() < SMALL {
            return self.write_all(&window);
        }
        self.flush()?;
        self.send(window)
    }
}

/// Counts the bytes that pass through, and computes their CRC-32.
struct Checksum<'s, 'o> {
    sink: &'s mut Collected<'o>,
    crc: Crc32,
    len: u64,
}

impl Sink for Checksum<'_, '_> {
    fn write(&mut self, window: Window) -> Result<(), ReadError> {
        self.crc.add(&window);
        self.len = self.len.saturating_add(window.len() as u64);
        self.sink.write(window)
    }
}

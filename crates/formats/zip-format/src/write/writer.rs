//! Writer of entries to a sink in one pass, and computation of their layout beforehand.

use std::io;
use std::ops::Range;

use byte_source::{Blob, Crc32, Sink, WINDOW, Window};

use crate::CompressionMethod;
use crate::write::record::{Comment, FILE, LINK, Record, append_end_records};

/// Content of a zip entry.
#[derive(Clone, Copy)]
pub enum EntryContent<'b> {
    /// Bytes in memory: the CRC is in the local header.
    Bytes(&'b [u8]),
    /// Streamed bytes: the CRC is in a data descriptor after them.
    Blob(&'b dyn Blob),
    /// Compressed bytes: the CRC and both sizes are in the local header.
    Packed(CompressedContent<'b>),
    /// A symbolic link; the bytes are the path of the target.
    Link(&'b [u8]),
}

/// Compressed bytes of an entry, with the length and CRC of the original bytes.
#[derive(Clone, Copy)]
pub struct CompressedContent<'b> {
    pub blob: &'b dyn Blob,
    pub method: CompressionMethod,
    /// Length before compression, in bytes.
    pub len: u64,
    /// CRC-32 of the bytes before compression.
    pub crc: u32,
}

impl EntryContent<'_> {
    fn packed_len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::Link(bytes) => bytes.len() as u64,
            Self::Blob(blob) => blob.len(),
            Self::Packed(packed) => packed.blob.len(),
        }
    }
}

/// One file to write into a zip file.
pub struct NewZipEntry<'b> {
    /// Path inside the zip file, with `/` between its parts.
    pub name: &'b str,
    /// Alignment of the data's offset in bytes; 0 and 1 mean no alignment.
    pub alignment: u64,
    pub content: EntryContent<'b>,
}

impl<'b> NewZipEntry<'b> {
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
            uses_descriptor: false,
            crc: 0,
        };
        match self.content {
            EntryContent::Bytes(bytes) => record.crc = crc32fast::hash(bytes),
            EntryContent::Blob(_) => record.uses_descriptor = true,
            EntryContent::Packed(packed) => {
                record.len = packed.len;
                record.crc = packed.crc;
                record.method = packed.method.into();
            }
            EntryContent::Link(target) => {
                record.crc = crc32fast::hash(target);
                record.attributes = LINK;
            }
        }
        Ok(record)
    }
}

/// Byte ranges of the entries' data in the zip file that a [`ZipWriter`] writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZipLayout {
    /// Byte range of each entry's stored data, without header and descriptor, from the start of the zip file.
    pub data: Vec<Range<u64>>,
    /// Length of the zip file in bytes.
    pub len: u64,
}

/// Computes the layout of the zip file that a [`ZipWriter`] writes for these entries.
///
/// ```
/// use zip_format::{EntryContent, NewZipEntry, layout};
///
/// let entry = |name| NewZipEntry { name, alignment: 64, content: EntryContent::Bytes(b"abc") };
/// let layout = layout([entry("a"), entry("b")])?;
/// assert_eq!(layout.data, [64..67, 128..131]);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Returns an error if a name is longer than 65,535 bytes, or the length of the zip file does not fit 64 bits.
pub fn layout<'b>(entries: impl IntoIterator<Item = NewZipEntry<'b>>) -> io::Result<ZipLayout> {
    let mut plan = LayoutBuilder::default();
    let data = entries.into_iter().map(|entry| plan.add(&entry)).collect::<io::Result<_>>()?;
    Ok(ZipLayout { data, len: plan.finish()? })
}

/// Incremental form of [`layout`], for entries that would take too much memory all together.
#[derive(Debug, Default)]
pub struct LayoutBuilder {
    /// Length of the entries so far, in bytes.
    offset: u64,
    /// Length of their central headers, in bytes.
    directory: u64,
    entries: u64,
    /// Reused buffer for the record whose length is being computed.
    record: Vec<u8>,
}

impl LayoutBuilder {
    /// Adds an entry, and returns the byte range of its data.
    ///
    /// # Errors
    /// Returns an error if the name is longer than 65,535 bytes, or the length of the zip file does not fit 64 bits.
    pub fn add(&mut self, entry: &NewZipEntry<'_>) -> io::Result<Range<u64>> {
        let record = entry.record(self.offset)?;
        let header = self.len_of(|out| record.append_local_header(entry.alignment, out));
        let descriptor =
            if record.uses_descriptor { self.len_of(|out| record.append_descriptor(out)) } else { 0 };
        let line = self.len_of(|out| record.append_central_header(out));
        let start = self.offset.checked_add(header).ok_or_else(too_large)?;
        let end = start.checked_add(record.packed_len).ok_or_else(too_large)?;
        self.offset = end.checked_add(descriptor).ok_or_else(too_large)?;
        self.directory = self.directory.saturating_add(line);
        self.entries = self.entries.saturating_add(1);
        Ok(start..end)
    }

    /// Returns the length of the zip file with the entries so far, in bytes.
    ///
    /// # Errors
    /// Returns an error if the length does not fit 64 bits.
    pub fn finish(self) -> io::Result<u64> {
        self.finish_with_comment("")
    }

    /// Returns the length of the zip file with a comment at the end of the archive, in bytes.
    ///
    /// # Errors
    /// Returns an error if the length does not fit 64 bits, or the comment is longer than 65,535 bytes.
    pub fn finish_with_comment(mut self, comment: &str) -> io::Result<u64> {
        let comment = checked_comment(comment)?;
        let (entries, offset, directory) = (self.entries, self.offset, self.directory);
        let end = self.len_of(|out| append_end_records(entries, offset, directory, &comment, out));
        offset.checked_add(directory).and_then(|len| len.checked_add(end)).ok_or_else(too_large)
    }

    fn len_of(&mut self, append: impl FnOnce(&mut Vec<u8>)) -> u64 {
        self.record.clear();
        append(&mut self.record);
        self.record.len() as u64
    }
}

fn checked_comment(comment: &str) -> io::Result<Comment<'_>> {
    Comment::new(comment.as_bytes()).ok_or_else(|| {
        let len = comment.len();
        let text = format!("a zip file holds a comment of at most 65535 bytes, not {len}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the zip file is larger than 2^64 bytes")
}

/// Windows smaller than this are collected: sending a header of 100 bytes on its own costs more than copying it.
const COALESCE_BELOW: usize = WINDOW / 16;

/// Writer of a zip file, entry by entry, to a [`Sink`].
///
/// Headers and small contents are collected in windows of at least 64 KiB.
pub struct ZipWriter<'s> {
    out: CoalescingSink<'s>,
    directory: Vec<u8>,
    entries: u64,
}

impl<'s> ZipWriter<'s> {
    /// Starts a zip file at the sink's next byte.
    pub fn new(sink: &'s mut dyn Sink) -> Self {
        let out = CoalescingSink { sink, collected_bytes: Vec::new(), sent: 0 };
        Self { out, directory: Vec::new(), entries: 0 }
    }

    /// Writes one entry: local header, data, and data descriptor if there is one.
    ///
    /// # Errors
    /// Returns an error if the name is too long, a blob sends a different number of bytes than announced, or the sink
    /// fails.
    pub fn add(&mut self, entry: &NewZipEntry<'_>) -> Result<(), byte_source::Error> {
        let mut record = entry.record(self.out.len())?;
        record.append_local_header(entry.alignment, &mut self.out.collected_bytes);
        match &entry.content {
            EntryContent::Bytes(bytes) | EntryContent::Link(bytes) => self.out.write_all(bytes)?,
            EntryContent::Blob(blob) => {
                record.crc = self.send_data(*blob, &record)?;
                record.append_descriptor(&mut self.out.collected_bytes);
            }
            EntryContent::Packed(packed) => {
                self.send_data(packed.blob, &record)?;
            }
        }
        record.append_central_header(&mut self.directory);
        self.entries = self.entries.saturating_add(1);
        self.out.flush_if_full()
    }

    /// Writes the central directory and the end records.
    ///
    /// # Errors
    /// Returns an error if the sink fails.
    pub fn finish(self) -> Result<(), byte_source::Error> {
        self.finish_with_comment("")
    }

    /// Writes the central directory and the end records, with a comment at the end of the archive.
    ///
    /// # Errors
    /// Returns an error if the sink fails, or the comment is longer than 65,535 bytes.
    pub fn finish_with_comment(mut self, comment: &str) -> Result<(), byte_source::Error> {
        let comment = checked_comment(comment)?;
        let directory = std::mem::take(&mut self.directory);
        let offset = self.out.len();
        self.out.write_all(&directory)?;
        append_end_records(
            self.entries,
            offset,
            directory.len() as u64,
            &comment,
            &mut self.out.collected_bytes,
        );
        self.out.flush()
    }

    /// Sends the data of an entry to the sink and returns their CRC-32.
    fn send_data(&mut self, blob: &dyn Blob, record: &Record<'_>) -> Result<u32, byte_source::Error> {
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

/// Sink that collects small windows before it passes them on.
struct CoalescingSink<'s> {
    sink: &'s mut dyn Sink,
    collected_bytes: Vec<u8>,
    /// Number of bytes passed on to the sink.
    sent: u64,
}

impl CoalescingSink<'_> {
    /// Returns the number of bytes written so far, including collected bytes.
    fn len(&self) -> u64 {
        self.sent.saturating_add(self.collected_bytes.len() as u64)
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), byte_source::Error> {
        bytes.chunks(COALESCE_BELOW).try_for_each(|chunk| {
            self.collected_bytes.extend_from_slice(chunk);
            self.flush_if_full()
        })
    }

    fn flush_if_full(&mut self) -> Result<(), byte_source::Error> {
        if self.collected_bytes.len() < COALESCE_BELOW { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), byte_source::Error> {
        let small = std::mem::replace(&mut self.collected_bytes, Vec::with_capacity(2 * COALESCE_BELOW));
        if small.is_empty() { Ok(()) } else { self.send(Window::owned(small)) }
    }

    fn send(&mut self, window: Window) -> Result<(), byte_source::Error> {
        self.sent = self.sent.saturating_add(window.len() as u64);
        self.sink.write(window)
    }
}

impl Sink for CoalescingSink<'_> {
    fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
        if window.len() < COALESCE_BELOW {
            return self.write_all(&window);
        }
        self.flush()?;
        self.send(window)
    }
}

/// Sink that counts the bytes passing through, and computes their CRC-32.
struct Checksum<'s, 'o> {
    sink: &'s mut CoalescingSink<'o>,
    crc: Crc32,
    len: u64,
}

impl Sink for Checksum<'_, '_> {
    fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
        self.crc.add(&window);
        self.len = self.len.saturating_add(window.len() as u64);
        self.sink.write(window)
    }
}

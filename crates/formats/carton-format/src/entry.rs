//! Stream over one file of a carton, with its checksum and hash checked at the end.
//!
//! Facts: the Carton v1 specification; `zip-format` for the compression methods.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::sync::Arc;

use byte_source::{Sha256, WINDOW, Window, hex};
use zip_format::CompressionMethod;

use crate::{Error, Problem, Result};

/// Directory entry of one file of a carton.
#[derive(Clone, Debug)]
pub struct CartonEntry {
    /// Path in the carton, such as `model/model.pt`.
    pub path: String,
    /// Length in bytes after decompression.
    pub len: u64,
    /// Length in bytes as stored in the carton.
    pub packed_len: u64,
    /// Compression method of the stored data.
    pub method: CompressionMethod,
    /// True for a symbolic link, whose data is the path of its target.
    pub is_symbolic_link: bool,
    /// Range of the data in the zip file, and its CRC-32; `None` in a folder.
    pub(crate) data_and_crc: Option<(Range<u64>, u32)>,
}

/// Source of an entry's bytes.
enum EntrySource {
    /// Windows of uncompressed data in the zip file.
    Stored(ZipRangeReader),
    Deflated(Box<flate2::bufread::DeflateDecoder<ZipRangeReader>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, ZipRangeReader>>),
    /// A file of an unpacked folder.
    File(File),
    /// Target path of a link in an unpacked folder.
    Link(io::Cursor<Vec<u8>>),
}

/// Expected checksum and hash, which are compared at the end.
pub(crate) struct ExpectedSums {
    pub(crate) crc: Option<u32>,
    pub(crate) sha256: Option<[u8; 32]>,
}

/// Reader of one entry's bytes. The last read fails if the bytes do not match the zip directory or MANIFEST. Memory is a few
/// megabytes for any length.
pub struct EntryReader {
    path: String,
    len: u64,
    source: EntrySource,
    expected: ExpectedSums,
    chunk: EntryChunk,
    /// Number of consumed bytes of the chunk.
    taken: usize,
    read: u64,
    crc: crc32fast::Hasher,
    sha256: Sha256,
    is_finished: bool,
}

enum EntryChunk {
    Window(Window),
    /// A buffer, and the number of filled bytes in it.
    Bytes(Vec<u8>, usize),
}

impl EntryChunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Window(window) => window,
            Self::Bytes(bytes, len) => bytes.get(..*len).unwrap_or_default(),
        }
    }
}

impl EntryReader {
    pub(crate) fn zipped(
        file: &Arc<dyn byte_source::Source>,
        entry: &CartonEntry,
        expected: ExpectedSums,
    ) -> Result<Self> {
        let (range, _) = entry.data_and_crc.clone().unwrap_or_default();
        let windows = ZipRangeReader {
            file: Arc::clone(file),
            next: range.start,
            end: range.end,
            window: None,
            taken: 0,
        };
        let source = match entry.method {
            CompressionMethod::Stored => EntrySource::Stored(windows),
            CompressionMethod::Deflated => {
                EntrySource::Deflated(Box::new(flate2::bufread::DeflateDecoder::new(windows)))
            }
            CompressionMethod::Zstd => {
                let decoder =
                    zstd::stream::read::Decoder::with_buffer(windows).map_err(Problem::WriteOutput)?;
                EntrySource::Zstd(Box::new(decoder.single_frame()))
            }
            CompressionMethod::Other(method) => {
                return Err(Problem::Method { path: entry.path.clone(), method }.into());
            }
        };
        Ok(Self::new(entry, source, expected))
    }

    /// Creates a reader of a file in an unpacked folder.
    pub(crate) fn file(file: File, entry: &CartonEntry, expected: ExpectedSums) -> Self {
        Self::new(entry, EntrySource::File(file), expected)
    }

    /// Creates a reader of a link in an unpacked folder.
    pub(crate) fn link(target: Vec<u8>, entry: &CartonEntry) -> Self {
        Self::new(entry, EntrySource::Link(io::Cursor::new(target)), ExpectedSums { crc: None, sha256: None })
    }

    fn new(entry: &CartonEntry, source: EntrySource, expected: ExpectedSums) -> Self {
        Self {
            path: entry.path.clone(),
            len: entry.len,
            source,
            expected,
            chunk: EntryChunk::Bytes(Vec::new(), 0),
            taken: 0,
            read: 0,
            crc: crc32fast::Hasher::new(),
            sha256: Sha256::default(),
            is_finished: false,
        }
    }

    /// Reads and checks the next chunk of at most [`WINDOW`] bytes; an empty chunk is the end.
    fn advance(&mut self) -> Result<()> {
        self.taken = 0;
        let chunk = std::mem::replace(&mut self.chunk, EntryChunk::Bytes(Vec::new(), 0));
        let decompress = |error: io::Error| match Error::from(error) {
            error if error.io_kind().is_some() => {
                Error::from(Problem::Decompress { path: self.path.clone(), reason: error.to_string() })
            }
            error => error,
        };
        self.chunk = match &mut self.source {
            EntrySource::Stored(windows) => match windows.take()? {
                Some(window) => EntryChunk::Window(window),
                None => EntryChunk::Bytes(Vec::new(), 0),
            },
            EntrySource::Deflated(decoder) => fill_chunk(chunk, decoder).map_err(decompress)?,
            EntrySource::Zstd(decoder) => fill_chunk(chunk, decoder).map_err(decompress)?,
            EntrySource::File(file) => fill_chunk(chunk, file)?,
            EntrySource::Link(target) => fill_chunk(chunk, target)?,
        };
        let bytes = self.chunk.bytes();
        self.read = self.read.saturating_add(bytes.len() as u64);
        if self.read > self.len {
            return Err(self.length_error(true));
        }
        if bytes.is_empty() {
            self.is_finished = true;
            return self.finish();
        }
        if self.expected.crc.is_some() {
            self.crc.update(bytes);
        }
        if self.expected.sha256.is_some() {
            self.sha256.update(bytes);
        }
        Ok(())
    }

    fn length_error(&self, more: bool) -> Error {
        let (path, found, expected) = (self.path.clone(), self.read, self.len);
        Problem::Length { path, found, is_at_least: more, expected }.into()
    }

    fn finish(&mut self) -> Result<()> {
        if self.read != self.len {
            return Err(self.length_error(false));
        }
        let left = match &self.source {
            EntrySource::Deflated(decoder) => decoder.get_ref().unread_len(),
            EntrySource::Zstd(decoder) => decoder.get_ref().unread_len(),
            _ => 0,
        };
        if left > 0 {
            let reason = format!("{left} bytes follow the end of the compressed data");
            return Err(Problem::Decompress { path: self.path.clone(), reason }.into());
        }
        let damaged = |sum, found, listed_in, expected| {
            let path = self.path.clone();
            Err(Problem::Damaged { path, sum, found, listed_in, expected }.into())
        };
        let found = std::mem::take(&mut self.crc).finalize();
        if let Some(expected) = self.expected.crc
            && expected != found
        {
            return damaged("CRC-32", format!("{found:08x}"), "the zip file", format!("{expected:08x}"));
        }
        let found = std::mem::take(&mut self.sha256).digest();
        if let Some(expected) = self.expected.sha256
            && expected != found
        {
            return damaged("SHA-256", hex(&found), "MANIFEST", hex(&expected));
        }
        Ok(())
    }
}

/// Reads from the source until the chunk is full or the source ends.
fn fill_chunk(chunk: EntryChunk, source: &mut dyn Read) -> io::Result<EntryChunk> {
    let mut bytes = match chunk {
        EntryChunk::Bytes(bytes, _) if !bytes.is_empty() => bytes,
        _ => vec![0; WINDOW],
    };
    let mut len = 0_usize;
    loop {
        let room = bytes.get_mut(len..).unwrap_or_default();
        if room.is_empty() {
            break;
        }
        match source.read(room) {
            Ok(0) => break,
            Ok(read) => len = len.saturating_add(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(EntryChunk::Bytes(bytes, len))
}

impl BufRead for EntryReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if !self.is_finished && self.taken >= self.chunk.bytes().len() {
            self.advance()?;
        }
        Ok(self.chunk.bytes().get(self.taken..).unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        self.taken = self.taken.saturating_add(amount);
    }
}

impl Read for EntryReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut bytes = self.fill_buf()?;
        let read = bytes.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

/// Reader of a range of a zip file, one window at a time.
struct ZipRangeReader {
    file: Arc<dyn byte_source::Source>,
    next: u64,
    end: u64,
    window: Option<Window>,
    taken: usize,
}

impl ZipRangeReader {
    /// Reads the next window; `None` after the last one.
    fn take(&mut self) -> Result<Option<Window>> {
        if self.next >= self.end {
            return Ok(None);
        }
        let end = self.next.saturating_add(WINDOW as u64).min(self.end);
        let window = Window::read(&*self.file, self.next..end)?;
        self.next = end;
        Ok(Some(window))
    }

    fn unread_len(&self) -> u64 {
        let window = self.window.as_ref().map_or(0, |window| window.len().saturating_sub(self.taken));
        self.end.saturating_sub(self.next).saturating_add(window as u64)
    }
}

impl BufRead for ZipRangeReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.window.as_ref().is_none_or(|window| self.taken >= window.len()) {
            self.taken = 0;
            self.window = self.take()?;
        }
        Ok(self.window.as_ref().and_then(|window| window.get(self.taken..)).unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        self.taken = self.taken.saturating_add(amount);
    }
}

impl Read for ZipRangeReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut bytes = self.fill_buf()?;
        let read = bytes.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

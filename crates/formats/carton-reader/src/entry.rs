//! Stream over one file of a carton, with its checksum and hash checked at the end.
//!
//! Facts: the Carton v1 specification; `zip-index` for the compression methods.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::sync::Arc;

use byte_source::{ReadError, WINDOW, Window};
use carton_format::sha256_to_hex;
use sha2::{Digest, Sha256};
use zip_index::Method;

use crate::Error;

/// Directory entry of one file of a carton.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Path in the carton, such as `model/model.pt`.
    pub path: String,
    /// Length in bytes after decompression.
    pub len: u64,
    /// Length in bytes as stored in the carton.
    pub packed_len: u64,
    /// Compression method of the stored data.
    pub method: Method,
    /// True for a symbolic link, whose data is the path of its target.
    pub link: bool,
    /// Range of the data in the zip file, and its CRC-32; `None` in a folder.
    pub(crate) place: Option<(Range<u64>, u32)>,
}

/// Source of an entry's bytes.
enum Source {
    /// Windows of uncompressed data in the zip file.
    Stored(Windows),
    Deflated(Box<flate2::bufread::DeflateDecoder<Windows>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Windows>>),
    /// A file of an unpacked folder.
    File(File),
    /// Target path of a link in an unpacked folder.
    Link(io::Cursor<Vec<u8>>),
}

/// Expected checksum and hash, which are compared at the end.
pub(crate) struct Expected {
    pub(crate) crc: Option<u32>,
    pub(crate) sha256: Option<[u8; 32]>,
}

/// Reader of one entry's bytes. The last read fails if the bytes do not match the zip directory or MANIFEST. Memory is a few
/// megabytes for any length.
pub struct EntryReader {
    path: String,
    len: u64,
    source: Source,
    expected: Expected,
    chunk: Chunk,
    /// Number of consumed bytes of the chunk.
    taken: usize,
    read: u64,
    crc: crc32fast::Hasher,
    sha256: Sha256,
    done: bool,
}

enum Chunk {
    Window(Window),
    /// A buffer, and the number of filled bytes in it.
    Bytes(Vec<u8>, usize),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Window(window) => window,
            Self::Bytes(bytes, len) => bytes.get(..*len).unwrap_or_default(),
        }
    }
}

impl EntryReader {
    /// Creates a reader of an entry of a zip file.
    pub(crate) fn zipped(
        file: &Arc<dyn byte_source::Source>,
        entry: &Entry,
        expected: Expected,
    ) -> Result<Self, Error> {
        let (range, _) = entry.place.clone().unwrap_or_default();
        let windows =
            Windows { file: Arc::clone(file), next: range.start, end: range.end, window: None, taken: 0 };
        let source = match entry.method {
            Method::Stored => Source::Stored(windows),
            Method::Deflated => Source::Deflated(Box::new(flate2::bufread::DeflateDecoder::new(windows))),
            Method::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(windows).map_err(Error::Spill)?;
                Source::Zstd(Box::new(decoder.single_frame()))
            }
            Method::Other(method) => return Err(Error::Method { path: entry.path.clone(), method }),
        };
        Ok(Self::new(entry, source, expected))
    }

    /// Creates a reader of a file in an unpacked folder.
    pub(crate) fn file(file: File, entry: &Entry, expected: Expected) -> Self {
        Self::new(entry, Source::File(file), expected)
    }

    /// Creates a reader of a link in an unpacked folder.
    pub(crate) fn link(target: Vec<u8>, entry: &Entry) -> Self {
        Self::new(entry, Source::Link(io::Cursor::new(target)), Expected { crc: None, sha256: None })
    }

    fn new(entry: &Entry, source: Source, expected: Expected) -> Self {
        Self {
            path: entry.path.clone(),
            len: entry.len,
            source,
            expected,
            chunk: Chunk::Bytes(Vec::new(), 0),
            taken: 0,
            read: 0,
            crc: crc32fast::Hasher::new(),
            sha256: Sha256::new(),
            done: false,
        }
    }

    /// Reads and checks the next chunk of at most [`WINDOW`] bytes; an empty chunk is the end.
    fn advance(&mut self) -> io::Result<()> {
        self.taken = 0;
        let chunk = std::mem::replace(&mut self.chunk, Chunk::Bytes(Vec::new(), 0));
        let decompress = |error: io::Error| match ReadError::from(error) {
            ReadError::Io(error) => {
                bad(Error::Decompress { path: self.path.clone(), reason: error.to_string() })
            }
            error => error.into(),
        };
        self.chunk = match &mut self.source {
            Source::Stored(windows) => match windows.take()? {
                Some(window) => Chunk::Window(window),
                None => Chunk::Bytes(Vec::new(), 0),
            },
            Source::Deflated(decoder) => fill(chunk, decoder).map_err(decompress)?,
            Source::Zstd(decoder) => fill(chunk, decoder).map_err(decompress)?,
            Source::File(file) => fill(chunk, file)?,
            Source::Link(target) => fill(chunk, target)?,
        };
        let bytes = self.chunk.bytes();
        self.read = self.read.saturating_add(bytes.len() as u64);
        if self.read > self.len {
            return Err(bad(self.length(true)));
        }
        if bytes.is_empty() {
            self.done = true;
            return self.finish().map_err(bad);
        }
        if self.expected.crc.is_some() {
            self.crc.update(bytes);
        }
        if self.expected.sha256.is_some() {
            self.sha256.update(bytes);
        }
        Ok(())
    }

    fn length(&self, more: bool) -> Error {
        Error::Length { path: self.path.clone(), found: self.read, more, expected: self.len }
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.read != self.len {
            return Err(self.length(false));
        }
        let left = match &self.source {
            Source::Deflated(decoder) => decoder.get_ref().left(),
            Source::Zstd(decoder) => decoder.get_ref().left(),
            _ => 0,
        };
        if left > 0 {
            let reason = format!("{left} bytes follow the end of the compressed data");
            return Err(Error::Decompress { path: self.path.clone(), reason });
        }
        let found = std::mem::take(&mut self.crc).finalize();
        if let Some(expected) = self.expected.crc
            && expected != found
        {
            return Err(Error::Checksum { path: self.path.clone(), found, expected });
        }
        let found: [u8; 32] = std::mem::take(&mut self.sha256).finalize().into();
        if let Some(expected) = self.expected.sha256
            && expected != found
        {
            let (found, expected) = (sha256_to_hex(&found), sha256_to_hex(&expected));
            return Err(Error::Hash { path: self.path.clone(), found, expected });
        }
        Ok(())
    }
}

/// Reads from the source until the chunk is full or the source ends.
fn fill(chunk: Chunk, source: &mut dyn Read) -> io::Result<Chunk> {
    let mut bytes = match chunk {
        Chunk::Bytes(bytes, _) if !bytes.is_empty() => bytes,
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
    Ok(Chunk::Bytes(bytes, len))
}

/// Wraps an error of this crate as an I/O error, which `Read` can return.
fn bad(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl BufRead for EntryReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if !self.done && self.taken >= self.chunk.bytes().len() {
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
struct Windows {
    file: Arc<dyn byte_source::Source>,
    next: u64,
    end: u64,
    window: Option<Window>,
    taken: usize,
}

impl Windows {
    /// Reads the next window; `None` after the last one.
    fn take(&mut self) -> Result<Option<Window>, ReadError> {
        if self.next >= self.end {
            return Ok(None);
        }
        let end = self.next.saturating_add(WINDOW as u64).min(self.end);
        let window = Window::read(&*self.file, self.next..end)?;
        self.next = end;
        Ok(Some(window))
    }

    /// Returns the number of unread bytes.
    fn left(&self) -> u64 {
        let window = self.window.as_ref().map_or(0, |window| window.len().saturating_sub(self.taken));
        self.end.saturating_sub(self.next).saturating_add(window as u64)
    }
}

impl BufRead for Windows {
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

impl Read for Windows {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut bytes = self.fill_buf()?;
        let read = bytes.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

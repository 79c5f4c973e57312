//! Bytes in windows: what a writer sees of its sources.

use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use crate::buffer::{Buffer, WINDOW};
use crate::{ReadError, Source};

/// A run of bytes on its way from a [`Blob`] to a [`Sink`]. Clones share the bytes, so that everything which is
/// computed from a window is computed from the same bytes, whatever happens to the file that they come from.
#[derive(Clone, Debug)]
pub struct Window(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    buffer: Buffer,
    /// Computed when it is first asked for.
    crc: OnceLock<u32>,
}

impl From<Buffer> for Window {
    fn from(buffer: Buffer) -> Self {
        Self(Arc::new(Shared { buffer, crc: OnceLock::new() }))
    }
}

impl Window {
    /// The bytes of `range` in `source`, read at their position and not through a map.
    ///
    /// # Errors
    /// When `range` is not inside the source, the source cannot be read, or it became shorter since it was opened.
    pub fn read(source: &dyn Source, range: Range<u64>) -> Result<Self, ReadError> {
        let len = range.end.saturating_sub(range.start);
        let len = usize::try_from(len).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        Self::filled(len, |bytes| source.read_at(bytes, range.start))
    }

    /// `len` bytes that `fill` sets. It must set all of them: they have the values of an earlier window.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn filled(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), ReadError>,
    ) -> Result<Self, ReadError> {
        let mut buffer = Buffer::new(len);
        fill(&mut buffer)?;
        Ok(Self::from(buffer))
    }

    /// Bytes in memory.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self::from(Buffer::from(bytes))
    }

    /// The CRC-32 of the bytes.
    pub fn crc32(&self) -> u32 {
        *self.0.crc.get_or_init(|| crc32fast::hash(self))
    }
}

impl Deref for Window {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.buffer
    }
}

/// Takes bytes in order.
pub trait Sink {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// When they cannot be written, or the work was cancelled.
    fn write(&mut self, window: Window) -> Result<(), ReadError>;
}

/// Collects the bytes in memory.
impl Sink for Vec<u8> {
    fn write(&mut self, window: Window) -> Result<(), ReadError> {
        self.extend_from_slice(&window);
        Ok(())
    }
}

/// Bytes whose number is known before the first of them is made.
pub trait Blob {
    /// The number of bytes that [`write_to`](Self::write_to) sends.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends exactly [`len`](Self::len) bytes to `sink`, in windows of at most [`WINDOW`] bytes. Two
    /// calls send the same bytes.
    ///
    /// # Errors
    /// When the source cannot be read, or the sink fails.
    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), ReadError>;
}

/// Bytes in memory as a [`Blob`], for the small files of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedBlob(pub Vec<u8>);

impl Blob for OwnedBlob {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), ReadError> {
        self.0.chunks(WINDOW).try_for_each(|chunk| sink.write(Window::owned(chunk.to_vec())))
    }
}

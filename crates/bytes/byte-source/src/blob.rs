//! Blobs, sinks, and the windows of bytes that pass between them.

use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::buffer::{Buffer, WINDOW};
use crate::{Error, Source};

/// A run of bytes that passes from a [`Blob`] to a [`Sink`]. Clones share the bytes, so that all results computed from
/// a window come from the same bytes, even if the file changes.
#[derive(Clone, Debug)]
pub struct Window(Arc<WindowBytes>);

#[derive(Debug)]
struct WindowBytes {
    content: WindowContent,
    /// CRC-32 of the bytes, computed on first use.
    crc: OnceLock<u32>,
}

#[derive(Debug)]
enum WindowContent {
    Buffer(Buffer),
    /// Part of the bytes that a source keeps in memory.
    Part(Bytes),
}

impl From<Buffer> for Window {
    fn from(buffer: Buffer) -> Self {
        Self::new(WindowContent::Buffer(buffer))
    }
}

/// Shares the bytes.
impl From<Bytes> for Window {
    fn from(bytes: Bytes) -> Self {
        Self::new(WindowContent::Part(bytes))
    }
}

impl Window {
    fn new(content: WindowContent) -> Self {
        Self(Arc::new(WindowBytes { content, crc: OnceLock::new() }))
    }

    /// Reads the bytes of `range` in `source` at their position, not through a map.
    ///
    /// # Errors
    /// Returns an error if `range` is not inside the source, the source cannot be read, or the source was truncated
    /// after it was opened.
    pub fn read(source: &dyn Source, range: Range<u64>) -> Result<Self, Error> {
        source.read_window(range)
    }

    /// Creates a window of `len` bytes and lets `fill` set them. `fill` must set all bytes: the buffer has the bytes of
    /// an earlier window.
    ///
    /// # Errors
    /// Returns the error of `fill`.
    pub fn filled(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), Error>) -> Result<Self, Error> {
        let mut buffer = Buffer::new(len);
        fill(&mut buffer)?;
        Ok(Self::from(buffer))
    }

    /// Creates a window of bytes in memory.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self::from(Buffer::from(bytes))
    }

    /// Returns the CRC-32 of the bytes.
    pub fn crc32(&self) -> u32 {
        *self.0.crc.get_or_init(|| crc32fast::hash(self))
    }
}

impl Deref for Window {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0.content {
            WindowContent::Buffer(buffer) => buffer,
            WindowContent::Part(bytes) => bytes,
        }
    }
}

/// Consumer of bytes in order, such as a file or a hash.
pub trait Sink {
    /// Takes the next window of bytes.
    ///
    /// # Errors
    /// Returns an error if the bytes cannot be written, or the operation was cancelled.
    fn write(&mut self, window: Window) -> Result<(), Error>;
}

/// Collects the bytes of all windows in memory.
impl Sink for Vec<u8> {
    fn write(&mut self, window: Window) -> Result<(), Error> {
        self.extend_from_slice(&window);
        Ok(())
    }
}

/// Producer of bytes whose number is known before they are produced.
pub trait Blob {
    /// Returns the number of bytes that [`write_to`](Self::write_to) sends.
    fn len(&self) -> u64;

    /// Returns true if the blob has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends exactly [`len`](Self::len) bytes to `sink`, in windows of at most [`WINDOW`] bytes. Two
    /// calls send the same bytes.
    ///
    /// # Errors
    /// Returns an error if the source cannot be read, or the sink fails.
    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), Error>;
}

/// Bytes in memory as a [`Blob`], for the small files of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedBlob(pub Vec<u8>);

impl Blob for OwnedBlob {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        self.0.chunks(WINDOW).try_for_each(|chunk| sink.write(Window::owned(chunk.to_vec())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_memory_are_sent_in_windows() {
        struct Lengths(Vec<usize>);
        impl Sink for Lengths {
            fn write(&mut self, window: Window) -> Result<(), Error> {
                self.0.push(window.len());
                Ok(())
            }
        }
        for len in [0, 1, WINDOW, WINDOW + 1] {
            let blob = OwnedBlob(vec![7; len]);
            assert_eq!((blob.len(), blob.is_empty()), (len as u64, len == 0));
            let (mut lengths, mut sent) = (Lengths(Vec::new()), Vec::new());
            blob.write_to(&mut lengths).expect("memory can be read");
            blob.write_to(&mut sent).expect("memory can be read");
            assert!(sent == blob.0);
            assert!(lengths.0.iter().all(|len| (1..=WINDOW).contains(len)), "{:?}", lengths.0);
        }
    }
}

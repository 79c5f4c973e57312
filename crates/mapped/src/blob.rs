//! Bytes in windows: what a writer sees of its sources.

use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::MappedFile;

/// The most bytes that a [`Window`] holds: 1 MiB. Larger windows were slower, smaller ones cost calls.
pub const WINDOW: usize = 1 << 20;

/// A run of bytes on its way from a [`Blob`] to a [`Sink`]. Clones share the bytes.
///
/// A window of a mapped file gives its pages back when its last clone is dropped, so the slowest
/// consumer determines how long they stay in memory.
#[derive(Clone, Debug)]
pub struct Window(Arc<Bytes>);

#[derive(Debug)]
enum Bytes {
    /// Resident until dropped.
    Mapped { file: Arc<MappedFile>, range: Range<usize> },
    /// Bytes that were computed: headers, gathered views, swapped byte orders.
    Owned(Vec<u8>),
}

impl Window {
    /// The bytes of `range` in `file`, brought into memory.
    ///
    /// # Errors
    /// When `range` is not inside the file, or the file became shorter since it was mapped.
    pub fn mapped(file: &Arc<MappedFile>, range: Range<usize>) -> io::Result<Self> {
        if file.bytes().get(range.clone()).is_none() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a range past the end of the file"));
        }
        file.populate(range.clone())?;
        Ok(Self(Arc::new(Bytes::Mapped { file: Arc::clone(file), range })))
    }

    /// Bytes in memory.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Bytes::Owned(bytes)))
    }
}

impl Deref for Window {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            // `Window::mapped` proved that the range is inside the file.
            Bytes::Mapped { file, range } => file.bytes().get(range.clone()).unwrap_or_default(),
            Bytes::Owned(bytes) => bytes,
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if let Self::Mapped { file, range } = self {
            file.release(range.clone());
        }
    }
}

/// Takes bytes in order.
pub trait Sink {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// When they cannot be written, or the work was cancelled.
    fn write(&mut self, window: Window) -> io::Result<()>;
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
    fn write_to(&self, sink: &mut dyn Sink) -> io::Result<()>;
}

/// Bytes in memory as a [`Blob`], for the small files of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedBlob(pub Vec<u8>);

impl Blob for OwnedBlob {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn write_to(&self, sink: &mut dyn Sink) -> io::Result<()> {
        self.0.chunks(WINDOW).try_for_each(|chunk| sink.write(Window::owned(chunk.to_vec())))
    }
}

impl Blob for Arc<MappedFile> {
    fn len(&self) -> u64 {
        MappedFile::len(self)
    }

    fn write_to(&self, sink: &mut dyn Sink) -> io::Result<()> {
        let end = self.bytes().len();
        (0..end).step_by(WINDOW).try_for_each(|start| {
            sink.write(Window::mapped(self, start..start.saturating_add(WINDOW).min(end))?)
        })
    }
}

//! How a caller follows and stops long work.

use std::io;
use std::ops::ControlFlow;

use mapped::{Blob, Cancelled, Sha256Sink, Sink, Window};

use crate::Note;

/// Follows long work, and can stop it. Every method has a default, so `&()` follows nothing.
///
/// Methods may be called from several threads, and often: they should return at once.
pub trait Observer: Sync {
    /// `step.done` bytes are done.
    fn progress(&self, step: Step<'_>) {
        let _ = step;
    }

    /// Something that a person should know. The report has all notes again.
    fn note(&self, note: &Note) {
        let _ = note;
    }

    /// Whether to stop. The work then ends before its next window of 1 MiB and leaves no output.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Observer for () {}

/// How far a work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'s> {
    /// What is being worked on: the name of a file.
    pub name: &'s str,
    /// What is being done to it.
    pub action: Action,
    /// Bytes that are done.
    pub done: u64,
    /// Bytes that there are, where that is known.
    pub total: Option<u64>,
}

/// What a [`Step`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// An output is written.
    Write,
    /// Files are compressed before they are written.
    Compress,
    /// Bytes are read and compared with their hashes.
    Verify,
    /// A file is downloaded.
    Download,
}

/// Reports progress, and tells the work whether to go on.
pub fn advance(observer: &dyn Observer, step: Step<'_>) -> ControlFlow<()> {
    observer.progress(step);
    if observer.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Fails when the observer stops the work.
///
/// # Errors
/// [`Cancelled`], as the cause of an [`io::Error`].
pub fn check(observer: &dyn Observer) -> io::Result<()> {
    if observer.is_cancelled() { Err(io::Error::other(Cancelled)) } else { Ok(()) }
}

/// The SHA-256 of a blob. The observer can stop the work between two windows.
///
/// # Errors
/// When the blob cannot be read, or `observer` stops the work.
pub fn sha256(blob: &dyn Blob, observer: &dyn Observer) -> io::Result<[u8; 32]> {
    let mut sink = Stoppable { sink: Sha256Sink::default(), observer };
    blob.write_to(&mut sink)?;
    Ok(sink.sink.digest())
}

struct Stoppable<'o> {
    sink: Sha256Sink,
    observer: &'o dyn Observer,
}

impl Sink for Stoppable<'_> {
    fn write(&mut self, window: Window) -> io::Result<()> {
        check(self.observer)?;
        self.sink.write(window)
    }
}

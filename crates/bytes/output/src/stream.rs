//! Streams a blob to an output: one thread reads and checks while another one writes.

use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};

use byte_source::{Blob, ProgressReporter, Sink, WINDOW, Window};

use crate::{Destination, Error, FileSums, OutputFile, Problem, Result};

/// Starts the output `path`, which will have `len` bytes.
pub(crate) fn create(
    destination: &Destination,
    (path, len): (&Path, u64),
    sums: FileSums,
) -> Result<OutputFile> {
    Ok(destination.create(path, len)?.with_sums(sums))
}

/// Maximum number of windows queued between the two threads.
const QUEUED_WINDOWS_MAX: usize = 4;
/// Windows below this size in bytes are joined, because sending a window costs more than copying it.
const JOINED_WINDOWS_BELOW: usize = WINDOW / 16;

/// Writes the whole blob to `output`, the temporary file of `target`, and reports the bytes written to `work`.
///
/// # Errors
/// When the blob cannot be read, the output cannot be written, or the observer stops the work.
pub(crate) fn stream_blob(
    blob: &(dyn Blob + Sync),
    (output, target): (&mut OutputFile, &Path),
    work: ProgressReporter<'_>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (windows, received) = sync_channel(QUEUED_WINDOWS_MAX);
        let reader = scope.spawn(move || {
            let mut queue = WindowQueue { windows, small: Vec::new() };
            blob.write_to(&mut queue)?;
            queue.flush()
        });
        let mut done = 0_u64;
        for window in &received {
            output
                .write_all(&window)
                .map_err(|reason| byte_source::FileError::Write { path: target.to_owned(), reason })?;
            done = done.saturating_add(window.len() as u64);
            work.advance(done)?;
        }
        let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        read.map_err(|reason| read_error(target, reason))
    })
}

/// Converts a failed read of the inputs of `target` into an error that names the output.
pub fn read_error(target: &Path, reason: Error) -> Error {
    if reason.io_kind().is_none() {
        return reason;
    }
    Problem::ReadInputs { path: target.to_owned(), reason: reason.into() }.into()
}

/// Sink of the reading thread, which joins small windows and queues them for the writing thread.
struct WindowQueue {
    windows: SyncSender<Window>,
    small: Vec<u8>,
}

impl WindowQueue {
    fn flush(&mut self) -> Result<(), byte_source::Error> {
        let small = std::mem::take(&mut self.small);
        if small.is_empty() { Ok(()) } else { self.send(Window::owned(small)) }
    }

    fn send(&self, window: Window) -> Result<(), byte_source::Error> {
        // The writing thread stopped, and reports the reason.
        self.windows.send(window).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Sink for WindowQueue {
    fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
        if window.len() >= JOINED_WINDOWS_BELOW {
            self.flush()?;
            return self.send(window);
        }
        self.small.extend_from_slice(&window);
        if self.small.len() >= WINDOW { self.flush() } else { Ok(()) }
    }
}

//! Progress reports and cancellation of long operations.

use std::any::Any;
use std::fmt;

use crate::error::detail;
use crate::{Error, Sink, Window};

/// Error of an operation that the caller cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped")]
pub struct Cancelled;

detail!(Cancelled is Cancelled);

/// Observer of a long operation, which can cancel it. Every method has a default, so `&()` observes nothing.
///
/// Methods are called often, and from several threads: they should return quickly.
pub trait Observer: Sync {
    /// Takes a progress report in bytes.
    fn progress(&self, step: ProgressUpdate<'_>) {
        let _ = step;
    }

    /// Takes a note for the user. Reports also list all notes.
    fn note(&self, note: &dyn Notice) {
        let _ = note;
    }

    /// Returns true to cancel the operation. The operation then ends before its next window of 1 MiB and leaves no
    /// output.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Returns an error if the operation is to be cancelled.
    ///
    /// # Errors
    /// Returns [`Cancelled`] if [`is_cancelled`](Self::is_cancelled) returns true.
    fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }
}

impl Observer for () {}

/// Sink that passes windows to another sink until an observer cancels the operation.
pub struct CancellableSink<'s> {
    pub sink: &'s mut dyn Sink,
    pub observer: &'s dyn Observer,
}

impl Sink for CancellableSink<'_> {
    fn write(&mut self, window: Window) -> Result<(), Error> {
        self.observer.check()?;
        self.sink.write(window)
    }
}

/// A note of any crate. A caller that knows the crate can downcast it with [`Any`].
pub trait Notice: Any + fmt::Debug + fmt::Display {}

/// Progress of an operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressUpdate<'s> {
    /// Name of the file.
    pub name: &'s str,
    /// Kind of operation on the file.
    pub action: Action,
    /// Number of processed bytes.
    pub done: u64,
    /// Total number of bytes, if known.
    pub total: Option<u64>,
}

/// Kind of operation that a [`ProgressUpdate`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// An output file is written.
    Write,
    /// Files are compressed before they are written.
    Compress,
    /// Bytes are compared with their hashes.
    Verify,
    /// A file is downloaded.
    Download,
    /// The elements of tensors are hashed.
    Hash,
    /// The elements of tensors are compared.
    Compare,
}

/// An operation on a file that reports its progress in bytes to an observer.
#[derive(Clone, Copy)]
pub struct ProgressReporter<'o> {
    observer: &'o dyn Observer,
    name: &'o str,
    action: Action,
    total: Option<u64>,
    done_before: u64,
}

impl<'o> ProgressReporter<'o> {
    /// Creates an operation on the file `name`, of `total` bytes if known.
    pub fn new(observer: &'o dyn Observer, name: &'o str, action: Action, total: Option<u64>) -> Self {
        Self { observer, name, action, total, done_before: 0 }
    }

    /// Creates an operation without an observer.
    pub fn unobserved() -> Self {
        Self::new(&(), "", Action::Write, None)
    }

    /// Returns the operation with an offset of `before` bytes that are already processed.
    #[must_use]
    pub fn resumed_at(self, before: u64) -> Self {
        Self { done_before: before, ..self }
    }

    /// Returns the operation with its total number of bytes, if `total` is known.
    #[must_use]
    pub fn with_total(self, total: Option<u64>) -> Self {
        Self { total: total.or(self.total), ..self }
    }

    /// Reports `done` processed bytes. Fails if the operation is to be cancelled.
    ///
    /// # Errors
    /// Returns [`Cancelled`] if [`is_cancelled`](Observer::is_cancelled) returns true.
    pub fn advance(&self, done: u64) -> Result<(), Cancelled> {
        let done = self.done_before.saturating_add(done);
        self.observer.progress(ProgressUpdate {
            name: self.name,
            action: self.action,
            done,
            total: self.total,
        });
        self.observer.check()
    }
}

impl fmt::Debug for ProgressReporter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, action, total, done_before: before, .. } = self;
        let step = ProgressUpdate { name, action: *action, done: *before, total: *total };
        f.debug_tuple("Work").field(&step).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Keeps what is done and in total, and cancels at a number of bytes.
    struct CancelAt(u64, Mutex<Vec<(u64, Option<u64>)>>);

    impl Observer for CancelAt {
        fn progress(&self, step: ProgressUpdate<'_>) {
            self.1.lock().expect("no panic").push((step.done, step.total));
        }

        fn is_cancelled(&self) -> bool {
            self.1.lock().expect("no panic").last().is_some_and(|(done, _)| *done >= self.0)
        }
    }

    #[test]
    fn a_resumed_operation_counts_what_was_done_before() {
        let observer = CancelAt(90, Mutex::default());
        let operation = ProgressReporter::new(&observer, "x", Action::Download, None).resumed_at(50);
        operation.advance(1).expect("it goes on");
        let operation = operation.with_total(Some(100)).with_total(None);
        operation.advance(39).expect("it goes on");
        assert_eq!(operation.advance(40), Err(Cancelled));
        assert_eq!(
            observer.1.into_inner().expect("no panic"),
            [(51, None), (89, Some(100)), (90, Some(100))]
        );
    }
}

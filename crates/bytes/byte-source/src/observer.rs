//! How a caller follows long work, and stops it between two windows.

use std::any::Any;
use std::fmt;

/// The caller stopped the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped")]
pub struct Cancelled;

/// Follows long work, and can stop it. Every method has a default, so `&()` follows nothing.
///
/// Methods may be called from several threads, and often: they should return at once.
pub trait Observer: Sync {
    /// Takes the number of bytes that are done.
    fn progress(&self, step: Step<'_>) {
        let _ = step;
    }

    /// Takes something that a person should know. Reports list all notes again.
    fn note(&self, note: &dyn Notice) {
        let _ = note;
    }

    /// Whether to stop. The work then ends before its next window of 1 MiB and leaves no output.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Fails if the work is to stop.
    ///
    /// # Errors
    /// [`Cancelled`].
    fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }
}

impl Observer for () {}

/// A note of any crate. A caller that knows the crate gets its own type back through [`Any`].
pub trait Notice: Any + fmt::Debug + fmt::Display {}

/// How far a work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'s> {
    /// The name of the file that is worked on.
    pub name: &'s str,
    /// What is done to the file.
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

/// One piece of work on a file, whose progress is counted in bytes.
#[derive(Clone, Copy)]
pub struct Work<'o> {
    observer: &'o dyn Observer,
    name: &'o str,
    action: Action,
    total: Option<u64>,
    before: u64,
}

impl<'o> Work<'o> {
    /// Work on the file called `name`, of `total` bytes where that is known.
    pub fn new(observer: &'o dyn Observer, name: &'o str, action: Action, total: Option<u64>) -> Self {
        Self { observer, name, action, total, before: 0 }
    }

    /// Work that nobody follows.
    pub fn unobserved() -> Self {
        Self::new(&(), "", Action::Write, None)
    }

    /// The same work, of which `before` bytes are done already.
    #[must_use]
    pub fn after(self, before: u64) -> Self {
        Self { before, ..self }
    }

    /// The same work, whose total is known now.
    #[must_use]
    pub fn with_total(self, total: Option<u64>) -> Self {
        Self { total: total.or(self.total), ..self }
    }

    /// Reports that `done` bytes are done, and fails if the work is to stop.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn advance(&self, done: u64) -> Result<(), Cancelled> {
        let done = self.before.saturating_add(done);
        self.observer.progress(Step { name: self.name, action: self.action, done, total: self.total });
        self.observer.check()
    }
}

impl fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, action, total, before, .. } = self;
        let step = Step { name, action: *action, done: *before, total: *total };
        f.debug_tuple("Work").field(&step).finish()
    }
}

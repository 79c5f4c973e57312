//! Stopping long work between two windows.

use std::io;
use std::ops::ControlFlow;

/// Receives the bytes done so far; [`ControlFlow::Break`] stops the work before the next window.
pub type Progress<'p> = dyn FnMut(u64) -> ControlFlow<()> + 'p;

/// The caller cancelled the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped")]
pub struct Cancelled;

impl Cancelled {
    /// The error for what a caller's progress callback returned.
    ///
    /// # Errors
    /// When it was [`ControlFlow::Break`].
    pub fn check(flow: ControlFlow<()>) -> io::Result<()> {
        match flow {
            ControlFlow::Continue(()) => Ok(()),
            // Not `Interrupted`: the standard library tries such calls again.
            ControlFlow::Break(()) => Err(io::Error::other(Self)),
        }
    }

    /// Whether an error is due to a cancellation.
    pub fn caused(error: &io::Error) -> bool {
        error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()).is_some()
    }
}

//! Stopping long work between two windows.

use std::io;
use std::ops::ControlFlow;

/// Receives the bytes done so far; [`ControlFlow::Break`] stops the work before the next window.
pub type Progress<'p> = dyn FnMut(u64) -> ControlFlow<()> + 'p;

/// The caller stopped the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped")]
pub struct Cancelled;

impl Cancelled {
    /// An error for what a caller's progress said.
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

    /// Whether the caller is the reason for an error.
    pub fn caused(error: &io::Error) -> bool {
        error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()).is_some()
    }
}

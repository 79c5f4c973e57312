//! How a trace is written, and why it can end early.
//!
//! The members of [`View::Json`] are described in `docs/json.md`.

use std::fmt;
use std::io;

use crate::error::Error;
use crate::heap::Heap;
use crate::limits::Limits;
use crate::object::ObjectId;

/// Names an object in one line, where it knows better than this crate what the object is.
///
/// It is asked about globals, instances, persistent objects and extensions. What it says is escaped when it is printed.
pub type Annotate<'a> = dyn Fn(&Heap<'_>, ObjectId) -> Option<String> + 'a;

/// What a trace prints for each instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum View {
    /// The instruction and its effect, then stack, metastack and memo after it.
    #[default]
    Steps,
    /// The instruction and its effect on one line.
    Lines,
    /// One JSON object a line, with `offset`, `opcode`, `arg`, `stack`, `metastack`, `memo` and `effect`.
    ///
    /// `stack` counts the objects of the current frame, `metastack` the frames below it, `memo` the entries. An argument
    /// is what `pickletools.genops` gives: a GLOBAL's is `"module name"`, a byte string has one character a byte, and
    /// what JSON has no number for (infinities, NaN, integers above 4,300 digits) is a string.
    Json,
}

/// How [`write()`] traces.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// What to print for each instruction.
    pub view: View,
    /// Whether to print all of stack, metastack, memo and values, instead of their ends.
    pub full: bool,
    /// After how many instructions to stop.
    pub limit: Option<u64>,
    /// What reading the pickle may cost.
    pub limits: Limits,
    /// Who names the objects that this crate does not know.
    pub annotate: Option<&'a Annotate<'a>>,
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("view", &self.view)
            .field("full", &self.full)
            .field("limit", &self.limit)
            .field("limits", &self.limits)
            .field("annotate", &self.annotate.is_some())
            .finish()
    }
}

/// Why a listing ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The pickle is at fault; everything before the fault is written.
    #[error(transparent)]
    Pickle(#[from] Error),
    /// The listing could not be written.
    #[error("cannot write the listing: {0}")]
    Write(#[from] io::Error),
}

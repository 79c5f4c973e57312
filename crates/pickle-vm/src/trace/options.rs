//! Options of a trace, and its errors.
//!
//! `docs/json.md` describes the members of [`TraceView::Json`].

use std::fmt;
use std::io;

use crate::error::Error;
use crate::heap::Heap;
use crate::limits::PickleLimits;
use crate::object::ObjectId;

/// Callback that describes an object in one line, if the caller knows more about the object than this crate does.
///
/// Called for globals, instances, persistent objects and extensions. The returned text is escaped when it is printed.
pub type Annotate<'a> = dyn Fn(&Heap<'_>, ObjectId) -> Option<String> + 'a;

/// Output format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TraceView {
    /// The instruction and its effect, then stack, metastack and memo after it.
    #[default]
    Steps,
    /// The instruction and its effect on one line.
    Lines,
    /// One JSON object per line, with the members `schema_version`, `file` (if given), `offset`, `opcode`, `arg`,
    /// `stack`, `metastack`, `memo` and `effect`.
    ///
    /// `stack` is the number of objects in the current frame, `metastack` the number of frames below it, `memo` the
    /// number of memo entries. Arguments are those of `pickletools.genops`: a GLOBAL has `"module name"`, a byte string
    /// has one character per byte, and numbers that JSON cannot express (infinities, NaN, integers above 4,300 digits)
    /// are strings.
    Json,
}

/// Options for writing a trace with [`write()`](super::write()).
#[derive(Clone, Copy, Default)]
pub struct ListingOptions<'a> {
    /// Output format of each instruction.
    pub view: TraceView,
    /// True to print stack, metastack, memo and values in full instead of truncated. They are truncated nevertheless
    /// once the listing is longer than [`PickleLimits::repeat_budget`] allows for the length of the pickle.
    pub full: bool,
    /// Maximum number of instructions to trace.
    pub limit: Option<u64>,
    /// Limits for reading the pickle.
    pub limits: PickleLimits,
    /// File name for the member `file` of [`TraceView::Json`].
    pub file: Option<&'a str>,
    /// Annotator for objects that this crate does not know.
    pub annotate: Option<&'a Annotate<'a>>,
}

impl fmt::Debug for ListingOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("view", &self.view)
            .field("full", &self.full)
            .field("limit", &self.limit)
            .field("limits", &self.limits)
            .field("file", &self.file)
            .field("annotate", &self.annotate.is_some())
            .finish()
    }
}

/// Error that ends a listing early.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The pickle is malformed; all instructions before the fault were written.
    #[error(transparent)]
    Pickle(#[from] Error),
    /// The listing could not be written.
    #[error("cannot write the listing: {0}")]
    Write(#[from] io::Error),
}

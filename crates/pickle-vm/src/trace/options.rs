//! How a trace is written, and why it can end early.
//!
//! The members of [`View::Json`] are described in `docs/json.md`.

use std::fmt;
use std::io;

use crate::error::Error;
use crate::heap::Heap;
use crate::limits::Limits;
use crate::object::ObjectId;

/// Describes an object in one line, if the caller knows more about the object than this crate does.
///
/// It is called for globals, instances, persistent objects and extensions. Its text is escaped when it is printed.
pub type Annotate<'a> = dyn Fn(&Heap<'_>, ObjectId) -> Option<String> + 'a;

/// What a trace prints for each instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum View {
    /// The instruction and its effect, then stack, metastack and memo after it.
    #[default]
    Steps,
    /// The instruction and its effect on one line.
    Lines,
    /// One JSON object per line, with `schema_version`, `file` if it is given, `offset`, `opcode`, `arg`, `stack`, `metastack`, `memo` and `effect`.
    ///
    /// `stack` counts the objects of the current frame, `metastack` the frames below it, `memo` the entries. Arguments
    /// are those of `pickletools.genops`: a GLOBAL has `"module name"`, a byte string has one character per byte, and
    /// numbers that JSON cannot express (infinities, NaN, integers above 4,300 digits) are strings.
    Json,
}

/// How [`write()`](super::write()) traces.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// What to print for each instruction.
    pub view: View,
    /// Whether to print stack, metastack, memo and values in full instead of cutting them short. They are cut short all the
    /// same once the listing is longer than [`Limits::repeated_of`] allows for the bytes of the pickle.
    pub full: bool,
    /// The number of instructions after which to stop.
    pub limit: Option<u64>,
    /// Bounds on the cost of reading the pickle.
    pub limits: Limits,
    /// The file that [`View::Json`] names in each object.
    pub file: Option<&'a str>,
    /// Describes the objects that this crate does not know.
    pub annotate: Option<&'a Annotate<'a>>,
}

impl fmt::Debug for Options<'_> {
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

/// Why a listing ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The pickle is malformed; everything before the fault was written.
    #[error(transparent)]
    Pickle(#[from] Error),
    /// The listing could not be written.
    #[error("cannot write the listing: {0}")]
    Write(#[from] io::Error),
}

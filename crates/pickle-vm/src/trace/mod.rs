//! What a listing prints: each instruction, what it does, and stack, metastack and memo after it.
//!
//! Three doors: [`write()`] runs the machine and shows every step, for people or as JSON lines; [`dis()`] lists the
//! instructions as `python3 -m pickletools` does; [`Summary`] counts. All of them stream: they hold the machine, or
//! less, and never the listing. Whatever comes from the pickle is escaped, so that no control character in it reaches a
//! terminal.
//!
//! This crate knows nothing of torch: an [annotator](Annotate) that the caller supplies names storages and tensors.
//!
//! Sources: the words are those of the comments in CPython's `Lib/pickletools.py`.

mod dis;
mod effect;
mod json;
mod render;
pub(crate) mod repr;
mod step;
mod summary;

use std::fmt;
use std::io;

use crate::error::Error;
use crate::heap::Heap;
use crate::limits::Limits;
use crate::object::ObjectId;

pub use dis::dis;
pub use render::Display;
pub use step::write;
pub use summary::Summary;

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

/// Text on its way to a writer, in pieces of some size.
struct Out<'w> {
    writer: &'w mut dyn io::Write,
    buffer: String,
    error: Option<io::Error>,
}

/// How much text is gathered before it is written.
const PIECE: usize = 1 << 15;

impl<'w> Out<'w> {
    fn new(writer: &'w mut dyn io::Write) -> Self {
        Out { writer, buffer: String::with_capacity(PIECE), error: None }
    }

    /// Lets `f` write, and says what became of it.
    fn write(&mut self, f: impl FnOnce(&mut dyn fmt::Write) -> fmt::Result) -> io::Result<()> {
        f(self)
            .map_err(|fmt::Error| self.error.take().unwrap_or_else(|| io::Error::other("formatting failed")))
    }

    fn finish(&mut self) -> io::Result<()> {
        self.writer.write_all(self.buffer.as_bytes())?;
        self.buffer.clear();
        self.writer.flush()
    }
}

impl fmt::Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.buffer.len().saturating_add(text.len()) > PIECE {
            let written = self.writer.write_all(self.buffer.as_bytes());
            self.buffer.clear();
            if let Err(error) = written {
                self.error = Some(error);
                return Err(fmt::Error);
            }
        }
        if text.len() > PIECE {
            // Long texts, such as pickled bytes, are not copied first.
            return self.writer.write_all(text.as_bytes()).map_err(|error| {
                self.error = Some(error);
                fmt::Error
            });
        }
        self.buffer.push_str(text);
        Ok(())
    }
}

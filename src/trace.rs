//! Builder for a trace of the instructions of a checkpoint's pickle.

use std::io::Write;

use byte_source::Location;
use inspect::{TraceListing, TraceOptions, TraceView};

use crate::Result;

/// Returns a trace of the pickle of `input`, a checkpoint or a bare pickle, which [`Trace::run`] writes.
pub fn trace(input: impl Into<Location>) -> Trace {
    Trace::new(input)
}

/// A trace that has not started.
#[derive(Clone, Debug)]
#[must_use = "a trace starts with `run`"]
pub struct Trace {
    options: TraceOptions,
}

impl Trace {
    /// Creates a trace of the pickle of `input`: the stack, the metastack and the memo after each instruction.
    pub fn new(input: impl Into<Location>) -> Self {
        Self { options: TraceOptions::new(input) }
    }

    /// Sets the kind of listing to write.
    pub fn listing(mut self, listing: TraceListing) -> Self {
        self.options.listing = listing;
        self
    }

    /// Sets the view of each instruction. Has an effect only on [`TraceListing::Trace`].
    pub fn view(mut self, view: TraceView) -> Self {
        if let TraceListing::Trace { view: old, .. } = &mut self.options.listing {
            *old = view;
        }
        self
    }

    /// Disables truncation of long values. Has an effect only on [`TraceListing::Trace`].
    pub fn full(mut self) -> Self {
        if let TraceListing::Trace { full, .. } = &mut self.options.listing {
            *full = true;
        }
        self
    }

    /// Stops after `instructions` instructions. Has an effect only on [`TraceListing::Trace`].
    pub fn limit(mut self, instructions: u64) -> Self {
        if let TraceListing::Trace { limit, .. } = &mut self.options.listing {
            *limit = Some(instructions);
        }
        self
    }

    /// Writes counts of opcodes, globals, tensors and memo entries.
    pub fn summary(self) -> Self {
        self.listing(TraceListing::Summary)
    }

    /// Writes the listing that `python3 -m pickletools` prints.
    pub fn disassembly(self) -> Self {
        self.listing(TraceListing::Disassembly)
    }

    /// Chooses a pickle by its index, counted from 0, if several follow each other.
    pub fn pickle(mut self, number: usize) -> Self {
        self.options.pickle = Some(number);
        self
    }

    /// Writes the listing to `out`.
    ///
    /// # Errors
    /// When the input cannot be read, its pickle is malformed, or `out` fails. The instructions before a fault in the pickle
    /// are written.
    pub fn run(&self, out: &mut dyn Write) -> Result<()> {
        inspect::trace(&self.options, out)
    }
}

impl From<TraceOptions> for Trace {
    fn from(options: TraceOptions) -> Self {
        Self { options }
    }
}

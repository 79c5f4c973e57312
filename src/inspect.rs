//! Builder for a listing of a checkpoint's tensors and values.

use byte_source::{Location, Observer};
use inspect::{InspectOptions, InspectReport};

use crate::Result;

/// Returns an inspection of the checkpoint at `input`, a file or a folder, which [`Inspect::run`] starts.
/// [`Carton::contents`](crate::Carton::contents) does the same for a carton.
pub fn inspect(input: impl Into<Location>) -> Inspect {
    Inspect::new(input)
}

/// An inspection that has not started.
#[derive(Clone, Debug)]
#[must_use = "an inspection starts with `run`"]
pub struct Inspect {
    options: InspectOptions,
}

impl Inspect {
    /// Creates an inspection of the checkpoint at `input`. A shard is inspected alone.
    pub fn new(input: impl Into<Location>) -> Self {
        Self { options: InspectOptions::new(input) }
    }

    /// Adds the SHA-256 of each tensor's elements to the report.
    pub fn sha256(mut self) -> Self {
        self.options.sha256 = true;
        self
    }

    /// Also lists the values that are not tensors.
    pub fn values(mut self) -> Self {
        self.options.values = true;
        self
    }

    /// Lists quantized weights as they are stored, not the numbers that they stand for.
    pub fn packed(mut self) -> Self {
        self.options.packed = true;
        self
    }

    /// Inspects the checkpoint and returns its report.
    ///
    /// # Errors
    /// When the input is not a checkpoint, is damaged or changes, or `observer` stops the work.
    pub fn run(&self, observer: &dyn Observer) -> Result<InspectReport> {
        inspect::inspect(&self.options, observer)
    }
}

impl From<InspectOptions> for Inspect {
    fn from(options: InspectOptions) -> Self {
        Self { options }
    }
}

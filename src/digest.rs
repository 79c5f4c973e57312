//! Builder for the digest of a checkpoint or carton.

use byte_source::{Location, Observer};
use inspect::{DigestReport, InputOptions};
use open::Selection;

use crate::Result;

/// Returns a computation of the digest of the checkpoint or carton at `input`, which [`Digest::run`] starts.
pub fn digest(input: impl Into<Location>) -> Digest {
    Digest::new(input)
}

/// A computation of a digest that has not started.
#[derive(Clone, Debug)]
#[must_use = "a computation starts with `run`"]
pub struct Digest {
    options: InputOptions,
}

impl Digest {
    /// Creates a computation of the digest of the tensors that a conversion of `input` selects.
    pub fn new(input: impl Into<Location>) -> Self {
        Self { options: InputOptions::new(input) }
    }

    /// Sets the selection of tensors.
    pub fn select(mut self, selection: Selection) -> Self {
        self.options.selection = selection;
        self
    }

    /// Takes the numbers that quantized weights stand for in place of their codes.
    pub fn dequantize(mut self) -> Self {
        self.options = self.options.dequantize();
        self
    }

    /// Treats a file that is one of several shards as a checkpoint.
    pub fn single_shard(mut self) -> Self {
        self.options = self.options.single_shard();
        self
    }

    /// Computes the digest on all cores.
    ///
    /// # Errors
    /// When the input cannot be read, is damaged or changes, the selection does not fit it, or `observer` stops the work.
    pub fn run(&self, observer: &dyn Observer) -> Result<DigestReport> {
        inspect::digest(&self.options, observer)
    }
}

impl From<InputOptions> for Digest {
    fn from(options: InputOptions) -> Self {
        Self { options }
    }
}

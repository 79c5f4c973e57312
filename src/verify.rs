//! Builder for the verification of a carton.

use byte_source::{Location, Observer};
use carton_tools::{VerifyOptions, VerifyReport};
use open::{Cast, Rename, Selection, TargetLayout};

use crate::Result;

/// Returns a check of the carton at `path`, a file or an unpacked folder, which [`Verify::run`] starts. With
/// [`against`](Verify::against), `path` may be any output of a conversion.
pub fn verify(path: impl Into<Location>) -> Verify {
    Verify::new(path)
}

/// A check of a carton that has not started.
#[derive(Clone, Debug)]
#[must_use = "a check starts with `run`"]
pub struct Verify {
    options: VerifyOptions,
}

impl Verify {
    /// Creates a check of every hash, every checksum and every rule of the carton at `path`.
    pub fn new(path: impl Into<Location>) -> Self {
        Self { options: VerifyOptions::new(path) }
    }

    /// Compares each tensor bit by bit with the checkpoint that the carton was made from: a file, a folder or, with several
    /// calls, its shards.
    pub fn against(mut self, checkpoint: impl Into<Location>) -> Self {
        self.options.against.push(checkpoint.into());
        self
    }

    /// Treats the checkpoint as one shard that was converted alone.
    pub fn single_shard(mut self) -> Self {
        self.options.single = true;
        self
    }

    /// Sets the selection of tensors that the conversion used.
    pub fn select(mut self, selection: Selection) -> Self {
        self.options.selection = selection;
        self
    }

    /// Adds a replacement in the names that the conversion made: each match of the regular expression becomes `to`.
    pub fn rename(mut self, pattern: impl Into<String>, to: impl Into<String>) -> Self {
        self.options.renames.push(Rename { pattern: pattern.into(), to: to.into() });
        self
    }

    /// Adds a cast that the conversion made.
    pub fn cast(mut self, cast: Cast) -> Self {
        self.options.casts.extend([cast]);
        self
    }

    /// Sets the layout into which the conversion translated a language model.
    pub fn target_layout(mut self, layout: TargetLayout) -> Self {
        self.options.target_layout = Some(layout);
        self
    }

    /// Checks the carton and returns a report.
    ///
    /// # Errors
    /// When the carton or the checkpoint cannot be read, or `observer` stops the work. A problem of the carton is a finding
    /// of the report.
    pub fn run(&self, observer: &dyn Observer) -> Result<VerifyReport> {
        carton_tools::verify(&self.options, &::convert::default_modules, observer)
    }
}

impl From<VerifyOptions> for Verify {
    fn from(options: VerifyOptions) -> Self {
        Self { options }
    }
}

//! Builder for a report on a checkpoint as an HTML page.

use std::io::Write;
use std::ops::Range;

use byte_source::{Location, Observer};
use inspect::page::ReportOptions;

use crate::Result;

/// Returns a report on the checkpoint or carton at `input`, which [`Report::write`] makes.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("data.pkl");
/// # std::fs::write(&path, b"K\x07.")?;
/// let mut page = Vec::new();
/// torch2carton::report(&path).steps(0..1000).write(&mut page, &())?;
/// # assert!(page.starts_with(b"<!doctype html>"));
/// # Ok(())
/// # }
/// ```
pub fn report(input: impl Into<Location>) -> Report {
    Report::new(input)
}

/// A report that is not written yet.
#[derive(Clone, Debug)]
#[must_use = "a report is made by `write`"]
pub struct Report {
    options: ReportOptions,
}

impl Report {
    /// Creates a report without statistics and without steps of the pickle.
    pub fn new(input: impl Into<Location>) -> Self {
        Self { options: ReportOptions::new(input) }
    }

    /// Adds statistics and a histogram of each tensor, for which all tensors are read.
    pub fn statistics(mut self) -> Self {
        self.options.statistics = true;
        self
    }

    /// Adds these steps of the pickle, counted from 0.
    pub fn steps(mut self, steps: Range<u64>) -> Self {
        self.options.steps = Some(steps);
        self
    }

    /// Writes the page.
    ///
    /// # Errors
    /// When the input cannot be read, the pickle is malformed before the first step, `out` cannot be written, or
    /// `observer` stops the work.
    pub fn write(&self, out: &mut dyn Write, observer: &dyn Observer) -> Result<()> {
        inspect::page::write_report(&self.options, out, observer)
    }
}

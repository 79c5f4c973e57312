//! Builder for the comparison of two checkpoints or cartons.

use byte_source::{Location, Observer};
use std::io::Write;

use inspect::{DiffOptions, DiffReport, SideSelections};
use open::Selection;

use crate::Result;

/// Returns a comparison of the checkpoints or cartons at `a` and `b`, which [`Diff::run`] starts.
pub fn diff(a: impl Into<Location>, b: impl Into<Location>) -> Diff {
    Diff::new(a, b)
}

/// A comparison that has not started.
#[derive(Clone, Debug)]
#[must_use = "a comparison starts with `run`"]
pub struct Diff {
    options: DiffOptions,
}

impl Diff {
    /// Creates a comparison of the tensors that conversions of `a` and `b` select, bit by bit, and of their values.
    pub fn new(a: impl Into<Location>, b: impl Into<Location>) -> Self {
        Self { options: DiffOptions::new(a, b) }
    }

    /// Sets the selection of tensors of both inputs.
    pub fn select(mut self, selection: Selection) -> Self {
        self.options.selection = selection;
        self
    }

    /// Sets the parts of the selection that are for one input.
    pub fn sides(mut self, sides: SideSelections) -> Self {
        self.options.sides = sides;
        self
    }

    /// Takes the numbers that quantized weights stand for in place of their codes.
    pub fn dequantize(mut self) -> Self {
        self.options.dequantize = true;
        self
    }

    /// Treats elements that differ by at most `tolerance` as equal.
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.options.tolerance = Some(tolerance);
        self
    }

    /// Lists at most `limit` tensors, and as many values.
    pub fn limit(mut self, limit: usize) -> Self {
        self.options.limit = Some(limit);
        self
    }

    /// Leaves out the values that are not tensors.
    pub fn without_values(mut self) -> Self {
        self.options.no_values = true;
        self
    }

    /// Compares the inputs on all cores.
    ///
    /// # Errors
    /// When an input cannot be read, is damaged or changes, a selection does not fit it, or `observer` stops the work.
    pub fn run(&self, observer: &dyn Observer) -> Result<DiffReport> {
        inspect::diff(&self.options, observer)
    }

    /// Compares the inputs, and writes what differs as one HTML page that loads nothing.
    ///
    /// # Errors
    /// As [`Diff::run`], and when `out` cannot be written.
    pub fn write_page(&self, out: &mut dyn Write, observer: &dyn Observer) -> Result<DiffReport> {
        let report = self.run(observer)?;
        inspect::page::write_diff_page(&report, out)?;
        Ok(report)
    }
}

impl From<DiffOptions> for Diff {
    fn from(options: DiffOptions) -> Self {
        Self { options }
    }
}

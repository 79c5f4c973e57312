//! A report on a checkpoint as one HTML page: summary, modules, sizes, layout, values, globals and the steps of its pickle; or the
//! differences of two checkpoints as one.
//!
//! The page loads nothing: its data are deflated JSON inside it, which the browser inflates with `DecompressionStream`. All
//! text from the file is data and becomes text nodes, so it cannot become markup.
//!
//! ```
//! use inspect::page::{ReportOptions, write_report};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat())?;
//! let mut page = Vec::new();
//! write_report(&ReportOptions::new(path), &mut page, &())?;
//! assert!(page.starts_with(b"<!doctype html>"));
//! # Ok(())
//! # }
//! ```

mod diff_page;
mod file_layout;
mod html;
mod page_data;
mod steps;

use std::io::Write;
use std::ops::Range;

use byte_source::{Location, Observer};
pub use diff_page::write_diff_page;

use crate::Result;

/// Number of steps of a pickle that a report has if the options do not say more.
pub const DEFAULT_STEPS: u64 = 20_000;

/// Options of a report.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReportOptions {
    /// Checkpoint, folder, shard or carton.
    pub input: Location,
    /// True to add statistics and a histogram of each tensor, which reads all of them.
    pub statistics: bool,
    /// Steps of the pickle to add, counted from 0; `None` for none.
    pub steps: Option<Range<u64>>,
}

impl ReportOptions {
    /// Creates options for a report without statistics and steps.
    pub fn new(input: impl Into<Location>) -> Self {
        Self { input: input.into(), ..Self::default() }
    }
}

/// Writes the report.
///
/// # Errors
/// When the input cannot be read, `observer` stops the work, or `out` cannot be written.
pub fn write_report(options: &ReportOptions, out: &mut dyn Write, observer: &dyn Observer) -> Result<()> {
    let data = page_data::page_data(options, observer)?;
    let sections = include_str!("../../templates/report.js");
    html::write_page((&output::file_name(options.input.path()), "report"), sections, &data, out)
}

//! Page of the differences of two checkpoints.

use std::io::Write;
use std::path::Path;

use crate::{DiffReport, Result, TensorChange};
use serde_json::{Value as Json, json};

use super::html;

/// Writes the differences as one HTML page, which has what the options of the comparison let it list.
///
/// # Errors
/// When `out` cannot be written.
pub fn write_diff_page(report: &DiffReport, out: &mut dyn Write) -> Result<()> {
    let name = |path: &str| output::file_name(Path::new(path));
    let title = format!("{} and {}", name(&report.a.file), name(&report.b.file));
    html::write_page((&title, "diff"), include_str!("../../templates/diff.js"), &diff_data(report), out)
}

/// Returns the data of the page: the report, with notes and rearrangements as text.
fn diff_data(report: &DiffReport) -> Json {
    json!({
        "program": concat!("torch2carton ", env!("CARGO_PKG_VERSION")),
        "a": report.a,
        "b": report.b,
        "same": report.same,
        "counts": report.counts,
        "tensors": report.tensors.iter().map(tensor_row).collect::<Vec<_>>(),
        "values": report.values,
        "unlisted": report.unlisted,
        "notes": report.notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn tensor_row(row: &TensorChange) -> Json {
    json!({
        "changes": row.changes,
        "a": row.a,
        "b": row.b,
        "elements": row.elements,
        "order": row.rearrangement.as_ref().map(ToString::to_string),
    })
}

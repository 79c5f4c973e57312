//! Data of a report as JSON: what the program of the page shows.

use byte_source::Observer;
use open::ValueRows;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

use super::{ReportOptions, file_layout, steps};
use crate::{FileScan, InspectOptions, InspectReport, Result, ScanOptions, TensorRow, TreeRow};

/// Data of a report. Its long lists become JSON row by row, because a file of a few megabytes can list a million rows.
pub(crate) struct PageData {
    /// Everything but the lists of tensors, modules and values.
    short: Map<String, Json>,
    report: InspectReport,
}

/// List whose rows are created while they are written.
struct Rows<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Rows<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// Rows of tensors by column, because equal columns deflate well.
struct TensorColumns<'r>(&'r [TensorRow]);

impl Serialize for TensorColumns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let rows = self.0;
        let offset = |row: &TensorRow| {
            let tensor = row.stored()?;
            let start = tensor.storage().file_offset();
            start.map(|start| start.saturating_add(tensor.span().start))
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &Rows(|| rows.iter().map(|row| &row.name)))?;
        map.serialize_entry("dtype", &Rows(|| rows.iter().map(|row| &row.dtype)))?;
        map.serialize_entry("shape", &Rows(|| rows.iter().map(TensorRow::shape)))?;
        map.serialize_entry("nbytes", &Rows(|| rows.iter().map(|row| row.nbytes)))?;
        map.serialize_entry("storage", &Rows(|| rows.iter().map(|row| &row.storage)))?;
        map.serialize_entry("offset", &Rows(|| rows.iter().map(offset)))?;
        map.serialize_entry(
            "note",
            &Rows(|| rows.iter().map(|row| row.layout.as_ref().or(row.note.as_ref()))),
        )?;
        if rows.iter().any(|row| row.statistics.known().is_some()) {
            map.serialize_entry("stats", &Rows(|| rows.iter().map(|row| &row.statistics)))?;
        } else {
            map.serialize_entry("stats", &())?;
        }
        map.end()
    }
}

impl Serialize for PageData {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let values = || self.report.values.iter().flat_map(ValueRows::rows);
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in &self.short {
            map.serialize_entry(key, value)?;
        }
        map.serialize_entry("tensors", &TensorColumns(&self.report.tensors))?;
        map.serialize_entry("tree", &Rows(|| self.report.tree.iter().flatten().map(tree_row)))?;
        map.serialize_entry("values", &Rows(|| values().map(|row| (row.path, row.type_name, row.value))))?;
        map.end()
    }
}

pub(crate) fn page_data(options: &ReportOptions, observer: &dyn Observer) -> Result<PageData> {
    // Before the tensors are read, because both hold the objects of the pickle.
    let mut scans = Vec::new();
    let mut add = |file: &FileScan| {
        scans.push(json!(file));
        Ok(())
    };
    crate::scan(&ScanOptions::new([options.input.clone()]), observer, &mut add)?;
    byte_source::report_memory_freed();
    let mut inspect = InspectOptions::new(options.input.clone());
    inspect.values = true;
    inspect.tree = true;
    inspect.statistics = options.statistics;
    inspect.histograms = options.statistics;
    let report = crate::inspect(&inspect, observer)?;
    let trace = match &options.steps {
        Some(range) => Some(steps::steps(options, range.clone())?),
        None => None,
    };
    let short = [
        ("program", json!(concat!("torch2carton ", env!("CARGO_PKG_VERSION")))),
        ("file", json!(report.file)),
        ("format", json!(report.format)),
        ("files", json!(report.files)),
        ("nbytes", json!(report.nbytes)),
        ("parameters", json!(report.totals.parameters)),
        ("dtypes", json!(report.totals.bytes_by_dtype)),
        ("notes", json!(report.notes.iter().map(ToString::to_string).collect::<Vec<_>>())),
        ("layout", file_layout::file_layout(&report, options.input.path())),
        ("left_out", json!(report.left_out)),
        ("left_out_count", json!(report.left_out_count)),
        ("risks", json!(report.risks)),
        ("scans", json!(scans)),
        ("trace", json!(trace)),
    ];
    Ok(PageData { short: short.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(), report })
}

fn tree_row(row: &TreeRow) -> Json {
    json!([
        row.depth,
        row.name,
        row.count,
        row.tensors,
        row.parameters,
        row.nbytes,
        row.dtype,
        row.shape,
        row.first_tensor
    ])
}

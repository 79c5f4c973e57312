//! Data of a report as JSON: what the program of the page shows.

use byte_source::Observer;
use pipeline::{InspectOptions, InspectReport, Result, RowView, ScanOptions, TensorRow, TreeRow, ValueRows};
use serde_json::{Value as Json, json};
use tensor::Tensors;

use crate::{ReportOptions, file_layout, steps};

/// Collects the data of a report.
pub(crate) fn page_data(
    options: &ReportOptions,
    carton_tensors: Option<Tensors>,
    observer: &dyn Observer,
) -> Result<Json> {
    let mut inspect = InspectOptions::new(&options.input);
    inspect.values = true;
    inspect.tree = true;
    inspect.statistics = options.statistics;
    inspect.histograms = options.statistics;
    let report = match carton_tensors {
        Some(tensors) => {
            let nbytes = std::fs::metadata(&options.input).map_or(0, |metadata| metadata.len());
            pipeline::inspect_tensors(&inspect, tensors, ("carton", nbytes), observer)?
        }
        None => pipeline::inspect(&inspect, observer)?,
    };
    let mut scans = Vec::new();
    let mut add = |file: &pipeline::FileScan| {
        scans.push(json!(file));
        Ok(())
    };
    pipeline::scan(&ScanOptions::new(vec![options.input.clone()]), observer, &mut add)?;
    let trace = match &options.steps {
        Some(range) => Some(steps::steps(&options.input, range.clone())?),
        None => None,
    };
    let values = report.values.iter().flat_map(ValueRows::rows);
    let values: Vec<Json> = values.map(|row| json!([row.path, row.type_name, row.value])).collect();
    Ok(json!({
        "program": concat!("torch2carton ", env!("CARGO_PKG_VERSION")),
        "file": report.file,
        "format": report.format,
        "files": report.files,
        "nbytes": report.nbytes,
        "parameters": report.totals.parameters,
        "dtypes": report.totals.bytes_by_dtype,
        "notes": report.notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "tensors": tensor_columns(&report),
        "tree": report.tree.iter().flatten().map(tree_row).collect::<Vec<_>>(),
        "layout": file_layout::file_layout(&report, &options.input),
        "left_out": report.left_out,
        "left_out_count": report.left_out_count,
        "values": values,
        "risks": report.risks,
        "scans": scans,
        "trace": trace,
    }))
}

/// Returns the rows of tensors by column, because equal columns deflate well.
fn tensor_columns(report: &InspectReport) -> Json {
    let rows = &report.tensors;
    let column = |value: &dyn Fn(&TensorRow) -> Json| rows.iter().map(value).collect::<Vec<Json>>();
    let has_statistics = rows.iter().any(|row| row.statistics.known().is_some());
    let offset = |row: &TensorRow| match &row.view {
        RowView::Strided(tensor) => {
            let start = tensor.storage().file_offset();
            json!(start.map(|start| start.saturating_add(tensor.span().start)))
        }
        RowView::Shape(_) => Json::Null,
    };
    json!({
        "name": column(&|row| json!(row.name)),
        "dtype": column(&|row| json!(row.dtype)),
        "shape": column(&|row| json!(row.shape())),
        "nbytes": column(&|row| json!(row.nbytes)),
        "storage": column(&|row| json!(row.storage)),
        "offset": column(&offset),
        "note": column(&|row| json!(row.layout.as_ref().or(row.note.as_ref()))),
        "stats": has_statistics.then(|| column(&|row| json!(row.statistics))),
    })
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

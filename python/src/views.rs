//! What a checkpoint looks like: statistics, the tree of its modules, and the report as a page.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use torch2carton::Tensors;
use torch2carton::crates::inspect;
use torch2carton::crates::inspect::{InspectOptions, InspectReport};
use torch2carton::crates::serde_json::json;

use crate::{errors, work};

/// Inspects tensors, and returns the statistics of each and the rows of the tree as JSON.
///
/// # Errors
/// When a tensor cannot be read, or the progress callable raises an exception.
pub(crate) fn inspected(
    py: Python<'_>,
    tensors: Tensors,
    path: &Path,
    set: impl FnOnce(&mut InspectOptions),
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let mut options = InspectOptions::new(path);
    set(&mut options);
    // The length of the file bounds the work for views that repeat a storage.
    let nbytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let report = work::run(py, progress, |observer| {
        inspect::inspect_tensors(&options, tensors, ("", nbytes), observer)
    })?;
    let report: InspectReport = report.map_err(|error| errors::exception(py, &error, Some(path)))?;
    let statistics: Vec<_> = report
        .tensors
        .iter()
        .map(|row| json!([row.name, row.statistics.known().map(|_| &row.statistics)]))
        .collect();
    Ok(json!({ "stats": statistics, "tree": report.tree }).to_string())
}

/// Returns the page of `torch2carton report PATH [OTHER]`. `steps` is the range of the pickle's steps.
#[pyfunction]
#[pyo3(signature = (path, other, *, stats, steps, progress))]
pub(crate) fn report<'py>(
    py: Python<'py>,
    path: PathBuf,
    other: Option<PathBuf>,
    stats: bool,
    steps: Option<(u64, u64)>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut page = Vec::new();
    let written = work::run(py, progress, |observer| {
        if let Some(other) = &other {
            torch2carton::diff(&path, other).write_page(&mut page, observer)?;
            return Ok(());
        }
        let mut report = torch2carton::report(&path);
        if stats {
            report = report.statistics();
        }
        if let Some((start, end)) = steps {
            report = report.steps(start..end);
        }
        report.write(&mut page, observer)
    })?;
    // An error of a comparison names its own file.
    let named = if other.is_some() { None } else { Some(path.as_path()) };
    written.map_err(|error| errors::exception(py, &error, named))?;
    Ok(PyBytes::new(py, &page))
}

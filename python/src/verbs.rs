//! The verbs of the command line as functions that return JSON, from which `torch2carton/_verbs.py` makes its results.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use pyo3::prelude::*;
use torch2carton::crates::carton_tools;
use torch2carton::crates::pipeline::{
    InspectOptions, ScanDepth, ScanOptions, TraceListing, TraceOptions, TraceView,
};
use torch2carton::crates::serde_json::{self, Value as Json};
use torch2carton::{Carton, Error, ErrorKind, FileScan};

use crate::{errors, work};

/// Number of steps of a trace that are ready before Python takes them.
const STEPS_AHEAD: usize = 64;

/// A progress callable, or None.
type Progress<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

fn to_json(py: Python<'_>, report: serde_json::Result<Json>) -> PyResult<String> {
    report.map(|json| json.to_string()).map_err(|error| errors::own(py, ErrorKind::Io, &error.to_string()))
}

/// Returns the report of `inspect` as JSON; a carton has its own.
#[pyfunction]
#[pyo3(signature = (path, *, sha256, all, packed, progress))]
pub(crate) fn inspect(
    py: Python<'_>,
    path: PathBuf,
    sha256: bool,
    all: bool,
    packed: bool,
    progress: Progress<'_, '_>,
) -> PyResult<String> {
    if py.detach(|| carton_tools::is_carton(&path)) {
        let contents = py.detach(|| Carton::open(&path)?.contents());
        let contents = contents.map_err(|error| errors::exception(py, &error, Some(&path)))?;
        return to_json(py, serde_json::to_value(&contents));
    }
    let mut options = InspectOptions::new(&path);
    options.sha256 = sha256;
    options.values = all;
    options.packed = packed;
    let report = work::run(py, progress, |observer| torch2carton::Inspect::from(options).run(observer))?;
    let report = report.map_err(|error| errors::exception(py, &error, Some(&path)))?;
    to_json(py, serde_json::to_value(&report))
}

/// Returns the reports of `scan` as a JSON list, and the verdict of all.
#[pyfunction]
#[pyo3(signature = (paths, *, checksums, pickles_only, progress))]
pub(crate) fn scan(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    checksums: bool,
    pickles_only: bool,
    progress: Progress<'_, '_>,
) -> PyResult<(String, String)> {
    let mut options = ScanOptions::new(paths);
    options.depth = match (checksums, pickles_only) {
        (true, _) => ScanDepth::Checksums,
        (false, true) => ScanDepth::PicklesOnly,
        (false, false) => ScanDepth::Everything,
    };
    let done = work::run(py, progress, |observer| {
        let mut files = Vec::new();
        let mut add = |file: &FileScan| files.push(serde_json::to_value(file));
        let summary = torch2carton::Scan::from(options).run_each(observer, &mut add)?;
        Ok::<_, Error>((files, summary.verdict()))
    })?;
    let (files, verdict) = done.map_err(|error| errors::exception(py, &error, None))?;
    let files = files.into_iter().collect::<serde_json::Result<Vec<_>>>();
    Ok((to_json(py, files.map(Json::Array))?, verdict.name().to_owned()))
}

/// Checks as `torch2carton verify ARGS` and returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (args, *, progress))]
pub(crate) fn verify(py: Python<'_>, args: Vec<OsString>, progress: Progress<'_, '_>) -> PyResult<String> {
    let check = torch2carton::cli::verification(args).map_err(|text| wrong_option(py, &text))?;
    let report = work::run(py, progress, |observer| check.run(observer))?;
    let report = report.map_err(|error| errors::exception(py, &error, None))?;
    to_json(py, serde_json::to_value(&report))
}

/// Compares as `torch2carton diff ARGS` and returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (args, *, progress))]
pub(crate) fn diff(py: Python<'_>, args: Vec<OsString>, progress: Progress<'_, '_>) -> PyResult<String> {
    let comparison = torch2carton::cli::comparison(args).map_err(|text| wrong_option(py, &text))?;
    let report = work::run(py, progress, |observer| comparison.run(observer))?;
    let report = report.map_err(|error| errors::exception(py, &error, None))?;
    to_json(py, serde_json::to_value(&report))
}

/// Computes the digest as `torch2carton digest ARGS` and returns it.
#[pyfunction]
#[pyo3(signature = (args, *, progress))]
pub(crate) fn digest(py: Python<'_>, args: Vec<OsString>, progress: Progress<'_, '_>) -> PyResult<String> {
    let digest = torch2carton::cli::digest_of_file(args).map_err(|text| wrong_option(py, &text))?;
    let report = work::run(py, progress, |observer| digest.run(observer))?;
    Ok(report.map_err(|error| errors::exception(py, &error, None))?.digest)
}

/// Returns the exception for an error of the command line, without the words that are for a terminal.
fn wrong_option(py: Python<'_>, text: &str) -> PyErr {
    let text = text.trim().trim_start_matches("error: ");
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    errors::own(py, ErrorKind::Option, text)
}

/// Converts as `torch2carton convert ARGS` and returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (args, *, progress))]
pub(crate) fn convert(py: Python<'_>, args: Vec<OsString>, progress: Progress<'_, '_>) -> PyResult<String> {
    let conversion = torch2carton::cli::conversion(args);
    let conversion = conversion.map_err(|text| wrong_option(py, &text))?;
    let report = work::run(py, progress, |observer| conversion.run(observer))?;
    let report = report.map_err(|error| errors::exception(py, &error, None))?;
    to_json(py, serde_json::to_value(&report))
}

/// Iterator over the steps of a trace, each a line of JSON.
#[pyclass(frozen, module = "torch2carton._native")]
pub(crate) struct TraceLines {
    lines: Mutex<Receiver<String>>,
    error: std::sync::Arc<Mutex<Option<Error>>>,
    path: PathBuf,
}

/// Writer that sends each line to the iterator.
struct LineSender {
    rest: Vec<u8>,
    lines: SyncSender<String>,
}

impl Write for LineSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if *byte == b'\n' {
                let line = String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned();
                // The iterator was dropped.
                self.lines.send(line).map_err(|_| io::ErrorKind::BrokenPipe)?;
            } else {
                self.rest.push(*byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts a trace on its own thread, which waits for the iterator.
#[pyfunction]
#[pyo3(signature = (path, *, full, limit, pickle))]
pub(crate) fn trace(
    path: PathBuf,
    full: bool,
    limit: Option<u64>,
    pickle: Option<usize>,
) -> PyResult<TraceLines> {
    let (sender, lines) = sync_channel(STEPS_AHEAD);
    let error = std::sync::Arc::new(Mutex::new(None));
    let mut options = TraceOptions::new(&path);
    options.listing = TraceListing::Trace { view: TraceView::Json, full, limit };
    options.pickle = pickle;
    let slot = std::sync::Arc::clone(&error);
    let run = move || {
        let mut sender = LineSender { rest: Vec::new(), lines: sender };
        if let Err(error) = torch2carton::Trace::from(options).run(&mut sender) {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    };
    std::thread::Builder::new().name("trace".to_owned()).spawn(run)?;
    Ok(TraceLines { lines: Mutex::new(lines), error, path })
}

#[pymethods]
impl TraceLines {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let next = py.detach(|| self.lines.lock().unwrap_or_else(PoisonError::into_inner).recv());
        if let Ok(line) = next {
            return Ok(Some(line));
        }
        match self.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(errors::exception(py, &error, Some(&self.path))),
            None => Ok(None),
        }
    }
}

/// Runs the command line and returns its exit status.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, args: Vec<OsString>) -> u8 {
    let code = py.detach(|| torch2carton::cli::run(args));
    (0..=u8::MAX).find(|status| ExitCode::from(*status) == code).unwrap_or(1)
}

//! The verbs of the command line as functions that return JSON, from which `torch2carton/_verbs.py` makes its results.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use torch2carton::crates::inspect::{InspectOptions, ScanOptions, TraceListing, TraceOptions, TraceView};
use torch2carton::crates::serde_json::{self, Map, Value as Json};
use torch2carton::crates::{carton_format, convert as conversion, open};
use torch2carton::{
    Carton, ConvertOptions, DiffOptions, Error, ErrorKind, FileScan, InputOptions, Location, Observer,
    StatementOptions, VerifyOptions, cli,
};

use crate::{errors, work};

/// Number of steps of a trace that are ready before Python takes them.
const STEPS_AHEAD: usize = 64;

/// A progress callable, or None.
type Progress<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

fn to_json(py: Python<'_>, report: serde_json::Result<Json>) -> PyResult<String> {
    report.map(|json| json.to_string()).map_err(|error| errors::own(py, ErrorKind::Io, &error.to_string()))
}

/// Returns the options of a JSON object, by the names that the command line has.
fn options(py: Python<'_>, text: &str) -> PyResult<Map<String, Json>> {
    serde_json::from_str(text).map_err(|error| errors::own(py, ErrorKind::Option, &error.to_string()))
}

/// Returns a request with the given options.
fn request<T>(py: Python<'_>, text: &str) -> PyResult<T>
where
    T: Default + Serialize + DeserializeOwned,
{
    open::set_options(&T::default(), options(py, text)?).map_err(|error| option_error(py, error))
}

fn option_error(py: Python<'_>, error: impl Into<conversion::Error>) -> PyErr {
    errors::exception(py, &error.into(), None)
}

/// Runs a request, and returns its report as JSON.
fn report<R: Serialize + Send>(
    py: Python<'_>,
    progress: Progress<'_, '_>,
    path: Option<&Path>,
    run: impl FnOnce(&dyn Observer) -> Result<R, Error> + Send,
) -> PyResult<String> {
    let report = work::run(py, progress, run)?.map_err(|error| errors::exception(py, &error, path))?;
    to_json(py, serde_json::to_value(&report))
}

/// Returns the report of `inspect` as JSON; a carton has its own.
#[pyfunction]
#[pyo3(signature = (path, options, *, progress))]
pub(crate) fn inspect(
    py: Python<'_>,
    path: PathBuf,
    options: &str,
    progress: Progress<'_, '_>,
) -> PyResult<String> {
    let mut request: InspectOptions = request(py, options)?;
    if !request.asks_for_rows() && py.detach(|| carton_format::Carton::is_at(&Location::from(&path))) {
        let contents = py.detach(|| Carton::open(&path)?.contents());
        let contents = contents.map_err(|error| errors::exception(py, &error, Some(&path)))?;
        return to_json(py, serde_json::to_value(&contents));
    }
    request.input = Location::from(&path);
    report(py, progress, Some(&path), |observer| torch2carton::Inspect::from(request).run(observer))
}

/// Returns the reports of `scan` as a JSON list, and the verdict of all.
#[pyfunction]
#[pyo3(signature = (paths, options, *, progress))]
pub(crate) fn scan(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    options: &str,
    progress: Progress<'_, '_>,
) -> PyResult<(String, String)> {
    let mut request: ScanOptions = request(py, options)?;
    request.inputs = paths.into_iter().map(Location::from).collect();
    let done = work::run(py, progress, |observer| {
        let mut files = Vec::new();
        let mut add = |file: &FileScan| files.push(serde_json::to_value(file));
        let summary = torch2carton::Scan::from(request).run_each(observer, &mut add)?;
        Ok::<_, Error>((files, summary.verdict()))
    })?;
    let (files, verdict) = done.map_err(|error| errors::exception(py, &error, None))?;
    let files = files.into_iter().collect::<serde_json::Result<Vec<_>>>();
    Ok((to_json(py, files.map(Json::Array))?, verdict.name().to_owned()))
}

/// Checks a carton, or compares an output with the checkpoint in the files `against`, and returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (path, against, options, *, progress))]
pub(crate) fn verify(
    py: Python<'_>,
    path: PathBuf,
    against: Vec<PathBuf>,
    options: &str,
    progress: Progress<'_, '_>,
) -> PyResult<String> {
    let mut request: VerifyOptions = request(py, options)?;
    let opened = py.detach(|| {
        request.file = cli::locate_input(&path)?;
        request.against = match against.as_slice() {
            [one] => vec![cli::locate_input(one)?],
            several => several.iter().map(Into::into).collect(),
        };
        Ok(())
    });
    opened.map_err(|error: Error| errors::exception(py, &error, None))?;
    report(py, progress, None, |observer| torch2carton::Verify::from(request).run(observer))
}

/// Repeats the conversion of a statement, compares its output, and returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (path, statement, inputs, any_version, *, progress))]
pub(crate) fn verify_statement(
    py: Python<'_>,
    path: PathBuf,
    statement: PathBuf,
    inputs: Vec<PathBuf>,
    any_version: bool,
    progress: Progress<'_, '_>,
) -> PyResult<String> {
    let mut request = StatementOptions::default();
    request.any_version = any_version;
    let opened = py.detach(|| {
        (request.output, request.statement) = (cli::locate_input(&path)?, cli::locate_input(&statement)?);
        request.inputs = inputs.iter().map(|input| cli::locate_input(input)).collect::<Result<_, _>>()?;
        Ok(())
    });
    opened.map_err(|error: Error| errors::exception(py, &error, None))?;
    report(py, progress, None, |observer| torch2carton::verify_statement(&request, observer))
}

/// Compares the tensors of an input with its configuration, and returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (path, *, progress))]
pub(crate) fn check(py: Python<'_>, path: PathBuf, progress: Progress<'_, '_>) -> PyResult<String> {
    let input =
        py.detach(|| cli::locate_input(&path)).map_err(|error| errors::exception(py, &error, None))?;
    report(py, progress, None, |observer| torch2carton::check(input).run(observer))
}

/// Compares two inputs and returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (a, b, options, *, progress))]
pub(crate) fn diff(
    py: Python<'_>,
    a: PathBuf,
    b: PathBuf,
    options: &str,
    progress: Progress<'_, '_>,
) -> PyResult<String> {
    let mut request: DiffOptions = request(py, options)?;
    (request.a, request.b) = (a.into(), b.into());
    report(py, progress, None, |observer| torch2carton::Diff::from(request).run(observer))
}

/// Computes the digest of an input and returns it.
#[pyfunction]
#[pyo3(signature = (path, options, *, progress))]
pub(crate) fn digest(
    py: Python<'_>,
    path: PathBuf,
    options: &str,
    progress: Progress<'_, '_>,
) -> PyResult<String> {
    let mut request: InputOptions = request(py, options)?;
    request.input = path.into();
    let report = work::run(py, progress, |observer| torch2carton::Digest::from(request).run(observer))?;
    Ok(report.map_err(|error| errors::exception(py, &error, None))?.digest)
}

/// Converts the checkpoint in the files `paths` and returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (paths, options, *, progress))]
pub(crate) fn convert(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    options: &str,
    progress: Progress<'_, '_>,
) -> PyResult<String> {
    let request = ConvertOptions::from_json(self::options(py, options)?);
    let mut request = request.map_err(|error| option_error(py, error))?;
    let located = py.detach(|| cli::locate(&mut request, &paths));
    located.map_err(|error| errors::exception(py, &error, None))?;
    report(py, progress, None, |observer| torch2carton::Convert::from(request).run(observer))
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
    let code = py.detach(|| cli::run(args));
    (0..=u8::MAX).find(|status| ExitCode::from(*status) == code).unwrap_or(1)
}

//! Batches whose jobs run in other processes: the driver's part, which is [`Batch`], and the worker's, which is [`BatchWorker`].

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use torch2carton::crates::batch::{self, BatchJob, JobResult};
use torch2carton::crates::{byte_source, serde_json};
use torch2carton::{ErrorKind, Observer, cli};

use crate::{errors, work};

/// Job of a batch: its input, the text from which a worker makes it again, the bytes and the memory that it needs, and the text of
/// its result if an earlier batch has done it.
type JobRow = (String, String, u64, u64, Option<String>);

/// A batch that has not ended: gives jobs, and writes each result once.
#[pyclass(frozen, module = "torch2carton._native")]
pub(crate) struct Batch {
    /// `None` when it has ended.
    batch: Mutex<Option<batch::Batch>>,
    encode: batch::LineEncoder,
}

impl Batch {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut batch::Batch) -> batch::Result<T> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
            batch.as_mut().map(work)
        });
        done.ok_or_else(|| errors::own(py, ErrorKind::Option, "the batch has ended"))?
            .map_err(|error| exception(py, &error))
    }
}

#[pymethods]
impl Batch {
    /// Opens the batch of a request, which is JSON. With `pushed`, its lines come from `job_of_line`, and the manifest is only
    /// the name of their source.
    #[new]
    fn new(py: Python<'_>, request: &str, pushed: bool) -> PyResult<Self> {
        let mut plan = plan(py, request)?;
        plan.settings.has_pushed_lines = pushed;
        let opened = py.detach(|| batch::Batch::open(&plan.settings, plan.parse, plan.encode));
        let batch = opened.map_err(|error| exception(py, &error))?;
        Ok(Self { batch: Mutex::new(Some(batch)), encode: plan.encode })
    }

    /// Number of inputs, if it is known.
    #[getter]
    fn total(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with(py, |batch| Ok(batch.total()))
    }

    /// Returns the next job of the manifest, or None at its end.
    fn next_job(&self, py: Python<'_>) -> PyResult<Option<JobRow>> {
        let job = self.with(py, batch::Batch::next_job)?;
        job.map(|job| row(py, &job)).transpose()
    }

    /// Returns the job of a line, or None if it is empty.
    fn job_of_line(&self, py: Python<'_>, line: &str) -> PyResult<Option<JobRow>> {
        let job = self.with(py, |batch| batch.job_of_line(line))?;
        job.map(|job| row(py, &job)).transpose()
    }

    /// Writes the result of a worker, and returns its line and whether an earlier batch did the work.
    fn add(&self, py: Python<'_>, message: &str) -> PyResult<(String, bool)> {
        let mut result = JobResult::from_message(message).map_err(|error| wrong_message(py, &error))?;
        self.with(py, |batch| batch.add(&mut result))?;
        let line = (self.encode)(&result.line)?;
        Ok((String::from_utf8_lossy(&line).into_owned(), result.is_kept()))
    }

    /// Ends the batch: removes the lines that are replaced. Returns the numbers of results that are ok, failed, and from an
    /// earlier batch.
    fn finish(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        let batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(batch) = batch else {
            return Err(errors::own(py, ErrorKind::Option, "the batch has ended"));
        };
        let counts = py.detach(|| batch.finish()).map_err(|error| exception(py, &error))?;
        Ok((counts.ok, counts.failed, counts.kept))
    }
}

/// Runs jobs of a batch with the same request.
#[pyclass(frozen, module = "torch2carton._native")]
pub(crate) struct BatchWorker(Mutex<batch::BatchWorker>);

#[pymethods]
impl BatchWorker {
    #[new]
    fn new(py: Python<'_>, request: &str) -> PyResult<Self> {
        let plan = plan(py, request)?;
        Ok(Self(Mutex::new(batch::BatchWorker::new(plan.settings, plan.parse))))
    }

    /// Runs a job on some cores, and returns the text of its result.
    fn run(&self, py: Python<'_>, message: &str, cores: usize) -> PyResult<String> {
        let run = |observer: &dyn Observer| {
            byte_source::set_core_share(NonZeroUsize::new(cores).unwrap_or(NonZeroUsize::MIN));
            self.0.lock().unwrap_or_else(PoisonError::into_inner).run(message, observer)
        };
        match work::run(py, None, run)? {
            Ok(result) => result.to_message().map_err(|error| wrong_message(py, &error)),
            Err(failure) => Err(errors::own(py, failure.kind, &failure.text)),
        }
    }
}

/// Returns the result of a job that ended without one. `message` is the text of the job.
#[pyfunction]
pub(crate) fn failed_job(py: Python<'_>, message: &str, code: &str, error: &str) -> PyResult<String> {
    let result = BatchJob::failed(message, code, error).and_then(|result| result.to_message());
    result.map_err(|error| wrong_message(py, &error))
}

/// Returns the request that the arguments of `torch2carton batch` are, as JSON.
#[pyfunction]
pub(crate) fn batch_request(py: Python<'_>, args: Vec<OsString>) -> PyResult<String> {
    cli::batch_request(args).map_err(|text| errors::own(py, ErrorKind::Option, text.trim()))
}

fn plan(py: Python<'_>, request: &str) -> PyResult<cli::BatchPlan> {
    cli::batch_plan(request).map_err(|text| errors::own(py, ErrorKind::Option, text.trim()))
}

fn row(py: Python<'_>, job: &BatchJob) -> PyResult<JobRow> {
    let (kept, size) = py.detach(|| (job.kept(), job.size()));
    let message = job.to_message().map_err(|error| wrong_message(py, &error))?;
    let kept = kept.map(|result| result.to_message()).transpose();
    let kept = kept.map_err(|error| wrong_message(py, &error))?;
    Ok((job.entry.input.clone(), message, size.bytes, size.memory, kept))
}

fn wrong_message(py: Python<'_>, error: &serde_json::Error) -> PyErr {
    errors::own(py, ErrorKind::Input, &error.to_string())
}

fn exception(py: Python<'_>, error: &batch::Error) -> PyErr {
    errors::of_file(py, error.kind(), &error.to_string(), error.location().path.as_deref())
}

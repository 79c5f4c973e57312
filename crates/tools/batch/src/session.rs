//! A batch: takes jobs from a manifest, and writes each result once.

use std::io;
use std::path::PathBuf;

use byte_source::{FileError, Observer};
use output::RemoteAddress;

use crate::job::ResultState;
use crate::job_source::JobSource;
use crate::repeated::SeenTensors;
use crate::results::{ResultStatus, ResultsFile, open_results};
use crate::workers::{ResultOrder, run_jobs};
use crate::{BatchJob, BatchSettings, JobLimits, JobResult, Result, ResultLine, Resume, TaskParser};

/// Counts of the results of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchCounts {
    /// Number of inputs whose task was done.
    pub ok: u64,
    /// Number of inputs that failed.
    pub failed: u64,
    /// Length in bytes of the tensors that an earlier result has, too.
    pub repeated_bytes: u64,
    /// Number of the others whose result an earlier batch had: they are in `ok` or `failed`, too.
    pub kept: u64,
}

impl BatchCounts {
    /// Returns the number of all results.
    pub fn all(&self) -> u64 {
        self.ok.saturating_add(self.failed)
    }
}

/// A batch that has not ended.
///
/// A caller either calls [`run`](Self::run), or takes jobs with [`next_job`](Self::next_job), runs them anywhere, and returns
/// each result to [`add`](Self::add).
pub struct Batch {
    source: JobSource,
    total: Option<u64>,
    results: Results,
}

/// Results of a batch so far.
struct Results {
    file: Option<ResultsFile>,
    encode: LineEncoder,
    counts: BatchCounts,
    tensors: SeenTensors,
}

/// Function that makes a line of JSON of a result, without its end.
pub type LineEncoder = fn(&ResultLine) -> io::Result<Vec<u8>>;

impl Batch {
    /// Opens the manifest and the results.
    ///
    /// # Errors
    /// When the manifest cannot be read or a line is refused; when there are results that are not to be resumed, or another
    /// batch writes to them; when the folder for outputs cannot be created.
    pub fn open(settings: &BatchSettings, parse: Box<TaskParser>, encode: LineEncoder) -> Result<Self> {
        let is_resumed = settings.resume != Resume::ConvertAll;
        let opened = settings.results.as_deref().map(|path| open_results(path, is_resumed)).transpose()?;
        let (file, earlier) = opened.unzip();
        let (source, total) = JobSource::open(settings, parse, earlier)?;
        let is_local = |folder: &&PathBuf| RemoteAddress::from_path(folder).is_none();
        if let Some(folder) = settings.folder.as_ref().filter(is_local) {
            let failed = |reason| FileError::Create { path: folder.clone(), reason };
            std::fs::create_dir_all(folder).map_err(failed)?;
            output::remove_abandoned(folder);
        }
        let (counts, tensors) = (BatchCounts::default(), SeenTensors::default());
        Ok(Self { source, total, results: Results { file, encode, counts, tensors } })
    }

    /// Returns the number of inputs, if it is known before the manifest is read to its end.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns the next job; `None` at the end of the manifest.
    ///
    /// # Errors
    /// When the next line of the manifest is refused, or the results of an earlier batch cannot be read.
    pub fn next_job(&mut self) -> Result<Option<BatchJob>> {
        self.source.next_job()
    }

    /// Returns the job of the next line of a manifest whose lines the caller gives; `None` if the line is empty, or does not
    /// belong to the shard.
    ///
    /// # Errors
    /// Those of [`next_job`](Self::next_job).
    pub fn job_of_line(&mut self, line: &str) -> Result<Option<BatchJob>> {
        self.source.job_of_line(line)
    }

    /// Adds the result of a job: compares its tensors with those of earlier results, counts it, and appends its line unless an
    /// earlier batch did.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn add(&mut self, result: &mut JobResult) -> Result<()> {
        self.results.add(result)
    }

    /// Ends the batch: removes the lines that are replaced, or whose input is not in the manifest.
    ///
    /// # Errors
    /// When the results cannot be written.
    pub fn finish(mut self) -> Result<BatchCounts> {
        if let (Some(file), Some(earlier)) = (self.results.file, self.source.earlier.take()) {
            file.finish(earlier, |input| self.source.has(input))?;
        }
        Ok(self.results.counts)
    }

    /// Runs all jobs on this machine. `on_result` takes each result when its job ends, with the counts so far.
    ///
    /// # Errors
    /// When a line of the manifest is refused, the results cannot be written, `on_result` fails, or `observer` stops the batch.
    pub fn run(
        mut self,
        limits: JobLimits,
        observer: &dyn Observer,
        on_result: &mut dyn FnMut(&JobResult, &BatchCounts) -> io::Result<()>,
    ) -> Result<BatchCounts> {
        let (source, results) = (&mut self.source, &mut self.results);
        run_jobs(
            limits,
            ResultOrder::AsJobsEnd,
            observer,
            || source.next_job(),
            |mut result: JobResult| {
                results.add(&mut result)?;
                Ok(on_result(&result, &results.counts).map_err(unwritten)?)
            },
        )?;
        self.finish()
    }
}

/// Converts the error of passing on a result.
fn unwritten(reason: io::Error) -> FileError {
    FileError::Output { what: "a result", reason }
}

impl Results {
    fn add(&mut self, result: &mut JobResult) -> Result<()> {
        result.compare_tensors(&mut self.tensors);
        let counts = &mut self.counts;
        let count = if result.line.status == ResultStatus::Ok { &mut counts.ok } else { &mut counts.failed };
        *count = count.saturating_add(1);
        counts.repeated_bytes = counts.repeated_bytes.saturating_add(result.line.repeated_bytes.unwrap_or(0));
        counts.kept = counts.kept.saturating_add(u64::from(result.is_kept()));
        let Some(file) = self.file.as_mut().filter(|_| result.state != ResultState::Kept) else {
            return Ok(());
        };
        let mut line = (self.encode)(&result.line).map_err(unwritten)?;
        line.push(b'\n');
        file.append(&result.line.input, &line, result.state != ResultState::New)
    }
}

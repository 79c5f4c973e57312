//! A batch: takes jobs from a manifest, and writes each result once.

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use byte_source::Observer;
use convert::run_jobs;
use output::RemoteAddress;

use crate::job_source::JobSource;
use crate::memory::MemoryBudget;
use crate::repeated::SeenTensors;
use crate::results::{ResultStatus, ResultsFile, open_results};
use crate::task::ResultState;
use crate::{BatchJob, BatchSettings, Error, JobResult, Result, ResultLine, TaskError, TaskParser};

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

/// Resources that the jobs of a batch share.
#[derive(Clone, Copy, Debug)]
pub struct JobLimits {
    /// Number of jobs that run at the same time, and share the cores.
    pub jobs: NonZeroUsize,
    /// Memory in bytes that the jobs take together, as far as it can be estimated; `None` for no limit.
    pub memory: Option<u64>,
}

/// A batch that has not ended.
///
/// A caller either calls [`run`](Self::run), or takes jobs with [`next_job`](Self::next_job), runs them anywhere, and returns
/// each result to [`add`](Self::add).
pub struct Batch {
    source: JobSource,
    results: Option<ResultsFile>,
    encode: LineEncoder,
    total: Option<u64>,
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
        if let Some(blobs) = &settings.blobs {
            let folders = [Some(&blobs.path), settings.folder.as_ref()];
            let mut folders = folders.into_iter().flatten();
            folders
                .try_for_each(|folder| output::refuse_remote_output(folder))
                .map_err(Error::BlobsAtAddress)?;
        }
        let is_resumed = settings.resume != convert::Resume::ConvertAll;
        let opened = settings.results.as_deref().map(|path| open_results(path, is_resumed)).transpose()?;
        let (results, earlier) = opened.unzip();
        let (source, total) = JobSource::open(settings, parse, earlier)?;
        let is_local = |folder: &&PathBuf| RemoteAddress::from_path(folder).is_none();
        if let Some(folder) = settings.folder.as_ref().filter(is_local) {
            let failed = |reason| Error::CreateFolder { path: folder.clone(), reason };
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        Ok(Self {
            source,
            results,
            encode,
            total,
            counts: BatchCounts::default(),
            tensors: SeenTensors::default(),
        })
    }

    /// Returns the number of inputs, if it is known before the manifest is read to its end.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns the counts of the results so far.
    pub fn counts(&self) -> BatchCounts {
        self.counts
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

    /// Adds the result of a job: compares its tensors with those of earlier results, counts it, and appends its line unless an earlier batch did.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn add(&mut self, result: &mut JobResult) -> Result<()> {
        result.compare_tensors(&mut self.tensors);
        self.counts.add(result);
        append(self.results.as_mut(), self.encode, result)
    }

    /// Ends the batch: removes the lines that are replaced, or whose input is not in the manifest.
    ///
    /// # Errors
    /// When the results cannot be written.
    pub fn finish(mut self) -> Result<BatchCounts> {
        if let (Some(results), Some(earlier)) = (self.results, self.source.earlier.take()) {
            results.finish(earlier, |input| self.source.has(input))?;
        }
        Ok(self.counts)
    }

    /// Runs all jobs on this machine. `error_text` makes the text of a task's error, and `on_result` takes each result when its
    /// job ends, with the counts so far.
    ///
    /// # Errors
    /// When a line of the manifest is refused, the results cannot be written, `on_result` fails, or `observer` stops the batch.
    pub fn run(
        mut self,
        limits: JobLimits,
        observer: &dyn Observer,
        error_text: &(dyn Fn(TaskError) -> String + Sync),
        on_result: &mut dyn FnMut(&JobResult, &BatchCounts) -> io::Result<()>,
    ) -> Result<BatchCounts> {
        let budget = limits.memory.map(MemoryBudget::new);
        let run = |job: Result<BatchJob>, observer: &dyn Observer| -> Result<JobResult> {
            let job = job?;
            let share = budget
                .as_ref()
                .map(|budget| budget.reserve(Path::new(&job.entry.input), limits.jobs.get(), observer));
            if share.as_ref().is_some_and(Option::is_none) {
                return Err(Error::Cancelled);
            }
            job.run(observer, error_text).ok_or(Error::Cancelled)
        };
        let source = Mutex::new(&mut self.source);
        let (results, counts, encode) = (&mut self.results, &mut self.counts, self.encode);
        let tensors = &mut self.tensors;
        // After an error no further line is read.
        let mut is_over = false;
        let next_job = || {
            let job = if is_over {
                None
            } else {
                source.lock().unwrap_or_else(PoisonError::into_inner).next_job().transpose()
            };
            is_over = !matches!(job, Some(Ok(_)));
            job
        };
        run_jobs(limits.jobs, observer, next_job, run, |result: Result<JobResult>| {
            let mut result = result?;
            result.compare_tensors(tensors);
            counts.add(&result);
            append(results.as_mut(), encode, &result)?;
            on_result(&result, counts).map_err(Error::Output)
        })?;
        self.finish()
    }
}

impl BatchCounts {
    fn add(&mut self, result: &JobResult) {
        let count = if result.line.status == ResultStatus::Ok { &mut self.ok } else { &mut self.failed };
        *count = count.saturating_add(1);
        self.repeated_bytes = self.repeated_bytes.saturating_add(result.line.repeated_bytes.unwrap_or(0));
        self.kept = self.kept.saturating_add(u64::from(result.is_kept()));
    }
}

/// Appends the line of a result to the results, unless it is there.
fn append(results: Option<&mut ResultsFile>, encode: LineEncoder, result: &JobResult) -> Result<()> {
    let Some(results) = results else { return Ok(()) };
    if result.state == ResultState::Kept {
        return Ok(());
    }
    let mut line = encode(&result.line).map_err(Error::Output)?;
    line.push(b'\n');
    results.append(&result.line.input, &line, result.state != ResultState::New)
}

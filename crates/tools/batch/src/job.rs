//! Jobs of a batch: a task on one input, and its result, or that of an earlier batch.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use byte_source::{Cancelled, ErrorKind, Observer};
use output::{OutputRecord, RemoteAddress, file_name, parent_folder};
use serde::{Deserialize, Serialize};

use crate::repeated::{SeenTensors, TensorKey};
use crate::resume::check_existing;
use crate::{
    BatchSettings, ExistingOutput, Failure, Job, ManifestEntry, Outcome, PlannedTask, ResultLine,
    ResultStatus, Resume, Task,
};

/// Codes of failures that have other causes than the input, so that another attempt may succeed.
const TRANSIENT: [ErrorKind; 3] = [ErrorKind::Io, ErrorKind::Changed, ErrorKind::Cancelled];

/// Task on one input.
#[derive(Clone)]
pub struct BatchJob {
    /// Its line in the manifest.
    pub entry: ManifestEntry,
    /// Folder of outputs without a path of their own.
    folder: Option<PathBuf>,
    task: Arc<dyn Task>,
    /// Outputs that are not made again.
    resume: Resume,
    pub(crate) earlier: Option<ResultLine>,
}

/// Result of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobResult {
    pub line: ResultLine,
    /// Relation to the result of an earlier batch.
    pub(crate) state: ResultState,
    /// Tensors to compare with those of other results, if the input has a digest.
    contents: Option<Vec<TensorKey>>,
}

/// Relation of a result to that of an earlier batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ResultState {
    New,
    Replacing,
    /// It is the earlier one, which is still valid.
    Kept,
    /// It is the earlier one with other times of the output's files.
    Touched,
}

impl JobResult {
    /// Creates the result of a task that was done now.
    pub(crate) fn new(line: ResultLine, contents: Vec<TensorKey>, has_earlier: bool) -> Self {
        let state = if has_earlier { ResultState::Replacing } else { ResultState::New };
        let contents = line.digest.is_some().then_some(contents);
        Self { line, state, contents }
    }

    /// Returns true if an earlier batch did the work.
    pub fn is_kept(&self) -> bool {
        matches!(self.state, ResultState::Kept | ResultState::Touched)
    }

    /// Sets how many bytes of tensors are repeated.
    pub(crate) fn compare_tensors(&mut self, seen: &mut SeenTensors) {
        if let Some(contents) = self.contents.take() {
            self.line.repeated_bytes = Some(seen.repeated_bytes(&contents));
        }
    }
}

impl BatchJob {
    pub(crate) fn new(
        entry: ManifestEntry,
        task: Arc<dyn Task>,
        earlier: Option<ResultLine>,
        settings: &BatchSettings,
    ) -> Self {
        Self { entry, folder: settings.folder.clone(), task, resume: settings.resume, earlier }
    }

    /// Returns the result of an earlier batch if it is still valid and no file has to be read as a whole to know that. What it
    /// does not answer, [`run`](Job::run) does.
    pub fn kept(&self) -> Option<JobResult> {
        let is_remote = RemoteAddress::from_path(self.entry.input.as_ref()).is_some();
        let reads_files = self.task.reads_whole_inputs() || self.resume != Resume::SkipComplete;
        if is_remote || reads_files || self.earlier.is_none() {
            return None;
        }
        let planned = self.plan().ok()?;
        self.check_earlier(&*planned, &HeadersOnly).ok()?.filter(|kept| kept.state == ResultState::Kept)
    }

    fn plan(&self) -> Result<Box<dyn PlannedTask + '_>, Failure> {
        self.task.plan(&self.entry, self.folder.as_deref())
    }

    /// Returns the result of an earlier batch if it is still valid.
    fn check_earlier(
        &self,
        planned: &dyn PlannedTask,
        observer: &dyn Observer,
    ) -> Result<Option<JobResult>, Cancelled> {
        let Some(earlier) = &self.earlier else { return Ok(None) };
        if planned.made_from().is_none() || earlier.made_from.as_deref() != planned.made_from() {
            return Ok(None);
        }
        let kept = |line, state| Ok(Some(JobResult { line, state, contents: None }));
        if earlier.status == ResultStatus::Failed {
            let is_transient = TRANSIENT.iter().any(|kind| Some(kind.name()) == earlier.code.as_deref());
            return if is_transient { Ok(None) } else { kept(earlier.clone(), ResultState::Kept) };
        }
        let Some(output) = planned.output() else { return kept(earlier.clone(), ResultState::Kept) };
        if earlier.output.as_deref() != Some(&output.path().display().to_string()) {
            return Ok(None);
        }
        // Another process may have made the output after one was lost. A folder has the temporary files in it, a file next to it.
        let is_remote = RemoteAddress::from_path(output.path()).is_some();
        let folder = if output.path().is_dir() { output.path() } else { parent_folder(output.path()) };
        if !is_remote {
            output::remove_abandoned(folder);
        }
        let (made_from, files) = (earlier.made_from.clone(), earlier.files.clone());
        let record = OutputRecord { output: file_name(output.path()), made_from, files };
        match check_existing(output, &record, self.resume, observer)? {
            ExistingOutput::Incomplete => Ok(None),
            ExistingOutput::Complete => kept(earlier.clone(), ResultState::Kept),
            ExistingOutput::Touched(files) => {
                kept(ResultLine { files, ..earlier.clone() }, ResultState::Touched)
            }
        }
    }
}

/// Does the task, or returns the result of an earlier batch that is still valid.
impl Job for BatchJob {
    type Done = JobResult;

    fn input(&self) -> &Path {
        self.entry.input.as_ref()
    }

    fn run(self, observer: &dyn Observer) -> Result<JobResult, Cancelled> {
        let start = Instant::now();
        let planned = self.plan();
        let kept =
            planned.as_ref().ok().map(|planned| self.check_earlier(&**planned, observer)).transpose()?;
        if let Some(kept) = kept.flatten() {
            return Ok(kept);
        }
        let (made_from, nbytes) = match &planned {
            Ok(planned) => (planned.made_from().map(str::to_owned), planned.nbytes()),
            Err(_) => (None, 0),
        };
        let mut outcome = planned.and_then(|planned| planned.run(observer)).unwrap_or_else(Outcome::from);
        if outcome.failure.as_ref().is_some_and(|failure| failure.kind == ErrorKind::Cancelled) {
            return Err(Cancelled);
        }
        let contents = std::mem::take(&mut outcome.contents);
        let mut line = ResultLine::new(self.entry.input, outcome, nbytes);
        line.seconds = start.elapsed().as_secs_f64();
        line.made_from = made_from;
        Ok(JobResult::new(line, contents, self.earlier.is_some()))
    }
}

/// Observer that stops work before its first window.
struct HeadersOnly;

impl Observer for HeadersOnly {
    fn is_cancelled(&self) -> bool {
        true
    }
}

/// Returns the length of a file, or of all files at the top level of a folder.
pub fn nbytes(path: &Path) -> u64 {
    let len = |path: &Path| {
        path.metadata().map_or(0, |metadata| if metadata.is_file() { metadata.len() } else { 0 })
    };
    if path.is_dir() {
        let entries = path.read_dir().into_iter().flatten().flatten();
        return entries.map(|entry| len(&entry.path())).fold(0, u64::saturating_add);
    }
    len(path)
}

//! Tasks that a batch does with each input, and their results.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use byte_source::{ErrorKind, FileStat, Location, Observer, Stat};
use convert::{
    BatchOutput, ConvertOptions, ExistingOutput, InputContent, InvalidOption, OutputKind, PlannedConversion,
    Resume, inputs_digest,
};
use inspect::{
    DigestReport, FileScan, InputOptions, InspectOptions, ScanOptions, ScanOutcome, ScanSummary, Verdict,
};
use open::files::{CheckpointSources, ShardPolicy};
use open::{Selection, is_carton, set_options};
use output::{FileRecord, OutputRecord, RemoteAddress, file_name};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::repeated::{SeenTensors, TensorKey};
use crate::results::{ResultLine, ResultStatus, SCHEMA_VERSION};
use crate::{BatchSettings, BlobFolder, LineTask, ManifestEntry, TaskError};

/// Codes of failures that have other causes than the input, so that another attempt may succeed.
const TRANSIENT: [ErrorKind; 3] = [ErrorKind::Io, ErrorKind::Changed, ErrorKind::Cancelled];

/// Kind of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum TaskKind {
    /// Convert it, as `torch2carton convert`
    Convert,
    /// Report what it would execute, as `torch2carton scan`
    Scan,
    /// Count its tensors, as `torch2carton inspect`
    Inspect,
    /// Hash its tensors, as `torch2carton digest`
    Digest,
}

/// Task with its options. The inputs in the options are replaced by those of the manifest.
#[derive(Clone, Debug, Serialize)]
pub enum BatchTask {
    Convert(Box<ConvertOptions>),
    Scan(ScanOptions),
    Inspect(Box<InspectOptions>),
    Digest(Box<InputOptions>),
}

impl BatchTask {
    /// Creates a task from its options as JSON. Of the path of an output, only the extension counts.
    ///
    /// # Errors
    /// When the task does not have an option, or a value is wrong.
    pub fn from_json(
        kind: TaskKind,
        mut options: Map<String, Json>,
        output: Option<&Path>,
    ) -> Result<Self, InvalidOption> {
        if options.contains_key("output") {
            return Err(open::InvalidOption::Unknown { name: "output".to_owned() }.into());
        }
        Ok(match kind {
            TaskKind::Convert => {
                let extension = output.and_then(Path::extension).unwrap_or_default();
                let placeholder = Path::new("output").with_extension(extension).display().to_string();
                options.extend(output.map(|_| ("output".to_owned(), placeholder.into())));
                Self::Convert(Box::new(ConvertOptions::from_json(options)?))
            }
            TaskKind::Scan => Self::Scan(set_options(&ScanOptions::default(), options)?),
            TaskKind::Inspect => Self::Inspect(Box::new(set_options(&InspectOptions::default(), options)?)),
            TaskKind::Digest => Self::Digest(Box::new(set_options(&InputOptions::default(), options)?)),
        })
    }

    /// Returns true for a conversion into cartons.
    pub fn writes_cartons(&self) -> bool {
        matches!(self, Self::Convert(options) if options.target.kind() == Some(OutputKind::Carton))
    }
}

/// Task on one input.
#[derive(Clone, Debug)]
pub struct BatchJob {
    /// Its line in the manifest.
    pub entry: ManifestEntry,
    /// Folder of outputs without a path of their own.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) task: Arc<LineTask>,
    /// Outputs that are not made again.
    pub(crate) resume: Resume,
    /// True if a task that does not hash the tensors computes their digest, too.
    pub(crate) has_digest: bool,
    pub(crate) blobs: Option<BlobFolder>,
    pub(crate) earlier: Option<ResultLine>,
}

/// Result of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobResult {
    pub line: ResultLine,
    /// Relation to the result of an earlier batch.
    pub(crate) state: ResultState,
    /// Tensors to compare with those of other results, if the input has a digest.
    pub(crate) contents: Option<Vec<TensorKey>>,
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

impl ResultState {
    pub(crate) fn of_new_line(has_earlier: bool) -> Self {
        if has_earlier { Self::Replacing } else { Self::New }
    }
}

impl JobResult {
    pub(crate) fn without_tensors(line: ResultLine, state: ResultState) -> Self {
        Self { line, state, contents: None }
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

/// Digest of an input, and its tensors.
struct InputDigest {
    text: String,
    contents: Vec<TensorKey>,
}

impl From<DigestReport> for InputDigest {
    fn from(report: DigestReport) -> Self {
        Self { contents: TensorKey::of_contents(&report.contents), text: report.digest }
    }
}

#[derive(Default)]
struct Outcome {
    digest: Option<InputDigest>,
    output: Option<PathBuf>,
    files: Vec<FileRecord>,
    verdict: Option<Verdict>,
    tensors: Option<usize>,
    /// Text and kind of a failure that is not an error of a library.
    failure: Option<(String, ErrorKind)>,
}

impl BatchJob {
    pub(crate) fn new(
        entry: ManifestEntry,
        task: Arc<LineTask>,
        earlier: Option<ResultLine>,
        settings: &BatchSettings,
    ) -> Self {
        Self {
            entry,
            folder: settings.folder.clone(),
            task,
            resume: settings.resume,
            has_digest: settings.has_digest,
            blobs: settings.blobs.clone(),
            earlier,
        }
    }

    /// Returns the task and its options as text.
    fn text(&self) -> String {
        let task = serde_json::to_string(&self.task.task).expect("options are texts, numbers and lists");
        format!("{task} {}", self.has_digest)
    }

    /// Returns the result of an earlier batch if it is still valid and no file has to be read as a whole to know that. What it
    /// does not answer, [`run`](Self::run) does.
    pub fn kept(&self) -> Option<JobResult> {
        let earlier = self.earlier.as_ref()?;
        if matches!(self.task.task, BatchTask::Scan(_)) || self.resume != Resume::SkipComplete {
            return None;
        }
        let input = Path::new(&self.entry.input);
        let is_remote = RemoteAddress::from_path(input).is_some();
        let planned = if is_remote { None } else { PlannedJob::new(self, input.into()).ok() };
        let checked = planned?.check_earlier(earlier, self.resume, &HeadersOnly);
        let is_kept = checked.is_ok_and(|state| state == Some(ResultState::Kept));
        is_kept.then(|| JobResult::without_tensors(earlier.clone(), ResultState::Kept))
    }

    /// Does the task, or returns the result of an earlier batch that is still valid. `error_text` makes the text of an error.
    /// Returns `None` when `observer` stops the work.
    pub fn run(
        &self,
        observer: &dyn Observer,
        error_text: &dyn Fn(TaskError) -> String,
    ) -> Option<JobResult> {
        let start = Instant::now();
        let input = match (self.task.locate)(self.entry.input.as_ref()) {
            Ok(input) => input,
            Err((kind, error)) => {
                let line = ResultLine::failed(&self.entry.input, kind.name(), &error);
                let state = ResultState::of_new_line(self.earlier.is_some());
                return Some(JobResult::without_tensors(line, state));
            }
        };
        let planned = PlannedJob::new(self, input);
        if let (Some(earlier), Ok(planned)) = (&self.earlier, &planned) {
            match planned.check_earlier(earlier, self.resume, observer) {
                Err(_) => return None,
                Ok(Some(ResultState::Kept)) => {
                    return Some(JobResult::without_tensors(earlier.clone(), ResultState::Kept));
                }
                Ok(Some(state)) => {
                    let line = planned.touched(earlier, self.resume, observer)?;
                    return Some(JobResult::without_tensors(line, state));
                }
                Ok(None) => {}
            }
        }
        let (made_from, bytes) =
            planned.as_ref().map_or((None, 0), |planned| (planned.made_from.clone(), planned.bytes));
        let done = planned.and_then(|planned| planned.run(self, observer));
        let (outcome, failure) = match done {
            Ok(mut outcome) => {
                let failure = outcome.failure.take();
                (outcome, failure)
            }
            Err(error) => {
                let kind = error.kind();
                if kind == ErrorKind::Cancelled {
                    return None;
                }
                (Outcome::default(), Some((error_text(error), kind)))
            }
        };
        let status = if failure.is_some() { ResultStatus::Failed } else { ResultStatus::Ok };
        let (error, code) =
            failure.map_or((None, None), |(text, kind)| (Some(text), Some(kind.name().to_owned())));
        let (digest, contents) = outcome.digest.map(|digest| (digest.text, digest.contents)).unzip();
        let line = ResultLine {
            schema_version: SCHEMA_VERSION,
            input: self.entry.input.clone(),
            status,
            error,
            code,
            digest,
            output: outcome.output.map(|path| path.display().to_string()),
            seconds: start.elapsed().as_secs_f64(),
            bytes,
            verdict: outcome.verdict.map(|verdict| verdict.name().to_owned()),
            tensors: outcome.tensors,
            repeated_bytes: None,
            made_from,
            files: outcome.files,
        };
        Some(JobResult { line, state: ResultState::of_new_line(self.earlier.is_some()), contents })
    }
}

/// Observer that stops work before its first window.
struct HeadersOnly;

impl Observer for HeadersOnly {
    fn is_cancelled(&self) -> bool {
        true
    }
}

/// Job whose input was found.
struct PlannedJob {
    /// Digest of the task, its options and the input; `None` if the input cannot be read.
    made_from: Option<String>,
    /// Length of the input's files in bytes.
    bytes: u64,
    output: Option<BatchOutput>,
    blobs: Option<BlobFolder>,
    input: Location,
}

impl PlannedJob {
    fn new(job: &BatchJob, input: Location) -> Result<Self, TaskError> {
        let output = match &job.task.task {
            BatchTask::Convert(options) => Some(BatchOutput::new(plan_conversion(job, options, &input)?)),
            _ => None,
        };
        if let (Some(_), Some(output)) = (&job.blobs, &output) {
            output::refuse_remote_output(output.path())?;
        }
        let files: Vec<Location> = match (&output, &job.task.task) {
            (Some(output), _) => output.inputs().collect(),
            (None, BatchTask::Inspect(_)) => input_files(&input, ShardPolicy::ThisFileOnly)?,
            (None, BatchTask::Digest(options)) => input_files(&input, options.shards())?,
            (None, _) => vec![input.clone()],
        };
        let files_digest = |content| inputs_digest(&job.text(), &files, content).ok();
        let made_from = match (&output, &job.task.task) {
            (Some(output), _) => {
                let made_from = output.made_from().map(str::to_owned);
                match &job.blobs {
                    Some(blobs) => made_from.and_then(|made_from| blobs.made_from(&made_from)),
                    None => made_from,
                }
            }
            (None, BatchTask::Scan(_)) => files_digest(InputContent::Bytes),
            (None, _) => files_digest(InputContent::Tensors),
        };
        let bytes = files.iter().map(nbytes_at).fold(0, u64::saturating_add);
        Ok(Self { made_from, bytes, output, blobs: job.blobs.clone(), input })
    }

    /// Compares the result of an earlier batch: `None` if the task has to be done again.
    fn check_earlier(
        &self,
        earlier: &ResultLine,
        resume: Resume,
        observer: &dyn Observer,
    ) -> Result<Option<ResultState>, TaskError> {
        if self.made_from.is_none() || earlier.made_from != self.made_from {
            return Ok(None);
        }
        if earlier.status == ResultStatus::Failed {
            let is_transient = TRANSIENT.iter().any(|kind| Some(kind.name()) == earlier.code.as_deref());
            return Ok((!is_transient).then_some(ResultState::Kept));
        }
        let Some(output) = &self.output else { return Ok(Some(ResultState::Kept)) };
        if earlier.output.as_deref() != Some(&output.path().display().to_string()) {
            return Ok(None);
        }
        if let Some(blobs) = &self.blobs {
            let verify = resume == Resume::SkipVerified;
            let is_complete = blobs.is_complete(output.path(), &earlier.files, verify, observer);
            return Ok(is_complete.then_some(ResultState::Kept));
        }
        Ok(match output.check_existing(&earlier_record(output, earlier), resume, observer)? {
            ExistingOutput::Incomplete => None,
            ExistingOutput::Complete => Some(ResultState::Kept),
            ExistingOutput::Touched(_) => Some(ResultState::Touched),
        })
    }

    /// Returns the earlier line with the current times of the output's files.
    fn touched(&self, earlier: &ResultLine, resume: Resume, observer: &dyn Observer) -> Option<ResultLine> {
        let output = self.output.as_ref()?;
        let record = earlier_record(output, earlier);
        let files = match output.check_existing(&record, resume, observer).ok()? {
            ExistingOutput::Touched(record) => record.files,
            _ => record.files,
        };
        Some(ResultLine { files, ..earlier.clone() })
    }

    fn run(self, job: &BatchJob, observer: &dyn Observer) -> Result<Outcome, TaskError> {
        match &job.task.task {
            BatchTask::Convert(options) => {
                let output = self.output.as_ref().expect("a conversion has an output");
                let (report, record) = output.convert(observer)?;
                let mut files = record.map(|record| record.files).unwrap_or_default();
                if let (Some(blobs), true) = (&self.blobs, report.written) {
                    files = blobs.shrink(output.path(), observer)?;
                }
                let digest = self.digest(job, (options.shards(), &options.selection), observer)?;
                let tensors = Some(report.tensors);
                let output = report.written.then(|| output.path().to_owned());
                Ok(Outcome { digest, output, files, tensors, ..Outcome::default() })
            }
            BatchTask::Scan(options) => self.scan(job, options, observer),
            BatchTask::Inspect(options) => {
                let mut options = (**options).clone();
                options.input = self.input.clone();
                let tensors = inspect::inspect(&options, observer)?.tensors.len();
                let digest =
                    self.digest(job, (ShardPolicy::ThisFileOnly, &Selection::default()), observer)?;
                Ok(Outcome { digest, tensors: Some(tensors), ..Outcome::default() })
            }
            BatchTask::Digest(options) => {
                let mut options = (**options).clone();
                options.input = self.input.clone();
                let report = inspect::digest(&options, observer)?;
                Ok(Outcome {
                    tensors: Some(report.tensors),
                    digest: Some(report.into()),
                    ..Outcome::default()
                })
            }
        }
    }

    /// Returns the digest of the tensors, if the batch asks for it and they have one.
    fn digest(
        &self,
        job: &BatchJob,
        (shards, selection): (ShardPolicy, &Selection),
        observer: &dyn Observer,
    ) -> Result<Option<InputDigest>, TaskError> {
        if !job.has_digest {
            return Ok(None);
        }
        let mut options = InputOptions::new(self.input.clone()).select(selection.clone());
        options.single = shards == ShardPolicy::ThisFileOnly;
        match inspect::digest(&options, observer) {
            Err(error) if error.kind() == ErrorKind::Cancelled => Err(error.into()),
            report => Ok(report.ok().map(InputDigest::from)),
        }
    }

    fn scan(
        &self,
        job: &BatchJob,
        options: &ScanOptions,
        observer: &dyn Observer,
    ) -> Result<Outcome, TaskError> {
        let mut options = options.clone();
        options.inputs = vec![self.input.clone()];
        let mut reason = None;
        let mut found = |file: &FileScan| {
            if let (ScanOutcome::NotScanned { reason: text }, None) = (&file.outcome, &reason) {
                let kind = if file.verdict == Verdict::Incomplete { ErrorKind::Io } else { ErrorKind::Input };
                reason = Some((format!("{}: {text}", file.file.display()), kind));
            }
            Ok(())
        };
        let summary: ScanSummary = inspect::scan(&options, observer, &mut found)?;
        let is_scanned =
            summary.clean > 0 || summary.unknown > 0 || summary.unsafe_files > 0 || summary.incomplete > 0;
        let digest = self.digest(job, (ShardPolicy::ThisFileOnly, &Selection::default()), observer)?;
        // A file in a folder that cannot be scanned does not hide the verdict on the others.
        let verdict = if is_scanned || reason.is_none() { Some(summary.verdict()) } else { None };
        let failure = if is_scanned { None } else { reason };
        Ok(Outcome { digest, verdict, failure, ..Outcome::default() })
    }
}

/// Plans the conversion of a job. The folder of its output is created.
fn plan_conversion(
    job: &BatchJob,
    options: &ConvertOptions,
    input: &Location,
) -> Result<PlannedConversion, TaskError> {
    let mut options = options.clone();
    options.inputs = vec![input.clone()];
    options.output = job.entry.output.as_ref().map(PathBuf::from);
    Ok(match &job.folder {
        Some(folder) if job.entry.output.is_none() => PlannedConversion::plan_in(folder, options)?,
        _ => PlannedConversion::plan(&options)?,
    })
}

fn earlier_record(output: &BatchOutput, earlier: &ResultLine) -> OutputRecord {
    let name = file_name(output.path());
    // That the line is about the same input is known.
    let made_from = output.made_from().map(str::to_owned);
    OutputRecord { output: name, made_from, files: earlier.files.clone() }
}

/// Returns the files of a checkpoint or a carton.
fn input_files(input: &Location, shards: ShardPolicy) -> Result<Vec<Location>, TaskError> {
    if input.is_local() && is_carton(input.path()) {
        return Ok(vec![input.clone()]);
    }
    Ok(CheckpointSources::find(std::slice::from_ref(input), shards)?.locations().collect())
}

/// Returns the length of a file, or of all files at the top level of a folder, or elsewhere than on this machine, below it.
fn nbytes_at(input: &Location) -> u64 {
    if input.is_local() {
        return nbytes(input.path());
    }
    let len = |file: &Location| match file.stat() {
        Ok(Some(Stat::File(FileStat { len: Some(len), .. }))) => len,
        _ => file.open().map_or(0, |source| source.len()),
    };
    if !input.is_folder() {
        return len(input);
    }
    let files = input.files_below().unwrap_or_default();
    files.iter().map(|file| len(&input.join(file))).fold(0, u64::saturating_add)
}

/// Returns the length of a file, or of all files at the top level of a folder.
pub(crate) fn nbytes(path: &Path) -> u64 {
    let len = |path: &Path| {
        path.metadata().map_or(0, |metadata| if metadata.is_file() { metadata.len() } else { 0 })
    };
    if path.is_dir() {
        let entries = path.read_dir().into_iter().flatten().flatten();
        return entries.map(|entry| len(&entry.path())).fold(0, u64::saturating_add);
    }
    len(path)
}

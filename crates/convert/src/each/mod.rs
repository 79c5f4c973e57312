//! Conversion of many checkpoints, several at a time.

mod input;
pub(crate) mod inputs;
pub(crate) mod made_from;
pub(crate) mod output;
pub(crate) mod pipeline;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ::output::{OutputRecord, is_given_as_folder, shown_path};
use batch::{
    ExistingOutput, Job, JobLimits, JobOutput as _, RecordsNextToOutputs, ResultOrder, Resume,
    check_existing, run_jobs,
};
use byte_source::{Cancelled, ErrorKind, Observer};
use serde::Serialize;

use self::inputs::{EachInputs, NamedInput, TakenOutputs};
use self::pipeline::PipelineReport;
use crate::{BatchOutput, ConvertOptions, ConvertReport, Error, InvalidOption, OutputFormat, Result};

/// Version of the fields of [`BatchReport`].
const SCHEMA_VERSION: u32 = 1;

/// Result of converting one input of a batch.
#[derive(Debug)]
pub enum BatchItem {
    Converted(Box<ConvertReport>),
    /// The models of a pipeline have outputs, and its documents are next to them.
    Pipeline(PipelineReport),
    /// The input already has a complete output.
    Skipped {
        input: PathBuf,
        output: PathBuf,
    },
    Failed {
        input: PathBuf,
        error: Error,
    },
    /// A file in a folder that starts as a checkpoint does, and is not named like one.
    LeftOut {
        input: PathBuf,
    },
}

/// Counts of the results of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchReport {
    /// Version of the report's fields.
    pub schema_version: u32,
    /// Number of inputs that were converted.
    pub converted: usize,
    /// Number of inputs that already had a complete output.
    pub skipped: usize,
    /// Number of inputs that could not be converted.
    pub failed: usize,
    /// Number of files in folders that start as checkpoints do, and are not named like one.
    pub left_out: usize,
}

impl BatchReport {
    fn count(&mut self, item: &BatchItem) {
        let count = match item {
            BatchItem::Converted(_) => &mut self.converted,
            BatchItem::Skipped { .. } => &mut self.skipped,
            BatchItem::Failed { .. } => &mut self.failed,
            BatchItem::LeftOut { .. } => &mut self.left_out,
            BatchItem::Pipeline(_) => return,
        };
        *count = count.saturating_add(1);
    }
}

/// Options of a batch, besides those of its conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchOptions {
    /// Inputs that are skipped.
    pub resume: Resume,
    /// Number of conversions that run at the same time.
    pub jobs: NonZeroUsize,
}

impl BatchOptions {
    /// Sets the number of conversions that run at the same time.
    #[must_use]
    pub fn jobs(self, jobs: NonZeroUsize) -> Self {
        Self { jobs, ..self }
    }
}

/// One conversion at a time.
impl Default for BatchOptions {
    fn default() -> Self {
        Self { resume: Resume::default(), jobs: NonZeroUsize::MIN }
    }
}

/// `true` is [`Resume::SkipComplete`].
impl<R: Into<Resume>> From<R> for BatchOptions {
    fn from(resume: R) -> Self {
        Self { resume: resume.into(), ..Self::default() }
    }
}

/// Converts each of `options.inputs` separately into the folder `options.output`, which is created if needed, and continues
/// after a failure. `done` receives the results in the order of the inputs, each as soon as it is known.
///
/// A folder is one checkpoint if its names or its index say so; any other stands for all checkpoints below it, and their outputs
/// have the same places below that of the outputs. A zip archive stands for the checkpoints in it. Outputs of files that would have the
/// same name keep the folders of their inputs, or their extensions if these are in one folder. A pipeline of `diffusers` keeps
/// its folders, and gets its other documents once all its models have outputs.
///
/// The folder of each output gets a record of what the output was made from: a digest of the options, and of the length, the
/// pickle and the directory of each input; and of the state of its files. An input is skipped if the record is about the same
/// input and options, the files have the recorded lengths, and the central directory or header of the output can be read. A
/// file whose times changed since it was recorded is read as a whole. In a store, the files have the recorded entity tags
/// instead, and the record of each output is a file of its own.
///
/// # Errors
/// When the output is not a folder, `done` fails, or `observer` stops the work.
pub fn convert_each(
    options: &ConvertOptions,
    batch: BatchOptions,
    observer: &dyn Observer,
    done: &mut dyn FnMut(BatchItem) -> Result<()>,
) -> Result<BatchReport> {
    let inputs = inputs::expand_inputs(options);
    let with_outputs = inputs::name_all(options, &inputs);
    if let Some(folder) = options.output.as_ref().filter(|_| !options.dry_run)
        && options.destination.store_of(folder)?.is_none()
    {
        let is_named_as_file = !is_given_as_folder(folder) && OutputFormat::from_path(folder).is_some();
        if is_named_as_file || (folder.exists() && !folder.is_dir()) {
            return Err(InvalidOption::NotAFolder { path: folder.clone() }.into());
        }
        std::fs::create_dir_all(folder)
            .map_err(|reason| byte_source::FileError::Create { path: folder.clone(), reason })?;
    }
    let EachInputs { checkpoints: inputs, pipelines, left_out } = inputs;
    let mut pipelines: Vec<_> =
        pipelines.iter().map(|pipeline| (pipeline, pipeline.models(&inputs))).collect();
    let jobs = batch.jobs.min(NonZeroUsize::new(inputs.len()).unwrap_or(NonZeroUsize::MIN));
    let outputs = EachOutputs {
        taken: Mutex::default(),
        folder: options.output.clone(),
        records: RecordsNextToOutputs::new(batch.resume != Resume::ConvertAll, options.dry_run),
        resume: batch.resume,
    };
    let mut each = inputs.into_iter().map(|input| input.shown()).zip(with_outputs);
    let next_job = || {
        let next = each.next();
        Ok(next.map(|(input, named)| ConvertJob { input, named, outputs: &outputs }))
    };
    let mut report = BatchReport { schema_version: SCHEMA_VERSION, ..BatchReport::default() };
    let limits = JobLimits { jobs, memory: batch::default_memory_limit() };
    run_jobs(limits, ResultOrder::OfJobs, observer, next_job, |item| {
        if let BatchItem::Failed { input, .. } = &item {
            pipelines.retain(|(pipeline, _)| !input.starts_with(shown_path(pipeline.path())));
        }
        report.count(&item);
        done(item)
    })?;
    for (pipeline, models) in pipelines {
        let input = shown_path(pipeline.path());
        let item = match pipeline.copy_documents(options, &models) {
            Ok(None) => continue,
            Ok(Some(report)) => BatchItem::Pipeline(report),
            Err(error) => BatchItem::Failed { input, error },
        };
        report.count(&item);
        done(item)?;
    }
    for input in left_out {
        let item = BatchItem::LeftOut { input };
        report.count(&item);
        done(item)?;
    }
    Ok(report)
}

/// Outputs of a batch, and of earlier ones.
struct EachOutputs {
    taken: Mutex<TakenOutputs>,
    /// Folder of the outputs, if there is one.
    folder: Option<PathBuf>,
    records: RecordsNextToOutputs,
    resume: Resume,
}

/// Conversion of one input.
struct ConvertJob<'b> {
    input: PathBuf,
    named: Result<NamedInput>,
    outputs: &'b EachOutputs,
}

impl Job for ConvertJob<'_> {
    type Done = BatchItem;

    fn input(&self) -> &Path {
        &self.input
    }

    fn run(self, observer: &dyn Observer) -> Result<BatchItem, Cancelled> {
        match self.outputs.convert(&self.input, self.named, observer) {
            Err(error) if error.kind() == ErrorKind::Cancelled => Err(Cancelled),
            item => Ok(item.unwrap_or_else(|error| BatchItem::Failed { input: self.input, error })),
        }
    }
}

impl EachOutputs {
    /// Converts an input and records its output, or skips the input.
    fn convert(&self, input: &Path, named: Result<NamedInput>, observer: &dyn Observer) -> Result<BatchItem> {
        let planned = named?.plan()?;
        let taken =
            self.taken.lock().unwrap_or_else(PoisonError::into_inner).take(planned.own_output(), input);
        taken?;
        let output = BatchOutput::new(planned, self.folder.as_deref());
        let record = self.records.find(&output);
        if let Some(record) = record.map_err(|reason| reason.in_file(output.path()))? {
            let existing = check_existing(&output, &record, self.resume, observer)?;
            if let ExistingOutput::Touched(files) = &existing {
                // The next run need not read the output again.
                RecordsNextToOutputs::add(&output, &OutputRecord { files: files.clone(), ..record });
            }
            if existing != ExistingOutput::Incomplete {
                return Ok(BatchItem::Skipped { input: input.to_owned(), output: output.path().to_owned() });
            }
        }
        let (report, record) = output.convert(observer)?;
        if let Some(record) = record {
            RecordsNextToOutputs::add(&output, &record);
        }
        Ok(BatchItem::Converted(Box::new(report)))
    }
}

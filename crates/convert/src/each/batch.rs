//! Conversion of many checkpoints, several at a time.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use byte_source::{Location, Observer};
use output::shown_path;
use serde::Serialize;

use crate::each::batch_inputs;
use crate::each::batch_inputs::{NamedInput, TakenOutputs};
use crate::each::batch_records::BatchRecords;
use crate::{
    BatchOutput, ConvertOptions, ConvertReport, Error, ExistingOutput, InvalidOption, PlannedConversion,
    Result, Resume, run_jobs,
};

/// Version of the fields of [`BatchReport`].
const SCHEMA_VERSION: u32 = 1;

/// Result of converting one input of a batch.
#[derive(Debug)]
pub enum BatchItem {
    Converted(Box<ConvertReport>),
    /// The input already has a complete output.
    Skipped {
        input: PathBuf,
        output: PathBuf,
    },
    Failed {
        input: PathBuf,
        error: Error,
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
/// A folder with several checkpoints, or with none at its top level, stands for all checkpoints below it. Outputs that would
/// have the same name keep the folders of their inputs, or their extensions if these are in one folder.
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
    let inputs = batch_inputs::expand_inputs(&options.inputs, options.shards(), &options.stores);
    let with_outputs = batch_inputs::name_all(options, &inputs);
    if let Some(folder) = options.output.as_ref().filter(|_| !options.dry_run)
        && options.destination.store_of(folder)?.is_none()
    {
        if folder.exists() && !folder.is_dir() {
            return Err(InvalidOption::NotAFolder { path: folder.clone() }.into());
        }
        std::fs::create_dir_all(folder)
            .map_err(|reason| Error::CreateFolder { path: folder.clone(), reason })?;
    }
    let name =
        |files: &Vec<Location>| files.first().map_or_else(PathBuf::new, |file| shown_path(file.path()));
    let names: Vec<PathBuf> = inputs.iter().map(name).collect();
    let threads = batch.jobs.min(NonZeroUsize::new(names.len()).unwrap_or(NonZeroUsize::MIN));
    let mut jobs = with_outputs.into_iter().enumerate();
    let taken = Mutex::new(TakenOutputs::default());
    let records = BatchRecords::new(batch.resume != Resume::ConvertAll, options.dry_run);
    // The thread that was cancelled takes no other input until its result has arrived.
    let is_cancelled = AtomicBool::new(false);
    let mut in_order = ResultsInOrder {
        inputs: &names,
        waiting: BTreeMap::new(),
        next: 0,
        report: BatchReport { schema_version: SCHEMA_VERSION, ..BatchReport::default() },
    };
    run_jobs(
        threads,
        observer,
        || if is_cancelled.load(Ordering::Relaxed) { None } else { jobs.next() },
        |(place, named): (usize, Result<NamedInput>), observer| {
            let input = names.get(place).map_or(Path::new(""), PathBuf::as_path);
            let planned = named.and_then(NamedInput::plan).and_then(|planned| {
                let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
                taken.take(planned.own_output(), input).map(|()| planned)
            });
            let item = planned.and_then(|plan| convert_one(input, plan, &records, batch.resume, observer));
            if matches!(item, Err(Error::Open(open::Error::Cancelled))) {
                is_cancelled.store(true, Ordering::Relaxed);
            }
            (place, item)
        },
        |(place, item)| in_order.add(place, item, done),
    )?;
    Ok(in_order.report)
}

/// Results of a batch, passed on in the order of the inputs.
struct ResultsInOrder<'i> {
    inputs: &'i [PathBuf],
    /// Results that wait for those of earlier inputs.
    waiting: BTreeMap<usize, Result<BatchItem>>,
    next: usize,
    report: BatchReport,
}

impl ResultsInOrder<'_> {
    /// Adds the result of an input, and passes on all results for which nothing has to wait.
    fn add(
        &mut self,
        place: usize,
        item: Result<BatchItem>,
        done: &mut dyn FnMut(BatchItem) -> Result<()>,
    ) -> Result<()> {
        if matches!(item, Err(Error::Open(open::Error::Cancelled))) {
            return Err(Error::cancelled());
        }
        self.waiting.insert(place, item);
        while let Some(item) = self.waiting.remove(&self.next) {
            let input = self.inputs.get(self.next).cloned().unwrap_or_default();
            self.next = self.next.saturating_add(1);
            let item = item.unwrap_or_else(|error| BatchItem::Failed { input, error });
            let count = match &item {
                BatchItem::Converted(_) => &mut self.report.converted,
                BatchItem::Skipped { .. } => &mut self.report.skipped,
                BatchItem::Failed { .. } => &mut self.report.failed,
            };
            *count = count.saturating_add(1);
            done(item)?;
        }
        Ok(())
    }
}

/// Converts one input of the batch and records its output, or skips the input.
fn convert_one(
    input: &Path,
    conversion: PlannedConversion,
    records: &BatchRecords,
    resume: Resume,
    observer: &dyn Observer,
) -> Result<BatchItem> {
    let output = BatchOutput::new(conversion);
    if let Some(record) = records.find(&output)? {
        match output.check_existing(&record, resume, observer)? {
            ExistingOutput::Incomplete => {}
            ExistingOutput::Complete => return Ok(skipped(input, &output)),
            ExistingOutput::Touched(record) => {
                // The next run need not read the output again.
                BatchRecords::add(&output, &record);
                return Ok(skipped(input, &output));
            }
        }
    }
    let (report, record) = output.convert(observer)?;
    if let Some(record) = record {
        BatchRecords::add(&output, &record);
    }
    Ok(BatchItem::Converted(Box::new(report)))
}

fn skipped(input: &Path, output: &BatchOutput) -> BatchItem {
    BatchItem::Skipped { input: input.to_owned(), output: output.path().to_owned() }
}

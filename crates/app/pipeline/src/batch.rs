//! Conversion of many checkpoints, several at a time.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use byte_source::{Notice, ProgressUpdate};
use output::OutputRecords;
use serde::Serialize;

use crate::resume::BatchOutput;
use crate::{
    ConvertOptions, ConvertReport, Error, InvalidOption, Observer, PlannedConversion, Result, Resume,
    batch_inputs,
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
/// have the same name keep the folders of their inputs.
///
/// The folder of each output gets a record of what the output was made from: a digest of the options, and of the length, the
/// pickle and the directory of each input; and of the state of its files. An input is skipped if the record is about the same
/// input and options, the files have the recorded lengths, and the central directory or header of the output can be read. A
/// file whose times changed since it was recorded is read as a whole.
///
/// # Errors
/// When the output is not a folder, `done` fails, or `observer` stops the work.
pub fn convert_each(
    options: &ConvertOptions,
    batch: BatchOptions,
    observer: &dyn Observer,
    done: &mut dyn FnMut(BatchItem) -> Result<()>,
) -> Result<BatchReport> {
    let inputs = batch_inputs::expand_inputs(&options.inputs, options.shards);
    let planned = batch_inputs::plan_all(options, &inputs);
    if let Some(folder) = options.output.as_ref().filter(|_| !options.dry_run) {
        if folder.exists() && !folder.is_dir() {
            return Err(InvalidOption::NotAFolder { path: folder.clone() }.into());
        }
        std::fs::create_dir_all(folder)
            .map_err(|reason| Error::CreateFolder { path: folder.clone(), reason })?;
    }
    let names = inputs.iter().map(|paths| paths.first().cloned().unwrap_or_default());
    let jobs: Vec<Job> =
        names.zip(planned).map(|(input, plan)| Job { input, plan: Mutex::new(Some(plan)) }).collect();
    let queue = JobQueue { jobs, next: AtomicUsize::new(0), is_stopped: AtomicBool::new(false) };
    let records = Mutex::new(HashMap::new());
    let mut report = BatchReport { schema_version: SCHEMA_VERSION, ..BatchReport::default() };
    std::thread::scope(|scope| {
        let (results, received) = mpsc::channel();
        for _ in 0..batch.jobs.get().min(queue.jobs.len()) {
            let (results, queue, records) = (results.clone(), &queue, &records);
            scope.spawn(move || {
                let observer = StoppableObserver { observer, is_stopped: &queue.is_stopped };
                queue.work(|place, input, plan| {
                    let item =
                        plan.and_then(|plan| convert_one(input, plan, records, batch.resume, &observer));
                    if matches!(item, Err(Error::Cancelled)) {
                        queue.is_stopped.store(true, Ordering::Relaxed);
                    }
                    // The receiver ends early only if the batch has failed.
                    let _ = results.send((place, item));
                });
            });
        }
        drop(results);
        let ended = report_in_order(&queue, &received, &mut report, done);
        queue.is_stopped.store(true, Ordering::Relaxed);
        ended
    })?;
    Ok(report)
}

/// Passes the results on in the order of the inputs, and counts them.
fn report_in_order(
    queue: &JobQueue,
    received: &mpsc::Receiver<(usize, Result<BatchItem>)>,
    report: &mut BatchReport,
    done: &mut dyn FnMut(BatchItem) -> Result<()>,
) -> Result<()> {
    let mut waiting = BTreeMap::new();
    let mut next = 0_usize;
    for (place, item) in received {
        waiting.insert(place, item);
        while let Some(item) = waiting.remove(&next) {
            let input = queue.jobs.get(next).map(|job| job.input.clone()).unwrap_or_default();
            next = next.saturating_add(1);
            let item = match item {
                Ok(item) => item,
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(error) => BatchItem::Failed { input, error },
            };
            let count = match &item {
                BatchItem::Converted(_) => &mut report.converted,
                BatchItem::Skipped { .. } => &mut report.skipped,
                BatchItem::Failed { .. } => &mut report.failed,
            };
            *count = count.saturating_add(1);
            done(item)?;
        }
    }
    Ok(())
}

/// Conversion that waits for a thread.
struct Job {
    input: PathBuf,
    plan: Mutex<Option<Result<PlannedConversion>>>,
}

/// Conversions of a batch, which several threads take in order.
struct JobQueue {
    jobs: Vec<Job>,
    next: AtomicUsize,
    /// True once the batch has ended, so that no further conversion starts.
    is_stopped: AtomicBool,
}

impl JobQueue {
    /// Calls `convert` with the position, the input and the plan of each conversion that no other thread has taken.
    fn work(&self, convert: impl Fn(usize, &Path, Result<PlannedConversion>)) {
        while !self.is_stopped.load(Ordering::Relaxed) {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = self.jobs.get(place) else { return };
            let plan = job.plan.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(plan) = plan {
                convert(place, &job.input, plan);
            }
        }
    }
}

/// Observer that also stops when the batch has ended.
struct StoppableObserver<'o> {
    observer: &'o dyn Observer,
    is_stopped: &'o AtomicBool,
}

impl Observer for StoppableObserver<'_> {
    fn progress(&self, step: ProgressUpdate<'_>) {
        self.observer.progress(step);
    }

    fn note(&self, note: &dyn Notice) {
        self.observer.note(note);
    }

    fn is_cancelled(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed) || self.observer.is_cancelled()
    }
}

/// Converts one input of the batch and records its output, or skips the input. `records` has the records of each folder that
/// was looked at.
fn convert_one(
    input: &Path,
    conversion: PlannedConversion,
    records: &Mutex<HashMap<PathBuf, Arc<OutputRecords>>>,
    resume: Resume,
    observer: &dyn Observer,
) -> Result<BatchItem> {
    let conversion = PlannedConversion { checksums: true, ..conversion };
    let output = BatchOutput::new(&conversion);
    let folder = output.folder();
    let records = {
        let mut known = records.lock().unwrap_or_else(PoisonError::into_inner);
        let records = known.entry(folder.to_owned()).or_insert_with(|| {
            let records = OutputRecords::read(folder);
            if !conversion.options.dry_run {
                records.compact(folder);
            }
            Arc::new(records)
        });
        Arc::clone(records)
    };
    if resume != Resume::ConvertAll && output.is_complete(&records, resume, observer)? {
        return Ok(BatchItem::Skipped { input: input.to_owned(), output: conversion.own_output() });
    }
    let report = conversion.run(observer)?;
    if report.written {
        output.record(&report.written_files);
    }
    Ok(BatchItem::Converted(Box::new(report)))
}

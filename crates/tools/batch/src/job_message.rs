//! Jobs and results as texts, for jobs that run in other processes or on other machines.

use byte_source::{ErrorKind, Observer};
use serde::{Deserialize, Serialize};

use crate::job::nbytes;
use crate::job_source::TaskTable;
use crate::memory::estimate_memory;
use crate::{BatchJob, BatchSettings, Failure, Job as _, JobResult, ManifestEntry, ResultLine, TaskParser};

/// Length of an input that is not opened for an estimate of the memory of its job.
const SMALL_INPUT: u64 = 4 << 20;

/// Job as another process receives it. The options for all inputs are not in it: that process has the same.
#[derive(Serialize, Deserialize)]
struct JobMessage {
    #[serde(flatten)]
    entry: ManifestEntry,
    earlier: Option<ResultLine>,
}

/// What a job needs, as far as it can be estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSize {
    /// Length of the input's files in bytes; 0 if it is not here.
    pub bytes: u64,
    /// Memory in bytes.
    pub memory: u64,
}

impl BatchJob {
    /// Returns the text from which a [`BatchWorker`] makes the job again.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn to_message(&self) -> serde_json::Result<String> {
        serde_json::to_string(&JobMessage { entry: self.entry.clone(), earlier: self.earlier.clone() })
    }

    /// Estimates what the job needs.
    pub fn size(&self) -> JobSize {
        let path = self.entry.input.as_ref();
        JobSize { bytes: nbytes(path), memory: estimate_memory(path, SMALL_INPUT) }
    }

    /// Returns the result of a job that ended without one, such as with its process. `code` tells why.
    ///
    /// # Errors
    /// When `message` is not the text of a job.
    pub fn failed(message: &str, code: &str, error: &str) -> serde_json::Result<JobResult> {
        let JobMessage { entry, earlier } = serde_json::from_str(message)?;
        let bytes = nbytes(entry.input.as_ref());
        let failure = Failure { kind: ErrorKind::Io, text: error.to_owned() };
        let mut line = ResultLine::new(entry.input, failure.into(), bytes);
        line.code = Some(code.to_owned());
        Ok(JobResult::new(line, Vec::new(), earlier.is_some()))
    }
}

impl JobResult {
    /// Returns the text of the result.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn to_message(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Returns the result of a text.
    ///
    /// # Errors
    /// When the text is not that of a result.
    pub fn from_message(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

/// Runs jobs of a batch that another process has opened with the same settings.
pub struct BatchWorker {
    settings: BatchSettings,
    tasks: TaskTable,
}

impl BatchWorker {
    /// Creates a worker. The manifest and the results of `settings` are not opened.
    pub fn new(settings: BatchSettings, parse: Box<TaskParser>) -> Self {
        Self { settings, tasks: TaskTable::new(parse) }
    }

    /// Runs a job.
    ///
    /// # Errors
    /// When the text is not that of a job, or not one with these settings, or `observer` stops the work.
    pub fn run(&mut self, message: &str, observer: &dyn Observer) -> Result<JobResult, Failure> {
        let wrong = |text: String| Failure { kind: ErrorKind::Input, text };
        let JobMessage { entry, earlier } =
            serde_json::from_str(message).map_err(|error| wrong(error.to_string()))?;
        let task = self.tasks.task(&entry).map_err(|problem| wrong(problem.to_string()))?;
        let job = BatchJob::new(entry, task, earlier, &self.settings);
        job.run(observer).map_err(|stopped| Failure { kind: ErrorKind::Cancelled, text: stopped.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::{Batch, Outcome, PlannedTask, Resume, Task};

    /// Finds nothing wrong with any file.
    struct Approve;

    impl Task for Approve {
        fn reads_whole_inputs(&self) -> bool {
            true
        }

        fn plan(&self, entry: &ManifestEntry, _: Option<&Path>) -> Result<Box<dyn PlannedTask>, Failure> {
            Ok(Box::new(Approved(entry.input.clone())))
        }
    }

    struct Approved(String);

    impl PlannedTask for Approved {
        fn made_from(&self) -> Option<&str> {
            Some(&self.0)
        }

        fn nbytes(&self) -> u64 {
            nbytes(self.0.as_ref())
        }

        fn run(&self, _: &dyn Observer) -> Result<Outcome, Failure> {
            Ok(Outcome { verdict: Some("clean".to_owned()), ..Outcome::default() })
        }
    }

    fn parse() -> Box<TaskParser> {
        Box::new(|_, _| Ok(Arc::new(Approve)))
    }

    #[test]
    fn a_job_and_its_result_pass_as_texts() {
        let folder = tempfile::tempdir().expect("a folder");
        let input = folder.path().join("a.pkl");
        std::fs::write(&input, b"K\x07.").expect("a file");
        let results = folder.path().join("r.jsonl");
        let mut settings = BatchSettings::new("lines");
        settings.has_pushed_lines = true;
        settings.results = Some(results.clone());
        settings.resume = Resume::SkipComplete;
        let line = serde_json::json!({ "input": input }).to_string();
        let mut worker = BatchWorker::new(settings.clone(), parse());

        let mut made_from = None;
        for round in 0..2 {
            let mut batch =
                Batch::open(&settings, parse(), |line| Ok(serde_json::to_vec(line)?)).expect("it opens");
            assert!(batch.job_of_line(" \n").expect("an empty line").is_none());
            let job = batch.job_of_line(&line).expect("a line").expect("a job");
            assert_eq!(job.size().bytes, 3);
            assert!(job.kept().is_none(), "the task reads the file");
            let message = job.to_message().expect("a text");
            let error = batch.job_of_line(&line).map(drop).expect_err("it is there twice");
            assert!(error.to_string().contains("lines, line 3: the input"), "{error}");

            let result = worker.run(&message, &()).expect("a result");
            let mut result =
                JobResult::from_message(&result.to_message().expect("a text")).expect("a result");
            assert_eq!((result.is_kept(), result.line.verdict.as_deref()), (round == 1, Some("clean")));
            batch.add(&mut result).expect("a line");
            batch.finish().expect("an end");
            let lines = std::fs::read_to_string(&results).expect("the results");
            assert_eq!(lines.lines().count(), 1);
            made_from = result.line.made_from;
        }
        assert!(made_from.is_some());
        let lost = BatchJob::failed(&format!("{{\"input\":{input:?},\"earlier\":null}}"), "io", "gone");
        assert_eq!(lost.expect("a job").line.error.as_deref(), Some("gone"));
        assert!(worker.run("{}", &()).is_err());
    }
}

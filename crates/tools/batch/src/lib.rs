//! Runs tasks on many inputs, several at a time, and goes on where an earlier run ended. It knows no task: a program brings its
//! own as a [`Task`] for the lines of a manifest, or as a [`Job`] for a list of its own.
//!
//! [`Batch`] reads a manifest line by line, the jobs share the cores and the memory of the machine, and each result is a line of
//! JSON, appended when its input ends. A batch that was killed goes on from its results. Memory does not grow with the number of
//! inputs. [`run_jobs`] runs any other list of jobs in the same way, whose records are [next to the outputs](RecordsNextToOutputs).
//!
//! ```
//! use std::num::NonZeroUsize;
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use batch::{Batch, BatchSettings, Failure, JobLimits, ManifestEntry, Outcome, PlannedTask, Task};
//! use byte_source::{ErrorKind, Observer};
//!
//! /// Finds the lengths of files.
//! struct Measure;
//!
//! impl Task for Measure {
//!     fn plan(&self, entry: &ManifestEntry, _: Option<&Path>) -> Result<Box<dyn PlannedTask>, Failure> {
//!         let failed = |error: std::io::Error| Failure { kind: ErrorKind::Io, text: error.to_string() };
//!         let len = std::fs::metadata(&entry.input).map_err(failed)?.len();
//!         Ok(Box::new(Measured { len, made_from: len.to_string() }))
//!     }
//! }
//!
//! struct Measured {
//!     len: u64,
//!     made_from: String,
//! }
//!
//! impl PlannedTask for Measured {
//!     fn made_from(&self) -> Option<&str> {
//!         Some(&self.made_from)
//!     }
//!
//!     fn nbytes(&self) -> u64 {
//!         self.len
//!     }
//!
//!     fn run(&self, _: &dyn Observer) -> Result<Outcome, Failure> {
//!         Ok(Outcome::default())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let pickle = folder.path().join("data.pkl");
//! # std::fs::write(&pickle, b"K\x07.")?;
//! # let manifest = folder.path().join("manifest.jsonl");
//! # std::fs::write(&manifest, format!("{{\"input\":{:?}}}\n", pickle.display().to_string()))?;
//! let mut settings = BatchSettings::new(&manifest);
//! settings.results = Some(manifest.with_file_name("results.jsonl"));
//! let parse = |_: &_, _: Option<&_>| Ok(Arc::new(Measure) as Arc<dyn Task>);
//! let batch = Batch::open(&settings, Box::new(parse), |line| Ok(serde_json::to_vec(line)?))?;
//! let limits = JobLimits { jobs: NonZeroUsize::MIN, memory: None };
//! let counts = batch.run(limits, &(), &mut |result, _| {
//!     println!("{} {}", result.line.input, result.line.bytes);
//! #   assert_eq!(result.line.bytes, 3);
//!     Ok(())
//! })?;
//! # assert_eq!((counts.ok, counts.failed), (1, 0));
//! # Ok(())
//! # }
//! ```

mod error;
mod index;
mod input_key;
mod job;
mod job_message;
mod job_source;
mod manifest;
mod memory;
mod records;
mod repeated;
mod results;
mod resume;
mod session;
mod task;
mod workers;

pub use byte_source::{Error, Result};
pub use error::Problem;
pub use input_key::clean_absolute;
pub use job::{BatchJob, JobResult, nbytes};
pub use job_message::{BatchWorker, JobSize};
pub use job_source::{BatchSettings, ManifestShard, TaskParser};
pub use manifest::{ManifestEntry, ManifestProblem};
pub use memory::default_memory_limit;
pub use records::RecordsNextToOutputs;
pub use repeated::TensorKey;
pub use results::{ResultLine, ResultStatus};
pub use resume::{ExistingOutput, JobOutput, Resume, check_existing, record_output};
pub use session::{Batch, BatchCounts, LineEncoder};
pub use task::{Failure, Outcome, PlannedTask, Task};
pub use workers::{Job, JobLimits, ResultOrder, run_jobs};

//! Runs one task on each input of a manifest: converts, scans, inspects or hashes thousands of checkpoints.
//!
//! The manifest is read line by line, several jobs share the cores and the memory of the machine, and each result is a line of
//! JSON, appended when its input ends. A batch that was killed goes on from its results. Memory does not grow with the number of
//! inputs.
//!
//! ```
//! use std::num::NonZeroUsize;
//!
//! use batch::{Batch, BatchSettings, BatchTask, JobLimits};
//! use inspect::ScanOptions;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let pickle = folder.path().join("data.pkl");
//! # std::fs::write(&pickle, b"K\x07.")?;
//! # let manifest = folder.path().join("manifest.jsonl");
//! # std::fs::write(&manifest, format!("{{\"input\":{:?}}}\n", pickle.display().to_string()))?;
//! let mut settings = BatchSettings::new(&manifest);
//! settings.results = Some(manifest.with_file_name("results.jsonl"));
//! let parse = |_: &_, _: Option<&_>| Ok(BatchTask::Scan(ScanOptions::default()).into());
//! let batch = Batch::open(&settings, Box::new(parse), |line| Ok(serde_json::to_vec(line)?))?;
//! let limits = JobLimits { jobs: NonZeroUsize::MIN, memory: None };
//! let counts = batch.run(limits, &(), &|error| error.to_string(), &mut |result, _| {
//!     println!("{} {:?}", result.line.input, result.line.verdict);
//!     Ok(())
//! })?;
//! # assert_eq!((counts.ok, counts.failed), (1, 0));
//! # Ok(())
//! # }
//! ```

mod blobs;
mod error;
mod index;
mod input_key;
mod job_message;
mod job_source;
mod line_task;
mod manifest;
mod memory;
mod repeated;
mod results;
mod session;
mod task;
mod task_error;
mod task_table;

pub use blobs::BlobFolder;
pub use error::{Error, Result};
pub use job_message::{BatchWorker, JobSize};
pub use job_source::{BatchSettings, ManifestShard};
pub use line_task::{LineTask, LocateInput};
pub use manifest::{ManifestEntry, ManifestProblem};
pub use memory::default_memory_limit;
pub use results::{ResultLine, ResultStatus};
pub use session::{Batch, BatchCounts, JobLimits, LineEncoder};
pub use task::{BatchJob, BatchTask, JobResult, TaskKind};
pub use task_error::TaskError;
pub use task_table::TaskParser;

//! Tasks that a batch does with each input. The program that runs the batch implements them.

use std::path::{Path, PathBuf};

use byte_source::{ErrorKind, Observer};
use output::FileRecord;

use crate::{JobOutput, ManifestEntry, TensorKey};

/// Task with its options, for all lines of a manifest that have the same ones.
pub trait Task: Send + Sync {
    /// Returns the path that the task would write for an input, from the texts of the paths alone; `None` if it writes no file.
    /// `folder` is the folder of outputs without a path of their own, if there is one.
    fn expected_output(&self, entry: &ManifestEntry, folder: Option<&Path>) -> Option<PathBuf> {
        let _ = (entry, folder);
        None
    }

    /// Returns true if a whole input is read to find what its result is made from.
    fn reads_whole_inputs(&self) -> bool {
        false
    }

    /// Finds the files of an input, and opens one at an address.
    ///
    /// # Errors
    /// When the input is missing, or an option does not fit it.
    fn plan(
        &self,
        entry: &ManifestEntry,
        folder: Option<&Path>,
    ) -> Result<Box<dyn PlannedTask + '_>, Failure>;
}

/// Task on an input whose files are found.
pub trait PlannedTask {
    /// Returns the digest of the task, its options and the input; `None` if the input cannot be read.
    fn made_from(&self) -> Option<&str>;

    /// Returns the length of the input's files in bytes.
    fn nbytes(&self) -> u64;

    /// Returns the output, if the task writes one.
    fn output(&self) -> Option<&dyn JobOutput> {
        None
    }

    /// Does the task.
    ///
    /// # Errors
    /// When it fails, or `observer` stops it.
    fn run(&self, observer: &dyn Observer) -> Result<Outcome, Failure>;
}

/// Result of a task: what it read and wrote.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Digest of the input's tensors, in hexadecimal.
    pub digest: Option<String>,
    /// Tensors to compare with those of other inputs, if there is a digest.
    pub contents: Vec<TensorKey>,
    /// Path of the output, if one was written.
    pub output: Option<PathBuf>,
    /// Files of the output, if they can be recorded.
    pub files: Vec<FileRecord>,
    /// Verdict on the input.
    pub verdict: Option<String>,
    /// Number of tensors.
    pub tensors: Option<usize>,
    /// Failure of a task that has a part of its results.
    pub failure: Option<Failure>,
}

/// Reason for which a task failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: ErrorKind,
    /// Text of the error.
    pub text: String,
}

/// A task that failed altogether.
impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }
}

//! Task of a line, with the way to its input.

use std::fmt;
use std::path::Path;

use byte_source::{ErrorKind, Location};

use crate::BatchTask;

/// Function that finds where an input is, and opens one at an address. The text of an error comes with its kind.
pub type LocateInput = dyn Fn(&Path) -> Result<Location, (ErrorKind, String)> + Send + Sync;

/// Task of a line of a manifest.
pub struct LineTask {
    /// What is done.
    pub task: BatchTask,
    /// Finds where an input is. Its settings are not a part of the task: they do not change a result.
    pub locate: Box<LocateInput>,
}

/// A task whose inputs are local.
impl From<BatchTask> for LineTask {
    fn from(task: BatchTask) -> Self {
        Self { task, locate: Box::new(|path| Ok(path.into())) }
    }
}

impl fmt::Debug for LineTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.task.fmt(f)
    }
}

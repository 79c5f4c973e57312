//! Task of a line, with the way to inputs at addresses.

use std::fmt;
use std::path::Path;

use byte_source::{ErrorKind, InputSource};

use crate::BatchTask;

/// Function that opens an input at an address; `None` for a local path. The text of an error comes with its kind.
pub type RemoteOpener = dyn Fn(&Path) -> Result<Option<InputSource>, (ErrorKind, String)> + Send + Sync;

/// Task of a line of a manifest.
pub struct LineTask {
    /// What is done.
    pub task: BatchTask,
    /// Opens inputs at addresses. Its settings are not a part of the task: they do not change a result.
    pub open_remote: Box<RemoteOpener>,
}

/// A task whose inputs are local.
impl From<BatchTask> for LineTask {
    fn from(task: BatchTask) -> Self {
        Self { task, open_remote: Box::new(|_| Ok(None)) }
    }
}

impl fmt::Debug for LineTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.task.fmt(f)
    }
}

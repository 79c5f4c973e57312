//! Task of a line, with the way to files at addresses.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use byte_source::{ErrorKind, OwnedBlob, Source, hex, sha256};

use crate::BatchTask;

/// Number of bytes at the start and at the end of a file at an address by which a change is noticed. They are read to open it, and
/// hold the header, or the directory with the checksums.
const EDGE: u64 = 64 << 10;

/// Function that opens a file at an address; `None` for a local path. The text of an error comes with its kind.
pub type RemoteOpener = dyn Fn(&Path) -> Result<Option<Arc<dyn Source>>, (ErrorKind, String)> + Send + Sync;

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

/// Returns the digest of what a result is made from: a task, and a file at an address; `None` if it cannot be read.
pub(crate) fn made_from_remote(task: &str, source: &Arc<dyn Source>) -> Option<String> {
    let (len, edge) = (source.len(), source.len().min(EDGE));
    let mut text = format!("{task} {len} {}\n", source.path().display()).into_bytes();
    let mut bytes = vec![0; usize::try_from(edge).ok()?];
    for offset in [0, len.saturating_sub(edge)] {
        source.read_at(&mut bytes, offset).ok()?;
        text.extend_from_slice(&bytes);
    }
    sha256(&OwnedBlob(text), &()).ok().map(|hash| hex(&hash))
}

//! What a trainer's layout does: it names the files of a checkpoint, opens them, and joins their parts.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use byte_source::{Folder, Observer, Source};
use torch_import::{Checkpoint, Container};

use crate::trainers::{Result, TrainerSummary};

/// Files that one trainer writes, and how their parts fit together.
pub trait TrainerLayout: Debug + Sync {
    /// Returns the name of the trainer or its library.
    fn trainer(&self) -> &'static str;

    /// Returns the names of the files to read; `None` if the folder is not one of this layout.
    ///
    /// # Errors
    /// When the folder is of this layout, and a file is missing or the trainer is still writing.
    fn files(&self, folder: &Folder) -> Result<Option<Vec<String>>>;

    /// Returns the name of one of the files for messages.
    fn file_name(&self, path: &Path) -> String {
        path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Opens one of the files as a container.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    fn open(&self, source: Arc<dyn Source>) -> Result<Container> {
        let file = self.file_name(source.path());
        Container::from_source(source).map_err(|error| error.in_file(file.as_ref()))
    }

    /// Joins the parts in the opened files. Reads descriptions of tensors, but no elements unless they are compressed.
    ///
    /// # Errors
    /// When a file is damaged, a part is missing, parts overlap or disagree, or `observer` stops the work.
    fn join(&self, containers: &[Container], observer: &dyn Observer) -> Result<JoinedCheckpoint>;
}

/// A checkpoint that was joined from the parts of all ranks.
#[derive(Debug)]
pub struct JoinedCheckpoint {
    pub checkpoint: Checkpoint,
    pub summary: TrainerSummary,
}

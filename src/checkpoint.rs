//! A checkpoint whose tensors can be read by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::Source;
use checkpoint_files::Sources;
use pipeline::Shards;

use crate::{Result, Tensors};

/// An open checkpoint: a file, or several that hold one together. The files stay mapped while a tensor of them exists.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    files: Vec<PathBuf>,
    format: &'static str,
    tensors: Tensors,
    notes: Vec<checkpoint_files::Note>,
}

impl Checkpoint {
    /// Opens the checkpoint at `path`: a file of any format, or a folder that holds one checkpoint in one file or in several.
    /// The elements of its tensors are not read, except those that all shards must have in common.
    ///
    /// # Errors
    /// When the path does not name one checkpoint, the file is one shard of several, or a file is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::find(&[path.as_ref().to_owned()], Shards::Complete)
    }

    /// Opens a file alone, even if it is one shard of several.
    ///
    /// # Errors
    /// When the file is not a checkpoint or is damaged.
    pub fn open_shard(path: impl AsRef<Path>) -> Result<Self> {
        Self::find(&[path.as_ref().to_owned()], Shards::ThisFileOnly)
    }

    /// Opens all shards of a checkpoint.
    ///
    /// # Errors
    /// When the paths are not all shards of one checkpoint, or a file is damaged.
    pub fn open_shards(paths: &[PathBuf]) -> Result<Self> {
        Self::find(paths, Shards::Complete)
    }

    /// Reads a file from a source, such as a buffer.
    ///
    /// # Errors
    /// When the source cannot be read, is not a checkpoint or is damaged.
    pub fn from_source(source: Arc<dyn Source>) -> Result<Self> {
        Self::read(Sources::source(source))
    }

    fn find(paths: &[PathBuf], shards: Shards) -> Result<Self> {
        Self::read(Sources::find(paths, shards)?)
    }

    fn read(sources: Sources) -> Result<Self> {
        let containers = sources.open()?;
        let (checkpoint, notes) = sources.read::<checkpoint_files::Error>(&containers, &|_, _| Ok(()))?;
        Ok(Self {
            tensors: checkpoint.to_tensors(),
            format: containers.first().map_or("", |container| container.format().name()),
            files: sources.files,
            notes,
        })
    }

    /// The files.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The name of the files' format.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// The tensors, in the order of the files.
    pub fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// What a person should know about the files.
    pub fn notes(&self) -> &[checkpoint_files::Note] {
        &self.notes
    }
}

//! A checkpoint whose tensors can be read by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::Source;
use checkpoint_files::CheckpointSources;
use pipeline::ShardPolicy;

use crate::{Result, Tensors};

/// An open checkpoint in one file or several shards. The files stay mapped while any of the tensors exists.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    files: Vec<PathBuf>,
    format: &'static str,
    tensors: Tensors,
    notes: Vec<checkpoint_files::FilesNote>,
}

impl Checkpoint {
    /// Opens the checkpoint at `path`: a file of any format, or a folder that holds one checkpoint in one file or in
    /// several. Tensor elements are not read, except those of tensors that all shards must have in common.
    ///
    /// # Errors
    /// When the path does not name one checkpoint, the file is one shard of several, or a file is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::find(&[path.as_ref().to_owned()], ShardPolicy::RequireAll)
    }

    /// Opens one file alone, even if it is one shard of several.
    ///
    /// # Errors
    /// When the file is not a checkpoint or is damaged.
    pub fn open_shard(path: impl AsRef<Path>) -> Result<Self> {
        Self::find(&[path.as_ref().to_owned()], ShardPolicy::ThisFileOnly)
    }

    /// Opens all shards of a checkpoint.
    ///
    /// # Errors
    /// When the paths are not all shards of one checkpoint, or a file is damaged.
    pub fn open_shards(paths: &[PathBuf]) -> Result<Self> {
        Self::find(paths, ShardPolicy::RequireAll)
    }

    /// Reads a checkpoint file from a source, such as a buffer.
    ///
    /// # Errors
    /// When the source cannot be read, is not a checkpoint or is damaged.
    pub fn from_source(source: Arc<dyn Source>) -> Result<Self> {
        Self::read(CheckpointSources::source(source))
    }

    fn find(paths: &[PathBuf], shards: ShardPolicy) -> Result<Self> {
        Self::read(CheckpointSources::find(paths, shards)?)
    }

    fn read(sources: CheckpointSources) -> Result<Self> {
        let containers = sources.open()?;
        let (checkpoint, notes) = sources.read::<checkpoint_files::Error>(&containers, &|_, _| Ok(()))?;
        Ok(Self {
            tensors: checkpoint.into_tensors(),
            format: containers.first().map_or("", |container| container.format().name()),
            files: sources.files,
            notes,
        })
    }

    /// Returns the paths of the checkpoint's files.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the name of the files' container format.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// Returns the tensors, in the order of the files.
    pub fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// Returns the notes for the user about the files.
    pub fn notes(&self) -> &[checkpoint_files::FilesNote] {
        &self.notes
    }
}

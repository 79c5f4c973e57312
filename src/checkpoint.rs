//! A checkpoint whose tensors can be read by name.

use std::path::PathBuf;

use byte_source::Location;
use open::files::{CheckpointSources, ShardPolicy};

use crate::{Result, Tensors};

/// An open checkpoint in one file or several shards. The files stay mapped while any of the tensors exists.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    files: Vec<PathBuf>,
    format: &'static str,
    tensors: Tensors,
    notes: Vec<open::files::FilesNote>,
}

impl Checkpoint {
    /// Opens a checkpoint: a file of any format, a folder that holds one checkpoint in one file or in several, or a source of
    /// bytes. Tensor elements are not read, except those of tensors that all shards must have in common.
    ///
    /// # Errors
    /// When the input is not one checkpoint, the file is one shard of several, or a file is damaged.
    pub fn open(input: impl Into<Location>) -> Result<Self> {
        Self::find(&[input.into()], ShardPolicy::RequireAll)
    }

    /// Opens one file alone, even if it is one shard of several.
    ///
    /// # Errors
    /// When the file is not a checkpoint or is damaged.
    pub fn open_shard(input: impl Into<Location>) -> Result<Self> {
        Self::find(&[input.into()], ShardPolicy::ThisFileOnly)
    }

    /// Opens all shards of a checkpoint.
    ///
    /// # Errors
    /// When the inputs are not all shards of one checkpoint, or a file is damaged.
    pub fn open_shards<L: Clone + Into<Location>>(inputs: &[L]) -> Result<Self> {
        Self::find(inputs, ShardPolicy::RequireAll)
    }

    fn find<L: Clone + Into<Location>>(inputs: &[L], shards: ShardPolicy) -> Result<Self> {
        let sources = CheckpointSources::find(inputs, shards)?;
        let containers = sources.open()?;
        let (checkpoint, notes) = sources.read(&containers, &|_, _| Ok(()))?;
        Ok(Self {
            tensors: checkpoint.into_tensors(),
            format: containers.first().map_or("", torch_import::Container::format),
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
    pub fn notes(&self) -> &[open::files::FilesNote] {
        &self.notes
    }
}

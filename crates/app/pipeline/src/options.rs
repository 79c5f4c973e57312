//! What a conversion is asked for, whatever it writes.

use std::path::PathBuf;
use std::sync::Arc;

use byte_source::Source;
use checkpoint_files::Shards;
use decoder::Given;
use output::IfExists;

use crate::{Cast, InvalidOption, Rename, Selection, Target};

/// What to convert, and into what.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConvertOptions {
    /// A checkpoint, a folder that holds one, or all shards of one.
    pub inputs: Vec<PathBuf>,
    /// What the file at the only one of the `inputs` is read from, if it is not on this machine.
    pub source: Option<Arc<dyn Source>>,
    /// The file or folder to write; `None` for one next to the input, which [`Conversion`](crate::Conversion) names.
    pub output: Option<PathBuf>,
    /// The kind of output. The extension of `output` does not change it; see [`Target::from_path`].
    pub target: Target,
    /// What happens to a file that exists at the output.
    pub if_exists: IfExists,
    /// Converts a shard alone, or the checkpoint that it is a part of.
    pub shards: Shards,
    /// Which globals a pickle may name.
    pub globals: AllowedGlobals,
    /// Numbers of a language model that no document has.
    pub given: Given,
    /// Which tensors, under which names.
    pub selection: Selection,
    /// What is replaced in the names of the selected tensors, one after the other.
    pub renames: Vec<Rename>,
    /// Tensors of which dtypes become which.
    pub casts: Vec<Cast>,
    /// Whether to stop before anything is written.
    pub dry_run: bool,
}

impl ConvertOptions {
    /// Converts the checkpoint at `input` into a carton next to it.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self::from_inputs(vec![input.into()])
    }

    /// Converts the checkpoint that `inputs` hold together into a carton next to it.
    pub fn from_inputs(inputs: Vec<PathBuf>) -> Self {
        Self {
            inputs,
            source: None,
            output: None,
            target: Target::default(),
            if_exists: IfExists::default(),
            shards: Shards::default(),
            globals: AllowedGlobals::default(),
            given: Given::default(),
            selection: Selection::default(),
            renames: Vec::new(),
            casts: Vec::new(),
            dry_run: false,
        }
    }

    /// Converts a file that is read from `source`.
    pub fn from_source(source: Arc<dyn Source>) -> Self {
        let path = source.path().to_owned();
        Self { source: Some(source), ..Self::new(path) }
    }

    /// Writes to `output` what its extension names.
    ///
    /// # Errors
    /// When the extension is that of a format which this crate does not write.
    pub fn with_output(self, output: impl Into<PathBuf>) -> Result<Self, InvalidOption> {
        let output = output.into();
        Ok(Self { target: Target::from_path(&output)?, output: Some(output), ..self })
    }
}

/// Which globals a pickle may name. None of them is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowedGlobals {
    /// Only those that this crate knows.
    Known,
    /// All but those that can run code.
    #[default]
    NotDangerous,
    /// All.
    All,
}

//! Options of a conversion that do not depend on the output format.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{InputSource, Source};
use checkpoint_files::ShardPolicy;
use decoder::Overrides;
use output::{Destination, IfExists};

use crate::{Cast, CheckpointSum, GivenInputs, InvalidOption, Rename, Selection, Target, WeightedPath};

/// Options for converting a checkpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConvertOptions {
    /// Checkpoint file, folder with a checkpoint, or all shards of a checkpoint.
    pub inputs: Vec<PathBuf>,
    /// The input, if it is not on this machine.
    pub source: Option<InputSource>,
    /// Output file or folder; `None` for a path next to the input, which [`PlannedConversion`](crate::PlannedConversion) chooses.
    pub output: Option<PathBuf>,
    /// Where the output goes if its path is an address; see [`Destination`].
    pub destination: Destination,
    /// Output format and its options. The extension of `output` does not change the format; see [`Target::from_path`].
    pub target: Target,
    /// Treatment of an existing file at the output path.
    pub if_exists: IfExists,
    /// Treatment of an input that is a single shard.
    pub shards: ShardPolicy,
    /// Globals that a pickle may name.
    pub globals: AllowedGlobals,
    /// Hyperparameters of a language model that are missing from its documents.
    pub overrides: Overrides,
    /// Selection of tensors, and of the prefix to remove from their names.
    pub selection: Selection,
    /// Replacements in the names of the selected tensors, applied in order.
    pub renames: Vec<Rename>,
    /// Checkpoints to sum with the selected and renamed tensors.
    pub sum: Option<CheckpointSum>,
    /// Adapters to merge into the result, one after the other.
    pub adapters: Vec<WeightedPath>,
    /// The summed checkpoints and the adapters that are not on this machine.
    pub given: GivenInputs,
    /// True to compute the numbers of quantized weights, and drop what describes the quantization.
    pub dequantize: bool,
    /// Casts of the selected tensors to other dtypes.
    pub casts: Vec<Cast>,
    /// Maximum size of the output as a multiple of the input, because views can repeat the bytes of their storages. An output
    /// that has at most 64 MiB more than the input is always written.
    pub max_expansion: u64,
    /// True to compute the digest of the tensors, for the report and for carton.toml.
    pub digest: bool,
    /// True to stop before anything is written.
    pub dry_run: bool,
}

/// Default of [`ConvertOptions::max_expansion`].
pub const DEFAULT_MAX_EXPANSION: u64 = 64;

impl ConvertOptions {
    /// Creates options that convert the checkpoint at `input` into a carton next to it.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self::from_inputs(vec![input.into()])
    }

    /// Creates options that convert the checkpoint in the files `inputs` into a carton next to it.
    pub fn from_inputs(inputs: Vec<PathBuf>) -> Self {
        Self {
            inputs,
            source: None,
            output: None,
            destination: Destination::default(),
            target: Target::default(),
            if_exists: IfExists::default(),
            shards: ShardPolicy::default(),
            globals: AllowedGlobals::default(),
            overrides: Overrides::default(),
            selection: Selection::default(),
            renames: Vec::new(),
            sum: None,
            adapters: Vec::new(),
            given: GivenInputs::default(),
            dequantize: false,
            casts: Vec::new(),
            max_expansion: DEFAULT_MAX_EXPANSION,
            digest: false,
            dry_run: false,
        }
    }

    /// Creates options that convert a file read from `source`.
    pub fn from_source(source: Arc<dyn Source>) -> Self {
        Self::from_input(source.into())
    }

    /// Creates options that convert an input that is not on this machine.
    pub fn from_input(input: InputSource) -> Self {
        let path = input.path();
        Self { source: Some(input), ..Self::new(path) }
    }

    /// Returns the paths of the adapters and of the summed checkpoints.
    pub(crate) fn other_paths(&self) -> impl Iterator<Item = &Path> {
        let adapters = self.adapters.iter().map(|adapter| adapter.path.as_path());
        adapters.chain(self.sum.iter().flat_map(CheckpointSum::paths))
    }

    /// Sets the output path, and infers the output format from its extension.
    ///
    /// # Errors
    /// When the extension belongs to a format that this crate does not write.
    pub fn with_output(self, output: impl Into<PathBuf>) -> Result<Self, InvalidOption> {
        let output = output.into();
        Ok(Self { target: Target::from_path(&output)?, output: Some(output), ..self })
    }
}

/// Globals that a pickle may name. None of them is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowedGlobals {
    /// Only globals that this crate knows.
    Known,
    /// All globals except those that can run code.
    #[default]
    NotDangerous,
    All,
}

//! Options of `verify` and `resolve`, which the comparison and the cache also read.

use std::path::PathBuf;
#[cfg(feature = "download")]
use std::time::Duration;

use byte_source::InputSource;
use checkpoint_files::ShardPolicy;
#[cfg(feature = "download")]
use pipeline::IfExists;
use pipeline::{Cast, ConvertOptions, Rename, SafetensorsOptions, Selection, Target, TargetLayout};

/// Options for resolving a carton and downloading its files.
#[cfg(feature = "download")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResolveOptions {
    pub file: PathBuf,
    /// The carton, if it is not on this machine.
    pub source: Option<InputSource>,
    /// Path of the complete carton.
    pub output: PathBuf,
    pub if_exists: IfExists,
    /// Folder that keeps downloads, each named by its SHA-256, and from which a partial download is resumed. `None` keeps
    /// nothing.
    pub cache: Option<PathBuf>,
    /// Allows http URLs, and URLs that name a private address themselves.
    pub allow_http: bool,
    /// Largest size of a file in bytes; `None` for half of the free space.
    pub max_size: Option<u64>,
    /// Time without data after which a connection counts as broken.
    pub timeout: Duration,
}

#[cfg(feature = "download")]
impl ResolveOptions {
    /// Creates options that fetch from https URLs without a cache, with a timeout of 30 seconds.
    pub fn new(file: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            source: None,
            output: output.into(),
            if_exists: IfExists::default(),
            cache: None,
            allow_http: false,
            max_size: None,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Options for verifying a carton, or for comparing another output with its checkpoint.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Carton, unpacked folder or, with a checkpoint to compare with, any other output of a conversion.
    pub file: PathBuf,
    /// The carton or output, if it is not on this machine.
    pub source: Option<InputSource>,
    /// Checkpoint to compare each tensor with: a file, a folder, or its shards. Empty for no comparison.
    pub against: Vec<PathBuf>,
    /// The checkpoint, if it is not on this machine.
    pub against_source: Option<InputSource>,
    /// Tells a complete checkpoint from a single shard that was converted alone.
    pub shards: ShardPolicy,
    /// Tensors that the conversion selected from the checkpoint.
    pub selection: Selection,
    /// Replacements in the names that the conversion made.
    pub renames: Vec<Rename>,
    /// Casts that the conversion made.
    pub casts: Vec<Cast>,
    /// Layout into which the conversion translated a language model.
    pub target_layout: Option<TargetLayout>,
}

impl VerifyOptions {
    /// Creates options that verify `file` without a comparison.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), ..Self::default() }
    }

    /// Returns the options of the conversion that made the output, as far as they change the tensors.
    pub(crate) fn conversion(&self) -> ConvertOptions {
        let mut conversion = ConvertOptions::from_inputs(self.against.clone());
        conversion.source.clone_from(&self.against_source);
        conversion.shards = self.shards;
        conversion.selection.clone_from(&self.selection);
        conversion.renames.clone_from(&self.renames);
        conversion.casts.clone_from(&self.casts);
        if let Some(layout) = self.target_layout {
            // All formats translate alike.
            conversion.target = Target::Safetensors(SafetensorsOptions::default().target_layout(layout));
        }
        conversion
    }

    /// Returns true if the options say how a conversion changed the tensors.
    pub(crate) fn has_changes(&self) -> bool {
        let is_same = self.selection.is_empty() && self.renames.is_empty() && self.casts.is_empty();
        !is_same || self.target_layout.is_some()
    }
}

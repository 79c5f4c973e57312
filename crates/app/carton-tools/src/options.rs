//! The options of `verify` and `resolve`. The comparison and the cache read them, too.

use std::path::PathBuf;
#[cfg(feature = "download")]
use std::time::Duration;

use checkpoint_files::Shards;
#[cfg(feature = "download")]
use pipeline::IfExists;
use pipeline::Selection;

/// What to resolve, and how files are downloaded.
#[cfg(feature = "download")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResolveOptions {
    /// The carton.
    pub file: PathBuf,
    /// Where to write the whole carton.
    pub output: PathBuf,
    /// What happens to a file that exists at the output.
    pub if_exists: IfExists,
    /// A folder that keeps the downloads, each named by its SHA-256. A download that stopped is resumed from there.
    /// `None` keeps nothing.
    pub cache: Option<PathBuf>,
    /// Whether http URLs are fetched, and URLs that name a private address themselves.
    pub allow_http: bool,
    /// The most bytes that a file may have; `None` for half of the free space.
    pub max_size: Option<u64>,
    /// How long nothing may come before a connection counts as broken.
    pub timeout: Duration,
}

#[cfg(feature = "download")]
impl ResolveOptions {
    /// Fetches from https URLs without a cache, with a timeout of 30 seconds.
    pub fn new(file: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            output: output.into(),
            if_exists: IfExists::default(),
            cache: None,
            allow_http: false,
            max_size: None,
            timeout: Duration::from_secs(30),
        }
    }
}

/// What to verify.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// The carton, or an unpacked folder.
    pub file: PathBuf,
    /// The checkpoint to compare each tensor of `model/model.pt` with: a file, a folder, or its shards. Empty for no
    /// comparison.
    pub against: Vec<PathBuf>,
    /// Whether the checkpoint is complete, or one shard that was converted alone.
    pub shards: Shards,
    /// The tensors that the conversion took from the checkpoint.
    pub selection: Selection,
}

impl VerifyOptions {
    /// Verifies `file` without a comparison.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), ..Self::default() }
    }
}

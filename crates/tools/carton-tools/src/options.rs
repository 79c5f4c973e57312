//! Options of `verify` and `resolve`, which the comparison and the cache also read.

#[cfg(feature = "download")]
use std::path::PathBuf;
#[cfg(feature = "download")]
use std::time::Duration;

use byte_source::Location;
use open::files::ShardPolicy;
use open::{CastOptions, CastToBlocks, OpenOptions, Rename, Selection, Step, TargetLayout, Translate};
#[cfg(feature = "download")]
use output::IfExists;
use serde::{Deserialize, Serialize};

/// Options for resolving a carton and downloading its files.
#[cfg(feature = "download")]
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[non_exhaustive]
pub struct ResolveOptions {
    /// The carton.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub file: Location,
    /// Where to write the carton
    #[cfg_attr(feature = "cli", arg(short, long, value_name = "CARTON"))]
    pub output: PathBuf,
    /// Treatment of an existing file at the output path.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub if_exists: IfExists,
    /// Keep what is fetched here, by its SHA-256, and resume broken downloads from here
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR"))]
    pub cache: Option<PathBuf>,
    /// Fetch http URLs too, and URLs that name a private or loopback address
    #[cfg_attr(feature = "cli", arg(long))]
    pub allow_http: bool,
    /// Reject larger files [default: half of the free space]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE", value_parser = open::parse_size))]
    pub max_size: Option<u64>,
    /// Give up a connection that is silent for this many seconds
    #[cfg_attr(feature = "cli", arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds))]
    pub timeout: Duration,
}

#[cfg(all(feature = "download", feature = "cli"))]
fn parse_seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (1..=86400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or("expected a number of seconds from 1 to 86400")
}

#[cfg(feature = "download")]
impl ResolveOptions {
    /// Creates options that fetch from https URLs without a cache, with a timeout of 30 seconds.
    pub fn new(file: impl Into<Location>, output: impl Into<PathBuf>) -> Self {
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

/// Options for verifying a carton, or for comparing another output with its checkpoint. Those of the conversion say what it made of
/// the checkpoint.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Carton, unpacked folder or, with a checkpoint to compare with, any other output of a conversion.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub file: Location,
    /// Checkpoint to compare each tensor with: a file, a folder, or its shards. Empty for no comparison.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub against: Vec<Location>,
    /// The checkpoint is one shard that was converted alone
    #[cfg_attr(feature = "cli", arg(long, requires = "against"))]
    pub single: bool,
    /// Tensors that the conversion selected from the checkpoint.
    #[serde(flatten)]
    #[cfg_attr(
        feature = "cli",
        command(flatten, next_help_heading = "What the conversion made of the checkpoint")
    )]
    pub selection: Selection,
    /// Replace each match of a regular expression in the names, with $1 or ${1} for its groups; repeatable, in this
    /// order
    #[serde(rename = "rename")]
    #[cfg_attr(feature = "cli", arg(long = "rename", value_name = "REGEX=TO"))]
    pub renames: Vec<Rename>,
    /// The names that the conversion gave the tensors
    #[serde(rename = "names")]
    #[cfg_attr(feature = "cli", arg(long = "names", value_name = "LAYOUT"))]
    pub target_layout: Option<TargetLayout>,
    /// Casts that the conversion made.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub casts: CastOptions,
}

impl VerifyOptions {
    /// Creates options that verify `file` without a comparison.
    pub fn new(file: impl Into<Location>) -> Self {
        Self { file: file.into(), ..Self::default() }
    }

    /// Returns the treatment of a checkpoint that is a single shard.
    pub(crate) fn shards(&self) -> ShardPolicy {
        ShardPolicy::from_single(self.single)
    }

    /// Returns the options for opening the checkpoint.
    pub(crate) fn open_options(&self) -> OpenOptions {
        OpenOptions::reading(self.against.clone(), self.shards())
    }

    /// Returns the steps of the conversion that made the output.
    pub(crate) fn steps(&self) -> Vec<Box<dyn Step>> {
        let mut steps: Vec<Box<dyn Step>> =
            vec![Box::new(self.selection.clone()), Box::new(self.renames.clone())];
        steps.extend(self.target_layout.map(|layout| Box::new(Translate::new(layout)) as Box<dyn Step>));
        if self.casts.quantizes() {
            steps.push(Box::new(CastToBlocks::new(&self.casts, None)));
        } else {
            steps.push(Box::new(self.casts.clone()));
        }
        steps
    }

    /// Returns true if the options say how a conversion changed the tensors.
    pub(crate) fn has_changes(&self) -> bool {
        let is_same = self.selection.is_empty() && self.renames.is_empty() && self.casts.is_empty();
        !is_same || self.target_layout.is_some()
    }
}

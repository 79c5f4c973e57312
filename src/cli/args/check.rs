//! Arguments of `check`.

use std::path::PathBuf;

use byte_source::Location;
use clap::{Args, ValueHint};
use inspect::CheckOptions;

use super::remote::RemoteArgs;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton check llama-3.1-70b/
  torch2carton check models/*/                          each folder on its own
  torch2carton check hf://Qwen/Qwen3-30B-A3B            a few kilobytes of each shard
  torch2carton check --json DIR | jq -r '.missing[].name'

The configuration says which tensors the model has, with their shapes. The names
may be those that transformers releases, or those that it has in memory. Only
headers are read, so a model of any size takes no time. Hashes of a carton are
checked by `verify`, and what a file would execute by `scan`.

Exit status: 0 whole, 1 a tensor is missing, unexpected, misshaped, twice, or in a
file that the index does not name, or the index is stale, 2 there is no
configuration, the model type is not known, or a file cannot be read. Of several
paths, the first of 1, 2 and 0 that occurs.")]
pub(crate) struct Check {
    /// Folders with a config.json, cartons, and files with a config.json next to them
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// Print one JSON object per path, each on a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the findings of all paths as one SARIF 2.1.0 document, which code hosts show
    #[arg(long, conflicts_with = "json")]
    pub(crate) sarif: bool,
    /// List every finding instead of some of each kind
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) options: CheckOptions,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

impl Check {
    /// Returns the options for one of the paths.
    pub(crate) fn options(&self, input: Location) -> CheckOptions {
        let mut options = self.options.clone();
        options.input = input;
        options
    }
}

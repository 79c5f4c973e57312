//! Arguments of `inspect`.

use std::path::PathBuf;

use byte_source::Location;
use clap::{Args, ValueEnum, ValueHint};
use inspect::InspectOptions;
use output::IfExists;

use super::remote::RemoteArgs;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton inspect consolidated.00.pth
  torch2carton inspect --tree --depth 2 model.pt          sums by module
  torch2carton inspect --stats --fail-on nan,inf model.pt
  torch2carton inspect hf://openai-community/gpt2/pytorch_model.bin
  torch2carton inspect model.pt fc.weight                 print the numbers, as NumPy does
  torch2carton inspect model.pt fc.weight -o weight.npy
  torch2carton inspect --json model.pt | jq '.tensors[].name'
  torch2carton inspect --json --sha256 model.pt > before.json")]
pub(crate) struct Inspect {
    /// Checkpoints or cartons, each on its own; a folder stands for the checkpoint in it. After one of them: the names of
    /// tensors and values to print. An argument that is a path of a file is not a name
    #[arg(required = true, value_name = "FILE|NAME", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// Print one JSON object per file, each on a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) options: InspectOptions,
    /// Exit with status 1 if a tensor has such a number; implies --stats
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) fail_on: Vec<FailOn>,
    /// List the values, and no tensors
    #[arg(long = "values", conflicts_with_all = ["tree", "depth", "sort", "statistics", "fail_on", "sha256"])]
    pub(crate) values_only: bool,
    /// Write the tensor NAME to this file in NumPy's format, or to standard output if it is `-`
    #[arg(short, long, value_name = "NPY", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) if_exists: IfExists,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

/// Number that a tensor should not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Nan,
    Inf,
}

impl Inspect {
    /// Returns the options for one of the files.
    pub(crate) fn options(&self, file: Location) -> InspectOptions {
        let mut options = self.options.clone();
        options.input = file;
        options.values |= self.values_only;
        options.statistics |= !self.fail_on.is_empty();
        options
    }

    /// Returns true if an option asks for more than the list of a carton's contents.
    pub(crate) fn asks_for_rows(&self) -> bool {
        self.options.asks_for_rows() || self.values_only || !self.fail_on.is_empty()
    }
}

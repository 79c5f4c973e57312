//! Arguments of `inspect`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use pipeline::{InspectOptions, TensorSort};

use super::ExistingOutputArgs;
use super::remote::RemoteArgs;

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
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
    /// Arrange the tensors by module, with sums; modules that only differ in their number have one row
    #[arg(long)]
    pub(crate) tree: bool,
    /// Show N levels of the tree
    #[arg(long, value_name = "N", requires = "tree", value_parser = depth)]
    pub(crate) depth: Option<usize>,
    /// List only the tensors and values with a name that matches; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) include: Vec<String>,
    /// Leave out the tensors and values with a name that matches; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Sort the tensors [default: the order of the file]
    #[arg(long, value_name = "KEY")]
    pub(crate) sort: Option<SortKey>,
    /// Compute minimum, maximum, mean and standard deviation of each tensor, and count zeros, NaN and infinities
    #[arg(long)]
    pub(crate) stats: bool,
    /// Exit with status 1 if a tensor has such a number; implies --stats
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) fail_on: Vec<FailOn>,
    /// Hash the elements of each tensor (C order, little-endian)
    #[arg(long)]
    pub(crate) sha256: bool,
    /// List the values that are not tensors, too, and the attributes of pickled modules
    #[arg(long)]
    pub(crate) all: bool,
    /// List the values, and no tensors
    #[arg(long, conflicts_with_all = ["tree", "sort", "stats", "fail_on", "sha256"])]
    pub(crate) values: bool,
    /// List quantized weights as they are stored: codes, scales and zero points
    #[arg(long)]
    pub(crate) packed: bool,
    /// Write the tensor NAME to this file in NumPy's format, or to standard output if it is `-`
    #[arg(short, long, value_name = "NPY", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) existing: ExistingOutputArgs,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

/// Order of the tensors.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SortKey {
    Name,
    Size,
}

/// Number that a tensor should not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Nan,
    Inf,
}

fn depth(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a number from 1 on".to_owned()),
        Ok(depth) => Ok(depth),
    }
}

impl Inspect {
    /// Returns the options for one of the files.
    pub(crate) fn options(&self, file: &std::path::Path) -> InspectOptions {
        let mut options = InspectOptions::new(file);
        options.sha256 = self.sha256;
        options.values = self.all || self.values;
        options.include.clone_from(&self.include);
        options.exclude.clone_from(&self.exclude);
        options.sort = self.sort.map(|key| match key {
            SortKey::Name => TensorSort::Name,
            SortKey::Size => TensorSort::Size,
        });
        options.statistics = self.stats || !self.fail_on.is_empty();
        options.tree = self.tree;
        options.depth = self.depth;
        options.packed = self.packed;
        options
    }

    /// Returns true if an option asks for more than the list of a carton's contents.
    pub(crate) fn asks_for_rows(&self) -> bool {
        self.tree
            || self.stats
            || self.sort.is_some()
            || !(self.fail_on.is_empty() && self.include.is_empty() && self.exclude.is_empty())
    }
}

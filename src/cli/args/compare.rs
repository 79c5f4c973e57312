//! Arguments of the subcommands that compare checkpoints: `diff` and `digest`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use compare::{DiffOptions, InputOptions};
use pipeline::Selection;

use super::ExistingOutputArgs;
use super::convert::{SelectArgs, shard_policy};
use super::remote::RemoteArgs;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton diff epoch-1.ckpt epoch-2.ckpt
  torch2carton diff model.pth model.safetensors && echo the same
  torch2carton diff --tolerance 1e-6 a.safetensors b.safetensors
  torch2carton diff last.ckpt weights.pth --key-a ema --strip-prefix-a module.
  torch2carton diff --html changes.html a.pth b.pth
  torch2carton diff --json a.pth b.pth | jq '.tensors[] | select(.changes[0] == \"changed\")'

A tensor may be changed, of another dtype (one is the other one cast), renamed,
reshaped, transposed, permuted (such as the rows of q and k between Meta's and
Hugging Face's layouts), or in one file only. Contents are found under any name.
NaN is equal to NaN of the same bits. Those that changed most come first.

Exit status: 0 the same, 1 different, 2 trouble.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Diff {
    /// A checkpoint, a folder with one, or a carton
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) a: PathBuf,
    /// Another one
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) b: PathBuf,
    /// Elements that differ by at most T are equal
    #[arg(long, value_name = "T", value_parser = parse_tolerance, allow_negative_numbers = true)]
    pub(crate) tolerance: Option<f64>,
    /// List at most N tensors and N values
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Do not compare values that are not tensors, such as epochs
    #[arg(long)]
    pub(crate) no_values: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the differences as one HTML page; `-` prints the page alone
    #[arg(long, value_name = "HTML", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) existing: ExistingOutputArgs,
    /// Compare the numbers that quantized weights stand for; a file without is compared as it is
    #[arg(long)]
    pub(crate) dequantize: bool,
    /// A and B are single shards
    #[arg(long)]
    pub(crate) single: bool,
    #[command(flatten, next_help_heading = "Tensors of both files")]
    pub(crate) select: SelectArgs,
    #[command(flatten, next_help_heading = "Tensors of one file, instead of the same option for both")]
    pub(crate) sides: SideArgs,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

/// Selections that apply to one of two files.
#[derive(Args, Debug)]
pub(crate) struct SideArgs {
    /// --key for A
    #[arg(long, value_name = "KEY")]
    pub(crate) key_a: Option<String>,
    /// --key for B
    #[arg(long, value_name = "KEY")]
    pub(crate) key_b: Option<String>,
    /// --include for A; repeatable
    #[arg(long, value_name = "GLOB")]
    pub(crate) include_a: Vec<String>,
    /// --include for B; repeatable
    #[arg(long, value_name = "GLOB")]
    pub(crate) include_b: Vec<String>,
    /// --exclude for A; repeatable
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude_a: Vec<String>,
    /// --exclude for B; repeatable
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude_b: Vec<String>,
    /// --strip-prefix for A
    #[arg(long, value_name = "PREFIX")]
    pub(crate) strip_prefix_a: Option<String>,
    /// --strip-prefix for B
    #[arg(long, value_name = "PREFIX")]
    pub(crate) strip_prefix_b: Option<String>,
}

impl Diff {
    /// Returns the comparison of the files at `a` and `b` for the library.
    pub(crate) fn options(&self, a: PathBuf, b: PathBuf) -> DiffOptions {
        let side = |path, selection| {
            let mut input = InputOptions::new(path).select(selection);
            input.shards = shard_policy(self.single);
            input.dequantize = self.dequantize;
            input
        };
        let SideArgs {
            key_a,
            key_b,
            include_a,
            include_b,
            exclude_a,
            exclude_b,
            strip_prefix_a,
            strip_prefix_b,
        } = &self.sides;
        let a_selection = self.selection(key_a, include_a, exclude_a, strip_prefix_a);
        let b_selection = self.selection(key_b, include_b, exclude_b, strip_prefix_b);
        let mut options = DiffOptions::new(side(a, a_selection), side(b, b_selection));
        options.tolerance = self.tolerance;
        options.limit = self.limit;
        options.values = !self.no_values;
        options
    }

    /// Returns the selection for both files, with the parts that were given for one of them.
    #[expect(clippy::ref_option, reason = "these are fields")]
    fn selection(
        &self,
        key: &Option<String>,
        include: &[String],
        exclude: &[String],
        strip_prefix: &Option<String>,
    ) -> Selection {
        let mut selection = self.select.selection();
        if key.is_some() {
            selection.key.clone_from(key);
        }
        if !include.is_empty() {
            selection.include = include.to_vec();
        }
        if !exclude.is_empty() {
            selection.exclude = exclude.to_vec();
        }
        if strip_prefix.is_some() {
            selection.strip_prefix.clone_from(strip_prefix);
        }
        selection
    }
}

fn parse_tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number >= 0.0);
    number.ok_or_else(|| "expected a number that is not negative".to_owned())
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton digest model.pth model.safetensors    the same line for the same tensors
  torch2carton digest *.carton > DIGESTS
  torch2carton digest -c DIGESTS
  torch2carton digest --lines model.pth | sha256sum  what the digest is computed from

The digest is one SHA-256 for the names, dtypes, shapes and elements of the tensors
that a conversion selects, whatever the format of the file. It is specified in
docs/digest.md.
Exit status: 0 done, 1 a file cannot be read or has another digest, 2 bad usage.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Digest {
    /// Checkpoints or cartons, each on its own; a folder stands for the checkpoint in it
    #[arg(required_unless_present = "check", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// Read digests and paths from FILE, as this command prints them, and compare
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["files", "lines"])]
    pub(crate) check: Option<PathBuf>,
    /// Print the line of each tensor, of which the digest is the SHA-256
    #[arg(long, conflicts_with = "json")]
    pub(crate) lines: bool,
    /// Print one JSON object per file, each on a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Hash the numbers that quantized weights stand for, as `convert --dequantize` writes them
    #[arg(long)]
    pub(crate) dequantize: bool,
    /// Each file is a single shard
    #[arg(long)]
    pub(crate) single: bool,
    #[command(flatten, next_help_heading = "Tensors")]
    pub(crate) select: SelectArgs,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

impl Digest {
    /// Returns the input at `path` for the library.
    pub(crate) fn input(&self, path: PathBuf) -> InputOptions {
        let mut input = InputOptions::new(path).select(self.select.selection());
        input.shards = shard_policy(self.single);
        input.dequantize = self.dequantize;
        input
    }
}

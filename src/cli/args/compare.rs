//! Arguments of the subcommands that compare checkpoints: `diff` and `digest`.

use std::path::PathBuf;

use byte_source::Location;
use clap::{Args, ValueHint};
use inspect::{DiffOptions, InputOptions};
use output::IfExists;

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
pub(crate) struct Diff {
    /// A checkpoint, a folder with one, or a carton
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) a: PathBuf,
    /// Another one
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) b: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the differences as one HTML page; `-` prints the page alone
    #[arg(long, value_name = "HTML", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) if_exists: IfExists,
    #[command(flatten)]
    pub(crate) options: DiffOptions,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
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
    #[command(flatten)]
    pub(crate) options: InputOptions,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

impl Digest {
    /// Returns the input for the library.
    pub(crate) fn input(&self, input: Location) -> InputOptions {
        let mut options = self.options.clone();
        options.input = input;
        options
    }
}

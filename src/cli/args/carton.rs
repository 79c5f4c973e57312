//! Arguments of the subcommands that work on cartons.

use std::path::PathBuf;

#[cfg(feature = "download")]
use carton_tools::ResolveOptions;
use carton_tools::{PackOptions, ShrinkOptions, UnpackOptions, VerifyOptions};
use clap::{Args, ValueHint};
use convert::StatementOptions;

use super::RemoteArgs;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton pack llama -o llama.carton
  torch2carton pack model --compression zstd --tensor x=x.npy --tensor y=y.npy

The folder has carton.toml and model/, and may have tensor_data/ and misc/.
What Carton's client needs and is missing is added, with a note.")]
pub(crate) struct Pack {
    /// The folder
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) options: PackOptions,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton verify llama.carton
  torch2carton verify llama.carton --against consolidated.00.pth
  torch2carton verify last.carton --against last.ckpt --key ema
  torch2carton verify small.safetensors --against model.pth --dtype bfloat16
  torch2carton verify --json llama.carton | jq .findings
  torch2carton verify --statement out.intoto.json --input model/ out/

--json prints one object on a line: schema_version (1), file, ok,
manifest_sha256 (null if there is no MANIFEST), files and bytes (those whose
hashes match), tensors_compared and code (null without --against), findings (a
list of {entry, what}; entry is the path in the carton, \"\" for the zip file
itself) and notes. With --statement: schema_version (1), file, statement, version,
ok, inputs, files, bytes and findings (a list of {file, offset, what}).
Exit status: 0 no problem found, 1 problems found, 2 bad usage; with --statement,
also 2 if the conversion cannot be judged: an input is missing, the statement
cannot be read, or another version made it.")]
pub(crate) struct Verify {
    /// The carton, or an unpacked folder; with --against, any output of a conversion
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) file: PathBuf,
    /// Compare each tensor bit by bit with the checkpoint that it was made from: a file or a folder; repeatable for
    /// shards
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) against: Vec<PathBuf>,
    /// Repeat the conversion that this statement is about, and compare each file of the output bit by bit
    #[arg(long, value_name = "FILE", requires = "input", conflicts_with = "against", value_hint = ValueHint::FilePath)]
    pub(crate) statement: Option<PathBuf>,
    /// With --statement, a file or folder with its inputs, under any names; repeatable
    #[arg(long, value_name = "PATH", requires = "statement", value_hint = ValueHint::AnyPath)]
    pub(crate) input: Vec<PathBuf>,
    /// With --statement, also repeat a conversion that another version of torch2carton made
    #[arg(long, requires = "statement")]
    pub(crate) any_version: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) options: VerifyOptions,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

impl Verify {
    /// Returns the check for the library.
    ///
    /// # Errors
    /// When the carton or the checkpoint is at an address that cannot be read.
    pub(crate) fn options(&self) -> anyhow::Result<VerifyOptions> {
        let mut options = self.options.clone();
        options.file = self.remote.locate(&self.file)?;
        options.against = match self.against.as_slice() {
            [against] => vec![self.remote.locate(against)?],
            against => self.remote.locate_all(against)?,
        };
        Ok(options)
    }

    /// Returns the check by a statement for the library; `None` without one.
    ///
    /// # Errors
    /// When one of the files is at an address that cannot be read.
    pub(crate) fn statement_options(&self) -> anyhow::Result<Option<StatementOptions>> {
        let Some(statement) = &self.statement else { return Ok(None) };
        let mut options = StatementOptions::default();
        options.statement = self.remote.locate(statement)?;
        options.inputs = self
            .input
            .iter()
            .map(|input| self.remote.locate_with_documents(input))
            .collect::<Result<_, _>>()?;
        options.output = self.remote.locate(&self.file)?;
        options.any_version = self.any_version;
        Ok(Some(options))
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton unpack llama.carton              into llama/, next to it
  torch2carton unpack llama.carton -o /models/llama")]
pub(crate) struct Unpack {
    /// The carton
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) options: UnpackOptions,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  torch2carton shrink llama.carton --base https://example.org/blobs --blobs blobs -o small.carton

Files move to blobs/SHA256, which you then serve under the base URL. Many cartons
can share one folder. The model's hash does not change.")]
pub(crate) struct Shrink {
    /// The carton
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) options: ShrinkOptions,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

#[cfg(feature = "download")]
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  torch2carton resolve small.carton --cache ~/.cache/torch2carton -o llama.carton

Only https is fetched, and nothing from private or loopback addresses. Each URL of
a file is tried in turn; a broken download is resumed.")]
pub(crate) struct Resolve {
    /// The carton
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) options: ResolveOptions,
}

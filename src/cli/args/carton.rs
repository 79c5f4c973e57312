//! Arguments of the subcommands that work on cartons.

use std::path::PathBuf;

use carton_tools::VerifyOptions;
use clap::{Args, ValueHint};

use super::convert::{RenamingArgs, SelectArgs, shard_policy};
use super::dtypes::DtypeArgs;
use super::{ExistingOutputArgs, RemoteArgs};

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
    /// Where to write the carton [default: next to the folder, or of one at an address in the current folder]
    #[arg(short, long, value_name = "CARTON")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) existing: ExistingOutputArgs,
    /// How to compress files; auto stores what does not become smaller
    #[arg(long, value_name = "METHOD", default_value = "auto")]
    pub(crate) compression: Compression,
    /// An array to add to the tensors; repeatable
    #[arg(long, value_name = "NAME=FILE.npy")]
    pub(crate) tensor: Vec<String>,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Compression {
    /// Zstandard where it helps; model/model.pt is stored, so that it can be mapped
    Auto,
    Stored,
    Deflate,
    Zstd,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton verify llama.carton
  torch2carton verify llama.carton --against consolidated.00.pth
  torch2carton verify last.carton --against last.ckpt --key ema
  torch2carton verify small.safetensors --against model.pth --dtype bfloat16
  torch2carton verify --json llama.carton | jq .findings

--json prints one object on a line: schema_version (1), file, ok,
manifest_sha256 (null if there is no MANIFEST), files and bytes (those whose
hashes match), tensors_compared and code (null without --against), findings (a
list of {entry, what}; entry is the path in the carton, \"\" for the zip file
itself) and notes.
Exit status: 0 no problem found, 1 problems found, 2 bad usage.")]
pub(crate) struct Verify {
    /// The carton, or an unpacked folder; with --against, any output of a conversion
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) file: PathBuf,
    /// Compare each tensor bit by bit with the checkpoint that it was made from: a file or a folder; repeatable for
    /// shards
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) against: Vec<PathBuf>,
    /// The checkpoint is one shard that was converted alone
    #[arg(long, requires = "against")]
    pub(crate) single: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten, next_help_heading = "What the conversion made of the checkpoint")]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) renaming: RenamingArgs,
    #[command(flatten)]
    pub(crate) dtypes: DtypeArgs,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

impl Verify {
    /// Returns the check for the library.
    ///
    /// # Errors
    /// When the carton or the checkpoint is at an address that cannot be read.
    pub(crate) fn options(&self) -> anyhow::Result<VerifyOptions> {
        let mut options = VerifyOptions::new(output::shown_path(&self.file));
        options.source = self.remote.open(&self.file)?;
        options.against = self.against.iter().map(|path| output::shown_path(path)).collect();
        if let [against] = self.against.as_slice() {
            options.against_source = self.remote.open(against)?;
        }
        options.shards = shard_policy(self.single);
        options.selection = self.select.selection();
        options.renames.clone_from(&self.renaming.rename);
        options.casts = self.dtypes.casts();
        options.target_layout = self.renaming.layout();
        Ok(options)
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton unpack llama.carton              into llama/, next to it
  torch2carton unpack llama.carton -C /models/llama")]
pub(crate) struct Unpack {
    /// The carton
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The folder to write into, which is created if needed [default: next to the carton, with its name]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long)]
    pub(crate) force: bool,
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
    /// The URL under which the blobs will be served
    #[arg(long, value_name = "URL")]
    pub(crate) base: String,
    /// The folder for the blobs
    #[arg(long, value_name = "DIR")]
    pub(crate) blobs: PathBuf,
    /// Keep smaller files in the carton
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    pub(crate) min_size: u64,
    /// Where to write the carton
    #[arg(short, long, value_name = "CARTON")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) existing: ExistingOutputArgs,
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
    /// Where to write the carton
    #[arg(short, long, value_name = "CARTON")]
    pub(crate) output: PathBuf,
    /// Keep what is fetched here, by its SHA-256, and resume broken downloads from here
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Fetch http URLs too, and URLs that name a private or loopback address
    #[arg(long)]
    pub(crate) allow_http: bool,
    /// Reject larger files [default: half of the free space]
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_size: Option<u64>,
    /// Give up a connection that is silent for this long
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) existing: ExistingOutputArgs,
}

//! What may be typed after the subcommands that work on cartons.

use std::path::PathBuf;

use clap::Args;

use crate::cli::Select;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton pack llama -o llama.carton
  torch2carton pack model --compression zstd --tensor x=x.npy --tensor y=y.npy

The folder holds carton.toml and model/, and may hold tensor_data/ and misc/.
What Carton's client needs and is missing is added, and told.")]
pub(crate) struct Pack {
    /// The folder
    pub(crate) directory: PathBuf,
    /// Where to write the carton [default: beside the folder]
    #[arg(short, long, value_name = "CARTON")]
    pub(crate) output: Option<PathBuf>,
    /// Refuse to replace an existing carton
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// How to compress files; auto stores what does not shrink
    #[arg(long, value_name = "METHOD", default_value = "auto")]
    pub(crate) compression: Compression,
    /// An array for the folder of tensors; may be given many times
    #[arg(long, value_name = "NAME=FILE.npy")]
    pub(crate) tensor: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Compression {
    /// Zstandard where it saves something; model/model.pt is stored, so that it can be mapped
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
  torch2carton verify --json llama.carton | jq .findings

--json prints one object: schema_version (1), ok, manifest_sha256 (null where
there is no MANIFEST), files and bytes (those whose hashes are right),
tensors_compared (null without --against), findings (a list of {entry, what};
entry is the path in the carton, \"\" for the zip file itself) and notes.
Exit status: 0 all is right, 1 something is wrong, 2 bad usage.")]
pub(crate) struct Verify {
    /// The carton, or an unpacked folder
    pub(crate) file: PathBuf,
    /// Compare each tensor of model/model.pt bit by bit with the checkpoint that it was made of: a file or
    /// a folder; given many times, its shards
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) against: Vec<PathBuf>,
    /// The checkpoint is one shard that was converted alone
    #[arg(long, requires = "against")]
    pub(crate) single: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten, next_help_heading = "What the conversion took of the checkpoint")]
    pub(crate) select: Select,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  torch2carton unpack llama.carton -C llama")]
pub(crate) struct Unpack {
    /// The carton
    pub(crate) file: PathBuf,
    /// The folder to write into; it is made where it is not there
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Replace files that are there
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  torch2carton shrink llama.carton --base https://example.org/blobs --blobs blobs -o small.carton

Files move to blobs/SHA256, which you then serve below the base URL. Many cartons
share one folder. The model's hash stays the same.")]
pub(crate) struct Shrink {
    /// The carton
    pub(crate) file: PathBuf,
    /// The URL below which the blobs will be found
    #[arg(long, value_name = "URL")]
    pub(crate) base: String,
    /// The folder for the blobs
    #[arg(long, value_name = "DIR")]
    pub(crate) blobs: PathBuf,
    /// Leave smaller files in the carton
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    pub(crate) min_size: u64,
    /// Where to write the carton
    #[arg(short, long, value_name = "CARTON")]
    pub(crate) output: PathBuf,
    /// Refuse to replace an existing carton
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  torch2carton resolve small.carton --cache ~/.cache/torch2carton -o llama.carton

Only https is fetched, and nothing from private or loopback addresses. Each URL of
a file is tried in turn; a connection that breaks is taken up where it broke.")]
pub(crate) struct Resolve {
    /// The carton
    pub(crate) file: PathBuf,
    /// Where to write the carton
    #[arg(short, long, value_name = "CARTON")]
    pub(crate) output: PathBuf,
    /// Keep what is fetched here, by its SHA-256, and go on with what was broken off
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Fetch http URLs, and those that name a private or loopback address themselves
    #[arg(long)]
    pub(crate) allow_http: bool,
    /// Refuse files that are larger [default: half of the free space]
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_size: Option<u64>,
    /// Take a connection for broken on which nothing comes for so long
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub(crate) timeout: u64,
    /// Refuse to replace an existing carton
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
}

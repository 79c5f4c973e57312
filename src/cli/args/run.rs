//! Arguments of the subcommand `run`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use output::IfExists;
use runtime::{RunnableOptions, SelfTestOptions, Tolerance};

use super::{RemoteArgs, SamplingArgs};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton run llama.carton \"Once upon a time\"
  torch2carton run llama.carton \"Once upon a time\" --temperature 0.7 --top-p 0.9
  torch2carton run llama.carton --tokens 1,450,4996 --top 10
  torch2carton run llama.carton --self-test
  torch2carton run weights.carton --get layers.0.wq.weight -o wq.npy

A carton must be one that torch2carton wrote: its code is not executed, but
compared with what a conversion writes. Hashes are compared only with --verify:
without it, a damaged weight is used as it is. The text goes to standard output, timing
to standard error. Without --temperature, the most probable token is always
chosen. The text ends at a token that misc/generation_config.json names.

Exit status: 0 done, 1 the carton does not run or a self test failed, 2 bad
usage, 130 stopped by Ctrl-C.")]
pub(crate) struct Run {
    /// A carton, packed or unpacked, which is copied from an address first; or a model's folder, checkpoint or GGUF file, read in
    /// place
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) file: PathBuf,
    /// The text to continue, or `-` for standard input; needs the model's tokenizer: tokenizer.json, tokenizer.model, tekken.json
    /// or that in a GGUF file
    #[arg(conflicts_with_all = ["tokens", "get", "self_test"])]
    pub(crate) text: Option<String>,
    /// The ids of the tokens to continue, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',', num_args = 1, conflicts_with_all = ["get", "self_test"], value_parser = parse_token)]
    pub(crate) tokens: Option<Vec<u32>>,
    /// List the N most probable next tokens instead of generating [default with --tokens: 5]
    #[arg(long, value_name = "N", conflicts_with_all = ["max_tokens", "temperature", "get", "self_test"], value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top: Option<u32>,
    /// Generate at most N tokens [default with a text: 128]
    #[arg(short = 'n', long, value_name = "N", conflicts_with_all = ["get", "self_test"])]
    pub(crate) max_tokens: Option<u32>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Write the tensor NAME as a NumPy array
    #[arg(long, value_name = "NAME", requires = "output", conflicts_with_all = ["self_test", "temperature"])]
    pub(crate) get: Option<String>,
    /// Where to write the array; `-` is standard output
    #[arg(short, long, value_name = "FILE.npy", requires = "get", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Write an array that is up to N times as large as the tensor's storage, because it is a view that repeats bytes
    #[arg(long, value_name = "N", requires = "get", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_expansion: Option<u64>,
    #[command(flatten)]
    pub(crate) if_exists: IfExists,
    /// Run the self tests that are stored in the carton
    #[arg(long, conflicts_with = "temperature")]
    pub(crate) self_test: bool,
    /// Allow outputs of self tests to differ by TOL + TOL * |expected| [default: as numpy.allclose, and for a model at least 1e-4 of the largest expected number]
    #[arg(long, value_name = "TOL", requires = "self_test")]
    pub(crate) tolerance: Option<f64>,
    #[command(flatten)]
    pub(crate) open: RunnableOptions,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

fn parse_token(text: &str) -> Result<u32, String> {
    let not_an_id = || {
        "expected the id of a token, a whole number; a text goes after the carton, without --tokens"
            .to_owned()
    };
    text.trim().parse().map_err(|_| not_an_id())
}

impl Run {
    pub(crate) fn self_test_options(&self) -> SelfTestOptions {
        let mut options = SelfTestOptions::default();
        options.tolerance = self.tolerance.map(Tolerance::relative_and_absolute);
        options
    }
}

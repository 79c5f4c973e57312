//! Arguments of the subcommand `chat`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use runtime::RunnableOptions;

use super::{RemoteArgs, SamplingArgs};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton chat llama.carton
  torch2carton chat llama.carton --system \"You are terse.\" --temperature 0.7
  torch2carton chat llama.carton < questions.txt > answers.txt
  torch2carton chat llama.carton --print-prompt < conversation.json

In a terminal, a line is a message; Ctrl-C stops an answer, Ctrl-D leaves, and
/help lists the commands. From a pipe, each line is a message, and each answer
is a line of standard output, with \\n for a line feed. The model reads the
whole conversation, answers included, as its chat template writes it. Without
--temperature, the most probable token is always chosen.

Exit status: 0 done, 1 the model does not run or has no chat template, 2 bad
usage.")]
pub(crate) struct Chat {
    /// The carton, packed or unpacked, or a model's folder or checkpoint, read in place
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) file: PathBuf,
    /// Instructions that the model reads before the messages
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Read a conversation from standard input, as JSON, and print the text that the model would continue
    #[arg(long, conflicts_with_all = ["max_tokens", "temperature"])]
    pub(crate) print_prompt: bool,
    /// End an answer after N tokens [default: where the model's context ends]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_tokens: Option<u32>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) open: RunnableOptions,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

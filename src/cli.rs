//! What may be typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use store::IfExists;

pub(crate) use crate::cli_carton::{Compression, Pack, Resolve, Shrink, Unpack, Verify};

const EXAMPLES: &str = "\
Examples:
  torch2carton consolidated.00.pth           write consolidated.00.carton beside it
  torch2carton llama-3.1-70b/                merge the shards in a folder
  torch2carton model.pt -o out.carton        choose the output
  torch2carton inspect model.pt              list the tensors
  torch2carton inspect --json model.pt       the same for a program
  torch2carton trace model.pt | less         watch the pickle machine work

`torch2carton FILE` is short for `torch2carton convert FILE`, whose --help lists
more options. Nothing in a checkpoint is ever executed.
Exit status: 0 done, 1 this file cannot be converted or is not what it should be,
2 bad usage. `scan` has its own: see its --help.";

/// Turns PyTorch checkpoints into cartons that run, without Python and without executing anything from
/// the file.
#[derive(Debug, Parser)]
#[command(name = "torch2carton", version, after_help = EXAMPLES, arg_required_else_help = true)]
#[command(override_usage = "torch2carton [OPTIONS] <FILE>\n       torch2carton [OPTIONS] <COMMAND>")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// No notes, no progress, no summary
    #[arg(short, long, global = true, display_order = 100)]
    pub(crate) quiet: bool,
    /// When to use colours; NO_COLOR is respected
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", display_order = 101)]
    pub(crate) color: Color,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Makes this the choice of everything that prints.
    pub(crate) fn write_global(self) {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one of them in a run")]
pub(crate) enum Command {
    /// Convert a checkpoint into a carton (the default)
    Convert(Convert),
    /// List the tensors of a checkpoint, or what is in a carton
    Inspect(Inspect),
    /// Print the instructions of a checkpoint's pickle
    Trace(Trace),
    /// Say what a file would do to whoever unpickles it
    Scan(Scan),
    /// Check every hash and every rule of a carton
    Verify(Verify),
    /// Make a carton of a folder
    Pack(Pack),
    /// Write the files of a carton into a folder
    Unpack(Unpack),
    /// Move files out of a carton, to be fetched when they are needed
    Shrink(Shrink),
    /// Fetch the files that a carton leaves out
    Resolve(Resolve),
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

const CONVERT_EXAMPLES: &str = "\
Examples:
  torch2carton consolidated.00.pth
  torch2carton consolidated.0*.pth -o llama.carton
  torch2carton resnet.pth --name resnet50 --license Apache-2.0 --misc labels.txt
  torch2carton model.pt -o /models/model.carton --no-clobber
  torch2carton llama/consolidated.00.pth --n-heads 32 --rope-theta 10000 --norm-eps 1e-5

A folder stands for the checkpoint at its top level, in one file or in many:
safetensors or pytorch_model.bin with or without an index, consolidated.*.pth.
A LLaMA in Meta's files with params.json, or a LLaMA, Mistral or Qwen2 in Hugging
Face's with config.json, becomes a model: tokens in, logits out. Any other
becomes a module that returns its tensors, and the summary says why.
The carton takes along what lies beside the checkpoint of: params.json,
config.json, generation_config.json, tokenizer.model, tokenizer*.json,
special_tokens_map.json, vocab.json, merges.txt, chat_template.jinja, LICENSE*.";

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(after_help = CONVERT_EXAMPLES)]
pub(crate) struct Convert {
    /// The checkpoint; the folder it lies in, or its shards
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Where to write the carton [default: beside the checkpoint]
    #[arg(short, long, value_name = "CARTON")]
    pub(crate) output: Option<PathBuf>,
    /// Refuse to replace an existing carton
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Convert one shard of a checkpoint alone
    #[arg(long)]
    pub(crate) single: bool,
    /// The model's name [default: the file's stem, or its folder for names like model.pt]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The model's description, in Markdown
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// A description of at most 100 characters
    #[arg(long, value_name = "TEXT")]
    pub(crate) short_description: Option<String>,
    /// The model's license, as an SPDX expression where one fits
    #[arg(long, value_name = "SPDX")]
    pub(crate) license: Option<String>,
    /// URL of the repository that packs the model
    #[arg(long, value_name = "URL")]
    pub(crate) repository: Option<String>,
    /// URL of the model's home page
    #[arg(long, value_name = "URL")]
    pub(crate) homepage: Option<String>,
    /// A file to take along in misc/; may be given many times
    #[arg(long, value_name = "FILE")]
    pub(crate) misc: Vec<PathBuf>,
    /// The PyTorch that the carton is for: Carton's own, or the newest, which loads uint16 and wider, float8 and
    /// float4
    #[arg(long, value_name = "VERSION", default_value = "carton")]
    pub(crate) torch: Torch,
    /// Convert a file whose pickle names globals that run code, such as os.system; they stay names
    #[arg(long)]
    pub(crate) allow_dangerous: bool,
    /// Refuse a file whose pickle names globals that are not known, too
    #[arg(long, conflicts_with = "allow_dangerous")]
    pub(crate) deny_unknown: bool,
    /// Fields for carton.toml; the options here win over them
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// Leave out misc/checkpoint.json, which keeps the values that are no tensors
    #[arg(long)]
    pub(crate) no_values: bool,
    #[command(flatten)]
    pub(crate) model: Model,
    #[command(flatten)]
    pub(crate) select: Select,
}

/// What becomes of the tensors, and what is known of the model beside them.
#[derive(Args, Debug)]
pub(crate) struct Model {
    /// What the module is: a model of this architecture, or only the weights; auto goes by params.json,
    /// config.json and the tensors' names
    #[arg(long, value_name = "ARCH", default_value = "auto", value_parser = arch())]
    pub(crate) arch: Arch,
    /// Heads of queries; this and the next three are for what params.json or config.json leaves open
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) n_heads: Option<u64>,
    /// Base of the positions' wavelengths: 10000 in Llama 1 and 2, 500000 in Llama 3
    #[arg(long, value_name = "BASE", value_parser = positive)]
    pub(crate) rope_theta: Option<f64>,
    /// Stretch long wavelengths: 8 in Llama 3.1, 32 in Llama 3.2
    #[arg(long, value_name = "FACTOR", value_parser = positive)]
    pub(crate) rope_factor: Option<f64>,
    /// Epsilon of the norms, such as 1e-5
    #[arg(long, value_name = "EPS", value_parser = positive)]
    pub(crate) norm_eps: Option<f64>,
    /// Take tensors along that the model has no use for
    #[arg(long)]
    pub(crate) keep_extra: bool,
}

/// `--arch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    Auto,
    Weights,
    /// The name of an architecture.
    Named(String),
}

fn arch() -> impl TypedValueParser<Value = Arch> {
    let names = ["auto"].into_iter().chain(decoder::architectures()).chain(["weights"]);
    PossibleValuesParser::new(names).map(|name| match name.as_str() {
        "auto" => Arch::Auto,
        "weights" => Arch::Weights,
        _ => Arch::Named(name),
    })
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

/// `--torch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Torch {
    /// 2.0, which Carton's runner has
    Carton,
    /// 2.15 or newer; no runner that Carton offers has it yet
    Newest,
}

impl Torch {
    /// What `carton.toml` asks for.
    pub(crate) fn required(self) -> &'static str {
        match self {
            Self::Carton => "=2.0",
            Self::Newest => ">=2.15",
        }
    }
}

/// Which tensors, under which names.
#[derive(Args, Debug)]
pub(crate) struct Select {
    /// Take what lies under this key, such as `state_dict` or `ema.model`; '' takes everything
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Take only tensors whose names match; may be given many times
    #[arg(long, value_name = "GLOB")]
    pub(crate) include: Vec<String>,
    /// Leave out tensors whose names match; may be given many times
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Remove this from the start of names, such as `module.`
    #[arg(long, value_name = "PREFIX")]
    pub(crate) strip_prefix: Option<String>,
}

impl Select {
    /// Whether nothing was chosen.
    pub(crate) fn is_empty(&self) -> bool {
        self.key.is_none()
            && self.include.is_empty()
            && self.exclude.is_empty()
            && self.strip_prefix.is_none()
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton inspect consolidated.00.pth
  torch2carton inspect --json model.pt | jq '.tensors[].name'
  torch2carton inspect --json --sha256 model.pt > before.json")]
pub(crate) struct Inspect {
    /// Checkpoints or cartons, each on its own; a folder stands for the checkpoint in it
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print one JSON object a file
    #[arg(long)]
    pub(crate) json: bool,
    /// Hash the elements of each tensor (C order, little-endian)
    #[arg(long)]
    pub(crate) sha256: bool,
    /// List the values that are no tensors, too
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(after_help = "\
Examples:
  torch2carton trace consolidated.00.pth | less       stack, metastack and memo after each opcode
  torch2carton trace --lines --limit 20 model.pt      the first 20 opcodes, one a line
  torch2carton trace --summary model.pt               what the pickle is made of
  torch2carton trace --dis data.pkl                   what `python3 -m pickletools data.pkl` prints")]
pub(crate) struct Trace {
    /// A checkpoint, or a bare pickle
    pub(crate) file: PathBuf,
    /// One line an opcode, without the machine's state
    #[arg(long, group = "view")]
    pub(crate) lines: bool,
    /// Count opcodes, globals, tensors and memo entries
    #[arg(long, group = "view")]
    pub(crate) summary: bool,
    /// List as `python3 -m pickletools` does
    #[arg(long, group = "view")]
    pub(crate) dis: bool,
    /// One JSON object a line
    #[arg(long, group = "view")]
    pub(crate) json: bool,
    /// Abbreviate nothing
    #[arg(long, conflicts_with_all = ["summary", "dis"])]
    pub(crate) full: bool,
    /// Stop after so many opcodes
    #[arg(long, value_name = "N", conflicts_with_all = ["summary", "dis"])]
    pub(crate) limit: Option<u64>,
    /// The pickle to trace, counted from 0, where several follow one another
    #[arg(long, value_name = "N")]
    pub(crate) pickle: Option<usize>,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(after_help = "\
Examples:
  torch2carton scan model.pt
  torch2carton scan downloads/                           every file below a folder
  torch2carton scan --json *.pth | jq -c 'select(.verdict != \"clean\") | .file'
  torch2carton scan --deny-unknown model.pt              for files of strangers

Every pickle in a file is read: those that PyTorch reads, those that follow one
another, those in byte strings inside pickles, those hidden in an archive, and
of a damaged one what stands before the damage. Nothing is executed.

A global is a class or function that a pickle names. `known` ones make tensors
and plain data. `dangerous` ones run code, start programs, reach for attributes,
or use files or the network: findings, with the instruction that calls them.
`unknown` are all others, mostly classes of the program that saved the file.
They are listed, and are findings with --deny-unknown: whoever loads the file
imports their modules. Irregular archives, trailing bytes and hidden pickles are
findings too, since two readers may see two different things in them.

Exit status: 0 clean, 1 findings, 2 something was not scanned, or bad usage.
A file that cannot be read to its end is never clean.")]
pub(crate) struct Scan {
    /// Files, or folders of them
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print one JSON object a line, for each file
    #[arg(long)]
    pub(crate) json: bool,
    /// Count unknown globals as findings
    #[arg(long)]
    pub(crate) deny_unknown: bool,
    /// List known globals too, and the calls of all that are not
    #[arg(long)]
    pub(crate) all: bool,
    /// Compare the checksums of all records, which reads the whole file; else only those of pickles
    #[arg(long)]
    pub(crate) checksums: bool,
}

/// What `--no-clobber` means for a file that exists.
pub(crate) fn if_exists(no_clobber: bool) -> IfExists {
    if no_clobber { IfExists::Fail } else { IfExists::Replace }
}

/// A mistake of the person who types, for which the exit status is 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The names of the subcommands.
pub(crate) fn subcommands() -> Vec<String> {
    let command = <Cli as clap::CommandFactory>::command();
    command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect()
}

/// The arguments, with `convert` put in where no subcommand is named: `torch2carton x.pth` is the main
/// job. A file that is called like a subcommand is reached as `./inspect`.
pub(crate) fn with_default_command(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    let mut at = 1;
    while let Some(arg) = args.get(at).map(|arg| arg.to_string_lossy().into_owned()) {
        match arg.as_str() {
            "--color" => at = at.saturating_add(2),
            "-q" | "--quiet" => at = at.saturating_add(1),
            other if other.starts_with("--color=") => at = at.saturating_add(1),
            "-h" | "--help" | "-V" | "--version" | "help" => break,
            other if subcommands().iter().any(|name| name == other) => break,
            _ => {
                args.insert(at, "convert".into());
                break;
            }
        }
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> String {
        let args = with_default_command(line.split(' ').map(OsString::from));
        args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn convert_is_the_default() {
        assert_eq!(completed("t x.pth"), "t convert x.pth");
        assert_eq!(completed("t -o a x.pth"), "t convert -o a x.pth");
        assert_eq!(completed("t --color never -q x.pth"), "t --color never -q convert x.pth");
        assert_eq!(completed("t --color=never inspect x.pth"), "t --color=never inspect x.pth");
        assert_eq!(completed("t ./inspect"), "t convert ./inspect");
        assert_eq!(completed("t -q"), "t -q");
        assert_eq!(completed("t --help"), "t --help");
    }
}

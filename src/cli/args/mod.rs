//! Definitions of the command-line arguments.

mod batch;
mod carton;
#[cfg(feature = "tokenizer")]
mod chat;
mod check;
mod compare;
mod convert;
pub(crate) mod help;
mod inspect;
mod remote;
mod report;
#[cfg(test)]
mod requests;
mod run;
mod sampling;
#[cfg(feature = "serve")]
mod serve;

use std::ffi::OsString;
use std::path::PathBuf;

use ::inspect::ScanOptions;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueHint};

pub(crate) use batch::BatchArgs;
#[cfg(feature = "download")]
pub(crate) use carton::Resolve;
pub(crate) use carton::{Pack, Shrink, Unpack, Verify};
#[cfg(feature = "tokenizer")]
pub(crate) use chat::Chat;
pub(crate) use check::Check;
pub(crate) use compare::{Diff, Digest};
pub(crate) use convert::Convert;
pub(crate) use inspect::{FailOn, Inspect};
pub(crate) use remote::{RemoteArgs, into_io_error};
pub(crate) use report::Report;
pub(crate) use run::Run;
pub(crate) use sampling::SamplingArgs;
#[cfg(feature = "serve")]
pub(crate) use serve::{LogFormat, Serve};

use crate::cli::ui::invocation::{self, UsageError};
use crate::cli::ui::usage;

const EXAMPLES: &str = "\
Examples:
  torch2carton consolidated.00.pth           write consolidated.00.carton next to it
  torch2carton llama-3.1-70b/                merge its shards into llama-3.1-70b.carton
  torch2carton model.pt -o out.carton        choose the output
  torch2carton model.pt -o out.safetensors   write safetensors, or .pth for PyTorch
  torch2carton llama-3.2-1b/ -o llama.gguf   write a GGUF file for llama.cpp and Ollama
  torch2carton inspect model.pt              list the tensors
  torch2carton scan model.pt                 report what Python would execute
  torch2carton chat llama-3.2-1b/            talk with a chat model

`torch2carton FILE` is short for `torch2carton convert FILE`, whose --help lists
more options. Nothing in a checkpoint is ever executed.
Exit status: 0 done, 1 a file cannot be converted or is not what it should be,
2 bad usage, 128 + N ended by signal N. `scan`, `check` and `diff` have their own:
see their --help.";

/// Converts PyTorch checkpoints into cartons that run, or into safetensors, without Python and without executing anything
/// from the file.
#[derive(Debug, Parser)]
#[command(name = "torch2carton", version, after_help = EXAMPLES, arg_required_else_help = true, disable_version_flag = true)]
#[command(override_usage = "torch2carton [OPTIONS] <FILE>\n       torch2carton [OPTIONS] <COMMAND>")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print no notes, no progress and no summary
    #[arg(short, long, global = true, display_order = 100)]
    pub(crate) quiet: bool,
    /// When to use colours: auto (which respects NO_COLOR), always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        display_order = 101,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) color: Color,
    /// Print version; -VV prints what is used of the processor, too
    #[arg(short = 'V', long, action = clap::ArgAction::Version, display_order = 102)]
    version: Option<bool>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Sets the colour choice for everything that prints.
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
pub(crate) enum Command {
    /// Convert a checkpoint into a carton, safetensors, or another checkpoint (the default)
    Convert(Convert),
    /// Convert, scan, inspect or hash each input of a manifest
    Batch(BatchArgs),
    /// List the tensors of a checkpoint, or the contents of a carton
    Inspect(Inspect),
    /// Print the instructions of a checkpoint's pickle
    Trace(Trace),
    /// Write a report on a checkpoint as one HTML page
    Report(Report),
    /// Report what a file would execute if it were unpickled
    Scan(Scan),
    /// Report whether every tensor of a model is there
    Check(Check),
    /// Report what differs between two checkpoints or cartons
    Diff(Diff),
    /// Print one hash for the tensors of a checkpoint or carton, whatever its format
    Digest(Digest),
    /// Run a model on the CPU: continue a text, list the most probable tokens, run its self tests
    Run(Run),
    /// Talk with a chat model in the terminal, or answer each line of a pipe
    #[cfg(feature = "tokenizer")]
    Chat(Chat),
    /// Check every hash and every rule of a carton
    Verify(Verify),
    /// Make a carton from a folder
    Pack(Pack),
    /// Write the files of a carton into a folder
    Unpack(Unpack),
    /// Move files out of a carton, to be fetched when they are needed
    Shrink(Shrink),
    /// Fetch the files that a carton leaves out
    #[cfg(feature = "download")]
    Resolve(Resolve),
    /// Answer inference requests over HTTP
    #[cfg(feature = "serve")]
    Serve(Serve),
    /// Print a shell completion script
    #[command(after_help = "Each script has a place from which its shell reads it:
  torch2carton completions bash > ~/.local/share/bash-completion/completions/torch2carton
  torch2carton completions zsh > \"${fpath[1]}/_torch2carton\"
  torch2carton completions fish > ~/.config/fish/completions/torch2carton.fish
  torch2carton completions powershell >> $PROFILE
  torch2carton completions elvish > ~/.config/elvish/lib/torch2carton.elv
In elvish, rc.elv also needs `use torch2carton`.")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page, in roff, or write all of them
    #[command(after_help = "Examples:
  torch2carton man convert | man -l -
  torch2carton man --dir ~/.local/share/man/man1")]
    Man(ManArgs),
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(after_help = "\
Examples:
  torch2carton trace consolidated.00.pth | less       stack, metastack and memo after each opcode
  torch2carton trace --lines --limit 20 model.pt      the first 20 opcodes, one per line
  torch2carton trace --summary model.pt               counts of opcodes, globals and tensors
  torch2carton trace --dis data.pkl                   what `python3 -m pickletools data.pkl` prints")]
pub(crate) struct Trace {
    /// A checkpoint, or a bare pickle
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Print one line per opcode, without the machine's state
    #[arg(long, group = "view")]
    pub(crate) lines: bool,
    /// Count opcodes, globals, tensors and memo entries
    #[arg(long, group = "view")]
    pub(crate) summary: bool,
    /// List as `python3 -m pickletools` does
    #[arg(long, group = "view")]
    pub(crate) dis: bool,
    /// Print one JSON object per opcode, each on a line
    #[arg(long, group = "view")]
    pub(crate) json: bool,
    /// Print stack, metastack, memo and values in full
    #[arg(long, conflicts_with_all = ["summary", "dis"])]
    pub(crate) full: bool,
    /// Stop after N opcodes
    #[arg(long, value_name = "N", conflicts_with_all = ["summary", "dis"])]
    pub(crate) limit: Option<u64>,
    /// Which pickle to trace, counted from 0, if several follow each other
    #[arg(long, value_name = "N")]
    pub(crate) pickle: Option<usize>,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(after_help = "\
Examples:
  torch2carton scan model.pt
  torch2carton scan downloads/                           every file below a folder
  torch2carton scan --deny-unknown model.pt              for files you do not trust
  torch2carton scan --json *.pth | jq -r 'select(.verdict == \"unsafe\") | .file'
  torch2carton scan --json DIR | jq -r 'select(.verdict | IN(\"clean\", \"skipped\") | not) | .file'
  torch2carton scan --sarif DIR > scan.sarif             for a code host

Every pickle in a file is read: those that PyTorch reads, those that follow each
other, those in byte strings inside pickles, those hidden in an archive, and the
readable part of a damaged one. Nothing is executed.

A global is a class or function that a pickle names. `known` globals make tensors
and plain data, and nothing is done with them that nobody has judged. `dangerous`
globals run code, start programs, access attributes, or use files or the network.
`unreviewed` globals belong to Python, PyTorch or NumPy, and are used in a way
that nobody has judged, which is unsafe. `unknown` globals are all others, mostly classes of the
program that saved the file: a program that loads the file imports their modules.
Irregular archives, trailing bytes and hidden pickles are unsafe too, since two
readers may see different contents.

Verdicts: clean, unknown (only unknown globals, or a configuration whose
`auto_map` names Python code), unsafe, incomplete (a part was not scanned),
not_a_checkpoint. Other files in a folder and links to folders are skipped.

Exit status: 0 clean, 1 unsafe, or unknown with --deny-unknown, 2 a file is
incomplete or not a checkpoint, or bad usage, 3 unknown. Of several files, the
first of 1, 2 and 3 that occurs.")]
pub(crate) struct Scan {
    /// Files, and folders whose files are all scanned
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// Print one JSON object per file, each on a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the findings of all files as one SARIF 2.1.0 document, which code hosts show
    #[arg(long, conflicts_with = "json")]
    pub(crate) sarif: bool,
    /// Exit with status 1 instead of 3 for the verdict `unknown`
    #[arg(long)]
    pub(crate) deny_unknown: bool,
    /// List every finding instead of three of each kind, every call, the known globals, and skipped files
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) options: ScanOptions,
    #[command(flatten, next_help_heading = "Addresses")]
    pub(crate) remote: RemoteArgs,
}

/// Returns the names of the subcommands, in the order of the help.
pub(crate) fn subcommands() -> Vec<String> {
    let command = Cli::command();
    command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect()
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Command whose page is printed, instead of the program's
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    pub(crate) command: Option<String>,
    /// Write the pages of the program and of each command to DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Returns true if the arguments ask for the version with details: `-VV`, or `--version --verbose`.
pub(crate) fn is_verbose_version(args: &[OsString]) -> bool {
    let words: Vec<_> = args.iter().skip(1).map(|arg| arg.to_string_lossy()).collect();
    match words.iter().map(AsRef::as_ref).collect::<Vec<&str>>().as_slice() {
        ["-VV"] => true,
        [a, b] => {
            [(a, b), (b, a)].iter().any(|(v, w)| matches!(**v, "-V" | "--version") && **w == "--verbose")
        }
        _ => false,
    }
}

/// Returns the arguments, with `convert` inserted if no subcommand is named: `torch2carton x.pth` is the most common use. A
/// file with the name of a subcommand can be given as `./inspect`.
///
/// # Errors
/// When the first word is neither a subcommand nor a path.
pub(crate) fn with_default_command(mut args: Vec<OsString>) -> Result<Vec<OsString>, UsageError> {
    let names = subcommands();
    let mut at = 1;
    invocation::record_subcommand(None);
    while let Some(arg) = args.get(at) {
        match arg.to_string_lossy().as_ref() {
            "--color" => at += 2,
            "-q" | "--quiet" => at += 1,
            other if other.starts_with("--color=") => at += 1,
            "-h" | "--help" | "-V" | "--version" | "help" => break,
            other if names.iter().any(|name| name == other) => {
                invocation::record_subcommand(Some(other));
                break;
            }
            _ => {
                usage::reject_unknown_word(arg, &names)?;
                args.insert(at, "convert".into());
                break;
            }
        }
    }
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> String {
        let args = with_default_command(line.split(' ').map(OsString::from).collect())
            .expect("paths and subcommands");
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

    #[test]
    fn unknown_words_are_refused_with_a_hint() {
        let error = |word: &str| {
            let line = ["t", word, "x.pth"].into_iter().map(OsString::from).collect();
            with_default_command(line).expect_err("not a subcommand").to_string()
        };
        assert!(error("compare").starts_with(
            "no command `compare`, and no file of that name; `torch2carton diff A B` compares tensors; commands are convert, "
        ));
        assert!(error("inspct").contains("did you mean `torch2carton inspect`? commands are convert, "));
    }
}

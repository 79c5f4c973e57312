//! Arguments of `convert`, which is also the default subcommand.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use pipeline::{
    AllowedGlobals, ArchitectureChoice, ConvertOptions, Overrides, Rename, Selection, ShardPolicy,
    TargetLayout,
};

use super::ExistingOutputArgs;
use super::dtypes::DtypeArgs;
use super::merge::MergeArgs;
use super::remote::RemoteArgs;
use super::script::ScriptArgs;

/// Examples of the short help.
const FIRST_EXAMPLES: &str = "\
Examples:
  torch2carton consolidated.00.pth
  torch2carton model.pth -o model.safetensors
  torch2carton model-folder/ --to safetensors -o out/
  torch2carton llama/ --names hf -o llama-hf/
  torch2carton last.ckpt --key model_ema -o ema.safetensors

`torch2carton convert --help` lists all options.";

const EXAMPLES: &str = "\
Examples:
  torch2carton consolidated.00.pth
  torch2carton consolidated.0*.pth -o llama.carton
  torch2carton resnet.pth --name resnet50 --license Apache-2.0 --misc labels.txt
  torch2carton model.pt -o /models/model.carton --no-clobber
  torch2carton llama/consolidated.00.pth --n-heads 32 --rope-theta 10000 --norm-eps 1e-5
  torch2carton --each --resume -o cartons/ a.pth b.pth c.ckpt
  torch2carton pytorch_model.bin -o model.safetensors
  torch2carton model.pth --dtype bfloat16 --cast float64=float64
  torch2carton model-folder/ --to safetensors --max-shard-size 5GB -o out/
  torch2carton llama/ --names hf -o llama-hf/
  torch2carton model-fp8/ --dequantize --to safetensors -o model-bf16/
  torch2carton x.pth -o x.safetensors --rename '^encoder[.]=layers.'
  torch2carton llama/ --merge lora/ --to safetensors -o merged/
  torch2carton base/ --add math/=0.5 --add code/=0.3 --to safetensors -o both/
  torch2carton step-900.pt --average step-950.pt -o mean.safetensors
  torch2carton llama/ --to triton -o models/

A folder stands for the checkpoint at its top level, in one file or in several:
safetensors or pytorch_model.bin with or without an index, consolidated.*.pth.
A TorchScript module is called by name: its arguments are the inputs.
A LLaMA in Meta's files with params.json, or a decoder that --arch names in Hugging
Face's files with config.json, becomes a model: tokens in, logits out. Any other
checkpoint becomes a module that returns its tensors, and the summary says why.
The carton keeps these files next to the checkpoint in misc/: params.json,
config.json, generation_config.json, adapter_config.json, tokenizer.model,
tokenizer*.json, special_tokens_map.json, added_tokens.json, vocab.json,
vocab.txt, merges.txt, spiece.model, sentencepiece.bpe.model,
chat_template.jinja, LICENSE*. A folder of safetensors gets them next to its
files.";

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(after_help = FIRST_EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct Convert {
    /// A checkpoint, its folder, or all of its shards
    #[arg(required_unless_present = "files_from", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// The file to write, whose extension chooses what it becomes; with --to, a name without such an extension is the
    /// folder for a model's files; with --each, the folder for outputs [default: next to the checkpoint, or to its folder]
    #[arg(short, long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) output: Option<PathBuf>,
    /// What to write [default: by the extension of the output, else a carton]
    #[arg(long, value_name = "KIND")]
    pub(crate) to: Option<ToArg>,
    #[command(flatten)]
    pub(crate) existing: ExistingOutputArgs,
    /// Report what would be made, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not wait until the disk has the output, as `cp` does not: after a power failure it may be damaged
    #[arg(long)]
    pub(crate) no_sync: bool,
    /// Compute the digest of the tensors, for the summary and for carton.toml; reads them once more
    #[arg(long)]
    pub(crate) digest: bool,
    /// Print one JSON object per output
    #[arg(long)]
    pub(crate) json: bool,
    /// Convert each FILE on its own, and go on after a failure; a folder stands for all checkpoints below it
    #[arg(long, conflicts_with = "name")]
    pub(crate) each: bool,
    /// With --each, skip files whose output is whole and was made from the same file with the same options
    #[arg(long, requires = "each", conflicts_with = "no_clobber")]
    pub(crate) resume: bool,
    /// With --resume, read each output as a whole, and compare all hashes and checksums
    #[arg(long, requires = "resume")]
    pub(crate) checksum: bool,
    /// With --each, also convert the files that FILE lists: one on each line, or separated by NUL; `-` is standard input
    #[arg(long, value_name = "FILE", requires = "each", value_hint = ValueHint::FilePath)]
    pub(crate) files_from: Option<PathBuf>,
    /// With --each, convert N files at the same time [default: as many as the machine runs at once, at most 4]
    #[arg(long, value_name = "N", requires = "each", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// With --each, append the JSON object of each input to FILE; `-` is standard output
    #[arg(long, value_name = "FILE", requires = "each", value_hint = ValueHint::FilePath)]
    pub(crate) results: Option<PathBuf>,
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
    /// The model's license, as an SPDX expression if there is one
    #[arg(long, value_name = "SPDX")]
    pub(crate) license: Option<String>,
    /// URL of the repository that packs the model
    #[arg(long, value_name = "URL")]
    pub(crate) repository: Option<String>,
    /// URL of the model's home page
    #[arg(long, value_name = "URL")]
    pub(crate) homepage: Option<String>,
    /// A file to keep in misc/, or next to safetensors in a folder; repeatable
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) misc: Vec<PathBuf>,
    /// Store a self test in the carton: tokens and, if the weights are float32 or float64, the logits that are expected
    #[arg(long)]
    pub(crate) self_test: bool,
    /// The PyTorch that the carton requires: Carton's own, or the newest, which loads uint16 and wider, float8 and
    /// float4
    #[arg(long, value_name = "VERSION", default_value = "carton")]
    pub(crate) torch: TorchArg,
    /// Convert a file whose pickle names globals that can run code, such as os.system, or whose TorchScript code calls
    /// operators that read or write files; nothing is executed
    #[arg(long)]
    pub(crate) allow_dangerous: bool,
    /// Reject a file whose pickle names a global, or whose TorchScript code names an operator, that is not known, or
    /// whose pickle uses one in a way that nobody has judged
    #[arg(long, conflicts_with = "allow_dangerous")]
    pub(crate) deny_unknown: bool,
    /// Fields for carton.toml; options override them
    #[arg(long, value_name = "FILE.toml", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Write an output that is up to N times as large as the input, because its tensors are views that repeat bytes; 64 MiB
    /// more than the input are always written
    #[arg(long, value_name = "N", default_value_t = pipeline::DEFAULT_MAX_EXPANSION, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_expansion: u64,
    /// Omit misc/checkpoint.json, which keeps the values that are not tensors
    #[arg(long)]
    pub(crate) no_values: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) script: ScriptArgs,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) renaming: RenamingArgs,
    /// Compute the numbers of quantized weights (FP8, MXFP4, GPTQ, AWQ and others) as their library does, and drop what
    /// describes the quantization; they get the dtype of config.json, or that of --dtype
    #[arg(long)]
    pub(crate) dequantize: bool,
    #[command(flatten)]
    pub(crate) merging: MergeArgs,
    #[command(flatten)]
    pub(crate) dtypes: DtypeArgs,
    #[command(flatten)]
    pub(crate) safetensors: SafetensorsArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

impl Convert {
    /// Returns the conversion options for the library.
    ///
    /// # Errors
    /// When a flag was typed that the output does not have.
    pub(crate) fn options(&self) -> anyhow::Result<ConvertOptions> {
        // Without `..`, so that a new flag does not compile until it has its place.
        let Self {
            files,
            output,
            existing,
            dry_run,
            no_sync,
            digest,
            max_expansion,
            single,
            allow_dangerous,
            deny_unknown,
            model,
            select,
            renaming,
            merging,
            dequantize,
            dtypes,
            // For the command.
            json: _,
            each,
            files_from: _,
            jobs: _,
            results: _,
            resume: _,
            checksum: _,
            // For `target()`.
            to: _,
            name: _,
            description: _,
            short_description: _,
            license: _,
            repository: _,
            homepage: _,
            misc: _,
            self_test: _,
            torch: _,
            config: _,
            no_values: _,
            script: _,
            safetensors: _,
            remote,
        } = self;
        let source = match files.as_slice() {
            _ if *each => None,
            [file] => remote.open_with_documents(file)?,
            files => remote.open_files(files)?,
        };
        let mut options =
            ConvertOptions::from_inputs(files.iter().map(|file| output::shown_path(file)).collect());
        options.source = source;
        options.output.clone_from(output);
        let destination = remote.destination();
        options.destination = if *no_sync { destination.without_sync() } else { destination };
        options.target = self.target()?;
        options.if_exists = existing.if_exists();
        options.shards = shard_policy(*single);
        options.globals = match (allow_dangerous, deny_unknown) {
            (true, _) => AllowedGlobals::All,
            (_, true) => AllowedGlobals::Known,
            _ => AllowedGlobals::NotDangerous,
        };
        options.overrides = model.overrides();
        options.selection = select.selection();
        options.renames.clone_from(&renaming.rename);
        options.sum = merging.sum();
        options.adapters.clone_from(&merging.merge);
        for path in merging.paths() {
            if let Some(source) = remote.open_with_documents(path)? {
                options.given.add(path, source);
            }
        }
        options.dequantize = *dequantize;
        options.casts = dtypes.casts();
        options.dry_run = *dry_run;
        options.digest = *digest;
        options.max_expansion = *max_expansion;
        Ok(options)
    }
}

/// Returns the shard policy that `--single` selects.
pub(crate) fn shard_policy(single: bool) -> ShardPolicy {
    if single { ShardPolicy::ThisFileOnly } else { ShardPolicy::RequireAll }
}

/// What the module is, and what is known about the model besides its documents.
#[derive(Args, Debug)]
pub(crate) struct ModelArgs {
    /// What to make: a model of this architecture, or a module that returns its weights; auto decides by params.json,
    /// config.json and the tensors' names
    #[arg(long, value_name = "ARCH", default_value = "auto", value_parser = architecture_parser())]
    pub(crate) arch: ArchitectureChoice,
    /// Fail unless the output is a model that runs
    #[arg(long = "require-model")]
    pub(crate) required: bool,
    /// Number of query heads, if params.json or config.json omits it
    #[arg(long, value_name = "N", value_parser = parse_positive_integer, allow_negative_numbers = true)]
    pub(crate) n_heads: Option<u64>,
    /// RoPE base (theta), if the document omits it: 10000 in Llama 1 and 2, 500000 in Llama 3
    #[arg(long, value_name = "BASE", value_parser = parse_positive_number, allow_negative_numbers = true)]
    pub(crate) rope_theta: Option<f64>,
    /// RoPE scaling factor, if the document omits it: 8 in Llama 3.1, 32 in Llama 3.2
    #[arg(long, value_name = "FACTOR", value_parser = parse_positive_number, allow_negative_numbers = true)]
    pub(crate) rope_factor: Option<f64>,
    /// Epsilon of the norms, if the document omits it, such as 1e-5
    #[arg(long, value_name = "EPS", value_parser = parse_positive_number, allow_negative_numbers = true)]
    pub(crate) norm_eps: Option<f64>,
    /// Keep tensors that the architecture does not use
    #[arg(long)]
    pub(crate) keep_extra: bool,
    /// What a module does with wrong inputs: returns the message as `error`, or raises an exception, which ends Carton's
    /// runner; one for Triton raises always
    #[arg(long, value_name = "HOW", default_value = "return")]
    pub(crate) errors: ErrorsArg,
}

impl ModelArgs {
    /// Returns the hyperparameters from the command line, for facts that no document states.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            n_heads: self.n_heads,
            rope_theta: self.rope_theta,
            rope_factor: self.rope_factor,
            norm_eps: self.norm_eps,
        }
    }
}

/// `--errors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ErrorsArg {
    /// Return a dict with the message as `error`
    Return,
    /// Raise an exception
    Raise,
}

fn architecture_parser() -> impl TypedValueParser<Value = ArchitectureChoice> {
    let names = ["auto"].into_iter().chain(pipeline::architectures()).chain(["weights"]);
    PossibleValuesParser::new(names).map(|name| match name.as_str() {
        "auto" => ArchitectureChoice::Auto,
        "weights" => ArchitectureChoice::Weights,
        _ => ArchitectureChoice::Named(name),
    })
}

/// Parses a number of things, of which there is at least one.
pub(super) fn parse_count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a whole number above 0".to_owned())
}

fn parse_positive_integer(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "expected a whole number above 0".to_owned())
}

fn parse_positive_number(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

/// `--to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ToArg {
    /// A carton
    Carton,
    /// A safetensors file, or a folder in Hugging Face's layout
    Safetensors,
    /// A checkpoint as torch.save writes it
    Pth,
    /// A model in a folder that NVIDIA Triton serves (a model repository); other models there stay
    Triton,
}

/// The names of the tensors in the output.
#[derive(Args, Debug)]
pub(crate) struct RenamingArgs {
    /// Replace each match of a regular expression in the names, with $1 or ${1} for its groups; repeatable, in this
    /// order
    #[arg(long, value_name = "REGEX=TO", value_parser = parse_rename)]
    pub(crate) rename: Vec<Rename>,
    /// Convert a LLaMA into the layout of Hugging Face (with config.json) or of Meta (with params.json); writes
    /// a folder, or only the tensors if -o names a file
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) names: Option<NamesArg>,
}

impl RenamingArgs {
    /// Returns the layout that `--names` selects.
    pub(crate) fn layout(&self) -> Option<TargetLayout> {
        self.names.map(|names| match names {
            NamesArg::Hf => TargetLayout::HuggingFace,
            NamesArg::Meta => TargetLayout::Meta,
        })
    }
}

/// `--names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NamesArg {
    /// The names of Hugging Face's transformers
    Hf,
    /// The names of Meta's code
    Meta,
}

/// Parses `REGEX=TO`. The replacement begins after the last `=`, because a name rarely contains one.
fn parse_rename(text: &str) -> Result<Rename, String> {
    let parts = text.rsplit_once('=').filter(|(pattern, _)| !pattern.is_empty());
    let (pattern, to) = parts.ok_or_else(|| "expected REGEX=TO".to_owned())?;
    Ok(Rename { pattern: pattern.to_owned(), to: to.to_owned() })
}

/// How safetensors files are written.
#[derive(Args, Debug)]
pub(crate) struct SafetensorsArgs {
    /// How safetensors hold tensors that share memory
    #[arg(long, value_name = "HOW", default_value = "drop")]
    pub(crate) ties: TiesArg,
    /// The maximum size of the tensors in one safetensors file, such as 5GB; needs a folder as
    /// output
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_shard_size: Option<u64>,
}

/// `--ties`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TiesArg {
    /// Once, with the other names in the metadata
    Drop,
    /// Once per name
    Duplicate,
}

/// Parses a number of bytes: `5GB` has decimal units, as in Hugging Face's libraries, `5GiB` binary ones.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("", 1),
        ("B", 1),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KIB", 1 << 10),
        ("MIB", 1 << 20),
        ("GIB", 1 << 30),
        ("TIB", 1 << 40),
    ];
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, size)| *size);
    let bytes = number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "expected a size such as 5GB, 500MB or 2GiB".to_owned())
}

/// `--torch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TorchArg {
    /// 2.0, which Carton's runner has
    Carton,
    /// 2.15 or newer; no runner of Carton has it yet
    Newest,
}

/// Which tensors, under which names.
#[derive(Args, Debug)]
pub(crate) struct SelectArgs {
    /// Use what is under this key, such as `state_dict` or `ema.model`; '' uses everything
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Use only tensors whose names match; repeatable
    #[arg(long, value_name = "GLOB")]
    pub(crate) include: Vec<String>,
    /// Leave out tensors whose names match; repeatable
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Remove this from the start of names, such as `module.`
    #[arg(long, value_name = "PREFIX")]
    pub(crate) strip_prefix: Option<String>,
}

impl SelectArgs {
    /// Returns the tensor selection for the library.
    pub(crate) fn selection(&self) -> Selection {
        let mut selection = Selection::default();
        selection.key.clone_from(&self.key);
        selection.include.clone_from(&self.include);
        selection.exclude.clone_from(&self.exclude);
        selection.strip_prefix.clone_from(&self.strip_prefix);
        selection
    }
}

//! Arguments of `convert`, which is also the default subcommand.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use byte_source::Location;
use clap::{Args, ValueHint};
use convert::{ConvertOptions, OutputFormat};
use output::RemoteAddress;

use super::remote::RemoteArgs;
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::shell::shell_quoted_path;

/// Examples of the short help.
const FIRST_EXAMPLES: &str = "\
Examples (`torch2carton convert --help` has more, and all options):
  torch2carton model.pth -o model.safetensors
  torch2carton model-folder/ --to safetensors -o out/
  torch2carton last.ckpt --key model_ema -o ema.safetensors";

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
    #[command(flatten)]
    pub(crate) options: ConvertOptions,
    /// Print one JSON object per output
    #[arg(long)]
    pub(crate) json: bool,
    /// Convert each FILE, or each checkpoint in a folder or zip, on its own
    ///
    /// A failure does not end the work
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
    /// With --each, convert N files at the same time [default: one for each core, at most 4]
    #[arg(long, value_name = "N", requires = "each", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// With --each, append the JSON object of each input to FILE; `-` is standard output
    #[arg(long, value_name = "FILE", requires = "each", value_hint = ValueHint::FilePath)]
    pub(crate) results: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

impl Convert {
    /// Returns the conversion for the library.
    ///
    /// # Errors
    /// When an input is at an address that cannot be read.
    pub(crate) fn options(&self) -> anyhow::Result<ConvertOptions> {
        self.reject_output_among_inputs()?;
        let mut options = self.options.clone();
        options.inputs = if self.each {
            self.files.iter().map(Location::from).collect()
        } else {
            self.remote.locate_all(&self.files)?
        };
        self.remote.locate_others(&mut options)?;
        Ok(options)
    }
}

impl Convert {
    /// Refuses a last file that does not exist and has the name of an output, as in `cp FROM TO`.
    fn reject_output_among_inputs(&self) -> anyhow::Result<()> {
        let [inputs @ .., last] = self.files.as_slice() else { return Ok(()) };
        let is_output = !self.each
            && self.options.output.is_none()
            && OutputFormat::from_path(last).is_some()
            && RemoteAddress::from_path(last).is_none()
            && !last.exists()
            && !inputs.is_empty()
            && inputs.iter().all(|input| input.exists());
        if is_output {
            let last = shell_quoted_path(last);
            return Err(UsageError(format!("there is no file {last}; `-o {last}` writes it")).into());
        }
        Ok(())
    }
}

/// Parses a number of things, of which there is at least one.
pub(super) fn parse_count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a whole number above 0".to_owned())
}

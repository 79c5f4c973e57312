//! Back ends: each lays out the selected tensors in one output format.

pub(crate) mod carton;
mod folder;
pub(crate) mod gguf;
pub(crate) mod ports;
pub(crate) mod safetensors;
pub(crate) mod ties;
pub(crate) mod torch;
pub(crate) mod triton;

use std::any::Any;
use std::cell::OnceCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use byte_source::{Blob, Location, Observer};
use open::files::{CheckpointSources, Companion, ShardPolicy};
use open::{Model, TargetLayout};
use output::{Destination, IfExists, OutputFiles, PlannedFile};
use safetensors_format::{FORMAT_KEY, METADATA_KEY};
use tensor::{Dtype, Tensor, Tensors};
use torch_import::{Checkpoint, CheckpointValue, CompoundKind, Container};
use torchscript::{Module, ModuleCode, OnInvalidInput, ScriptOptions};

use crate::note_collector::NoteCollector;
use crate::options::model_options;
use crate::{
    ArchitectureChoice, Error, ModelOptions, NoModelReason, OutputFormat, OutputReport, PlannedConversion,
    Problem, Result,
};

/// Maximum number of tensors that a note or an error names.
const SHOWN: usize = 4;

/// Key of the metadata of a file for what an incomplete model lacks.
const INCOMPLETE_KEY: &str = "torch2carton.incomplete";

/// Options of an output format, which lay out an output. Another crate can implement it, too, and [register](crate::register_output)
/// its format: `examples/npz_output.rs` does.
pub trait Output: Any + erased_serde::Serialize + fmt::Debug + Send + Sync {
    /// Returns the format with these options.
    fn format(&self) -> &'static OutputFormat;

    /// Lays out the files of the output. Reads no weights and writes no files.
    ///
    /// # Errors
    /// When the format cannot represent the tensors, the options do not fit them, or an existing file must not be replaced.
    fn plan<'p>(
        &'p self,
        job: &OutputJob<'p>,
        kept: NonTensorParts,
        notes: &mut NoteCollector<'_>,
    ) -> Result<OutputPlan<'p>>;

    /// Checks the options before any file is opened.
    ///
    /// # Errors
    /// When an option has an invalid value.
    fn check_targets(&self) -> Result<()> {
        Ok(())
    }

    /// Returns true if the output is a folder: the one at `path`, or if no path is given, the default output of a model
    /// whose documents are next to its checkpoint (`has_documents`).
    fn is_folder(&self, path: Option<&Path>, has_documents: bool) -> bool {
        let _ = (path, has_documents);
        false
    }

    /// Returns true if a file of this format holds tensors alone, so that the documents of a model are next to it.
    fn is_tensor_file(&self) -> bool {
        true
    }

    /// Returns true if the output is a whole model for llama.cpp: it takes the names of Hugging Face, and chooses the dtypes of its tensors.
    fn is_for_llama_cpp(&self) -> bool {
        false
    }

    /// Returns true if the output must be a model that runs: tensors alone are none.
    fn needs_forward(&self) -> bool {
        false
    }

    /// Returns the options of the module in the output, if the output has one. It can keep the code of an input.
    fn module_options(&self) -> Option<ModuleOptions<'_>> {
        None
    }

    /// Returns true if the output keeps the values of a checkpoint that are not tensors.
    fn keeps_values(&self) -> bool {
        false
    }

    /// Returns true if the output is a repository: a folder shared by several conversions, with a sub-folder for each model.
    fn is_repository(&self) -> bool {
        false
    }

    /// Returns the name of the model, if the options give it one.
    fn model_name(&self) -> Option<&str> {
        None
    }

    /// Returns the layout that the model is translated into, if any.
    fn requested_layout(&self) -> Option<TargetLayout> {
        None
    }

    /// Returns the files that the options keep next to the tensors.
    fn misc(&self) -> &[PathBuf] {
        &[]
    }

    /// Returns the files that the options name and a conversion reads, besides those that it keeps.
    fn read_files(&self) -> &[PathBuf] {
        &[]
    }

    /// Returns true if the digest of the tensors is in the output, if it is asked for.
    fn has_digest(&self) -> bool {
        false
    }

    /// Returns true if the output of an earlier conversion is complete. Hashes are not compared.
    fn is_complete(&self, output: &Path) -> bool {
        output.is_file()
    }

    /// Returns true if the hashes in the output of an earlier conversion are right. A format without hashes has none that is
    /// wrong.
    ///
    /// # Errors
    /// When `observer` stops the work.
    fn verify(&self, output: &Path, observer: &dyn Observer) -> Result<bool> {
        let _ = (output, observer);
        Ok(true)
    }
}

erased_serde::serialize_trait_object!(Output);

/// Creates the row of a format of this crate, whose options are also arguments of the command line.
macro_rules! output_format {
    ($options:ident, $name:literal, $extensions:expr, $help:literal) => {{
        let format = crate::OutputFormat::new::<$options>($name, &$extensions, $help);
        #[cfg(feature = "cli")]
        let format = format.with_arguments::<$options>();
        format
    }};
}
pub(crate) use output_format;

/// Options of the module in an output.
#[derive(Clone, Copy, Debug)]
pub struct ModuleOptions<'o> {
    pub model: &'o ModelOptions,
    /// How the module of a TorchScript input is called.
    pub script: &'o ScriptOptions,
    /// What the module does with invalid inputs; `None` if its inputs and outputs are positional.
    pub errors: Option<OnInvalidInput>,
}

/// Model to write into an output, and the context for laying it out.
pub struct OutputJob<'j> {
    pub(crate) model: &'j Model,
    pub(crate) conversion: &'j PlannedConversion,
    pub(crate) target: &'j Path,
    pub(crate) is_folder: bool,
    pub(crate) if_exists: IfExists,
    pub(crate) destination: &'j Destination,
    pub(crate) name: &'j str,
    /// Files to keep: companions of the checkpoint, and files given in the options.
    pub(crate) misc: &'j [Companion],
    pub(crate) tensors: &'j Tensors,
    /// File name and text of the generated document that replaces the documents next to the checkpoint.
    pub(crate) document: Option<(&'static str, String)>,
    /// Names and contents of the documents that describe a tokenizer of Meta.
    pub(crate) tokenizer: &'j [(&'static str, Vec<u8>)],
    /// Number of values in the checkpoint that are not tensors and are worth a note.
    pub(crate) values: usize,
    /// Digest of the tensors in hexadecimal, if it is asked for. It is set before files are written.
    pub(crate) digest: Option<Rc<OnceCell<String>>>,
}

/// Parts of a checkpoint besides its tensors, for formats that keep them.
#[derive(Default)]
pub struct NonTensorParts {
    /// Module of a TorchScript input whose code is kept.
    pub(crate) script: Option<Box<Module>>,
    /// JSON document with the values that are not tensors.
    pub(crate) values: Option<String>,
    /// Texts in the header of a safetensors input.
    pub(crate) metadata: HeaderTexts,
}

/// Texts in the header of a safetensors file, besides the one that names the framework.
#[derive(Default)]
pub(crate) struct HeaderTexts {
    pub(crate) texts: Vec<(String, String)>,
    /// True if the tensors are not those of the file, so that what the texts say of their bytes is wrong.
    pub(crate) is_changed: bool,
    /// True if the tensors have other dtypes, so that what the texts say of these is wrong.
    pub(crate) is_recast: bool,
}

impl HeaderTexts {
    /// Reads the texts of a checkpoint, from which `tensors` were made.
    pub(crate) fn of(model: &Model, checkpoint: &Checkpoint, is_recast: bool) -> Self {
        if model.format() != "safetensors" {
            return Self::default();
        }
        let start = format!("{METADATA_KEY}.");
        let texts = checkpoint.values().filter_map(|(name, value)| {
            let CheckpointValue::Text(text) = value else { return None };
            let key = name.strip_prefix(&start).filter(|key| *key != FORMAT_KEY)?;
            Some((key.to_owned(), text.to_string()))
        });
        let texts: Vec<_> = texts.collect();
        let view = |(name, tensor): &(String, Tensor)| (name.clone(), tensor.dtype(), tensor.view_id());
        let is_changed = !texts.is_empty()
            && !checkpoint.to_tensors().iter().map(view).eq(model.tensors().iter().map(view));
        Self { texts, is_changed, is_recast }
    }
}

/// Output that is laid out but not written.
pub struct OutputPlan<'p> {
    pub(crate) files: OutputFiles<'p>,
    /// Creates the report once the files are written, or dropped after a dry run.
    pub(crate) report: Box<dyn FnOnce() -> Arc<dyn OutputReport> + 'p>,
}

impl<'p> OutputPlan<'p> {
    /// Creates the plan of an output that is one file with this content.
    pub fn file(job: &OutputJob<'p>, content: impl Blob + Sync + 'p, report: impl OutputReport) -> Self {
        let weights = vec![PlannedFile::new(job.target.to_owned(), content)];
        Self::new(OutputFiles { weights, ..OutputFiles::default() }, || report)
    }

    pub(crate) fn new<R: OutputReport>(files: OutputFiles<'p>, report: impl FnOnce() -> R + 'p) -> Self {
        Self { files, report: Box::new(|| Arc::new(report())) }
    }
}

impl<'j> OutputJob<'j> {
    /// Returns what the model lacks, for the metadata of the output.
    pub(crate) fn incomplete(&self) -> Option<String> {
        self.model.incomplete.as_ref().map(ToString::to_string)
    }

    /// Returns the tensors to write, under their names in the output.
    pub fn tensors(&self) -> &'j Tensors {
        self.tensors
    }

    /// Returns the path of the output.
    pub fn target(&self) -> &'j Path {
        self.target
    }

    /// Converts the tensors into the module that the options ask for.
    pub(crate) fn to_module(&self, options: &ModelOptions, errors: OnInvalidInput) -> Result<Module> {
        let conversion = &self.conversion.options;
        let (shards, overrides) = (conversion.shards(), conversion.overrides);
        let missing = self.model.incomplete.as_ref().and_then(|incomplete| incomplete.missing.first());
        if let (Some(missing), ArchitectureChoice::Auto) = (missing, &options.architecture) {
            let why = Some(NoModelReason::MissingTensor { name: missing.name.clone() });
            let weights =
                torchscript::weights_module(self.tensors, errors).map_err(|error| self.at_input(error))?;
            return Ok(Module { code: ModuleCode::Weights { why }, ..weights });
        }
        model_options::convert_to_module(options, errors, self.model, shards, overrides, self.tensors)
    }

    /// Returns an error that names the tensors of several parts and those of other dtypes than a format of plain tensors has.
    ///
    /// # Errors
    /// When there are such tensors.
    pub fn reject_unsupported(
        &self,
        format: &'static str,
        is_supported: impl Fn(Dtype) -> bool,
    ) -> Result<()> {
        let dtypes = || self.tensors.iter().map(|(name, tensor)| (name, tensor.dtype()));
        let other = dtypes().filter(|(_, dtype)| !is_supported(*dtype));
        let other = other.map(|(name, dtype)| (name.clone(), dtype.to_string()));
        let mut tensors: Vec<(String, String)> = self.unrepresentable_compounds().chain(other).collect();
        let count = tensors.len();
        tensors.truncate(SHOWN);
        let torch_can = self.unrepresentable_compounds().next().is_none()
            && !dtypes().any(|(_, dtype)| dtype.is_quantized());
        if count == 0 {
            Ok(())
        } else {
            Err(self.at_input(Problem::UnsupportedTensors { format, torch_can, tensors, count }))
        }
    }

    /// Returns the name and kind of each compound tensor that a format of plain tensors cannot represent.
    fn unrepresentable_compounds(&self) -> impl Iterator<Item = (String, String)> {
        self.tensors.compounds().iter().filter_map(|compound| {
            let what = match &compound.kind {
                CompoundKind::Quantized { .. } => "quantized".to_owned(),
                CompoundKind::Blocks { scheme } => format!("{scheme} of GGUF"),
                CompoundKind::Sparse { layout } => layout.clone(),
                CompoundKind::Nested => "nested".to_owned(),
                CompoundKind::Jagged => "jagged".to_owned(),
                // The parts of these compounds can be written as plain tensors.
                CompoundKind::Subclass { .. } | CompoundKind::Meta { .. } => return None,
            };
            Some((compound.name.clone(), what))
        })
    }

    /// Returns the paths of all inputs, which an output must not replace.
    pub(crate) fn inputs(&self) -> Vec<&Path> {
        let others = self.conversion.other_inputs.iter().map(Location::path);
        self.model.sources.inputs().chain(others).collect()
    }

    /// Returns true if the document next to the checkpoint does not describe the tensors of this output.
    pub(crate) fn is_replaced_document(&self, document: &str) -> bool {
        let layout = self.conversion.options.target.output().requested_layout();
        let replaced = layout.map(TargetLayout::replaced_documents).unwrap_or_default();
        self.document.as_ref().is_some_and(|(name, _)| *name == document) || replaced.contains(&document)
    }

    /// Returns the documents that the conversion made, and those in a GGUF file that has no tokenizer next to it.
    pub(crate) fn made_documents(&self) -> impl Iterator<Item = (&str, Vec<u8>)> {
        let made = self.document.iter().map(|(name, text)| (*name, text.clone().into_bytes()));
        let of_keys = self.model.key_documents.iter().filter(|_| !open::files::has_tokenizer(self.misc));
        let of_tokenizer = self.tokenizer.iter().map(|(name, contents)| (*name, contents.clone()));
        made.chain(of_keys.map(|(name, contents)| (name.as_str(), contents.clone()))).chain(of_tokenizer)
    }

    /// Returns true if the output has a tokenizer.
    pub(crate) fn has_tokenizer(&self) -> bool {
        let is_tokenizer = |name: &str| matches!(name, "tokenizer.json" | "tokenizer.model");
        open::files::has_tokenizer(self.misc) || self.made_documents().any(|(name, _)| is_tokenizer(name))
    }

    /// Wraps an error with the path of the whole input.
    pub(crate) fn at_input(&self, error: impl Into<Error>) -> Error {
        error.into().in_file(self.model.root())
    }
}

/// Returns true if one of the inputs is a TorchScript archive.
pub(crate) fn has_torchscript(containers: &[Container]) -> bool {
    containers.iter().any(Container::is_torchscript)
}

/// Returns true if the central directory or header of each file of the checkpoint at `path` can be read.
fn can_open_checkpoint(path: &Path) -> bool {
    let sources = CheckpointSources::find(&[path.to_owned()], ShardPolicy::RequireAll);
    sources.is_ok_and(|sources| sources.open().is_ok())
}

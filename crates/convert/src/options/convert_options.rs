//! Options of a conversion that do not depend on the output format.

use std::path::{Path, PathBuf};

use byte_source::{Location, Observer, Stores};
use decoder::Overrides;
use open::files::ShardPolicy;
use open::{
    AllowedGlobals, Cast, CastFrom, CastOptions, CastToBlocks, CheckpointSum, Complete, Context,
    DEFAULT_MAX_EXPANSION, Dequantize, Merge, ModelPart, ModelPurpose, OpenOptions, Rename, RequireWhole,
    Selection, Step, Sum, TakePart, TargetLayout, Translate, WeightedPath, path_json, set_options, to_object,
};
use output::{Destination, IfExists};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tensor::Dtype;

use crate::options::output_format::outputs;
use crate::{ArchitectureChoice, InvalidOption, ModuleOptions, OutputFormat, Result, Target};

/// Options for converting a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
pub struct ConvertOptions {
    /// Checkpoint file, folder with a checkpoint, or all shards of a checkpoint.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub inputs: Vec<Location>,
    /// Stores of the adapters, of the summed checkpoints, and of the inputs of a batch, all of which are texts.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub stores: Stores,
    /// Where the output goes if its path is an address; see [`Destination`].
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub destination: Destination,
    /// Output format and its options. The extension of `output` does not change the format; see [`Target::from_path`].
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub target: Target,
    /// What to write to; the extension chooses what it becomes, and a folder, or a name with a slash at its end, safetensors
    ///
    /// With --to, a path without such an extension is the folder for a model's files; with --each, it is the folder for
    /// outputs [default: next to the checkpoint, or to its folder]
    #[serde(with = "path_json::option")]
    #[cfg_attr(feature = "cli", arg(short, long, value_name = "PATH", value_hint = clap::ValueHint::AnyPath))]
    pub output: Option<PathBuf>,
    /// Treatment of an existing file at the output path.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub if_exists: IfExists,
    /// Report what would be made, and write nothing
    #[cfg_attr(feature = "cli", arg(long))]
    pub dry_run: bool,
    /// Do not wait until the disk has the output: after a power failure it may be damaged
    #[cfg_attr(feature = "cli", arg(long))]
    pub no_sync: bool,
    /// Compute the digest of the tensors, for the summary and for carton.toml; reads them once more
    #[cfg_attr(feature = "cli", arg(long))]
    pub digest: bool,
    /// Write what the output was made from to FILE, so that `verify --statement` can repeat the conversion: an in-toto statement
    /// with SLSA provenance; with --each, FILE is the folder for the statements
    #[serde(with = "path_json::option")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath))]
    pub statement: Option<PathBuf>,
    /// Convert one shard of a checkpoint alone
    #[cfg_attr(feature = "cli", arg(long))]
    pub single: bool,
    /// Convert a model of which tensors are missing, or that has others than its config.json says
    #[cfg_attr(feature = "cli", arg(long))]
    pub incomplete: bool,
    /// Convert a file that could run code, such as os.system, or whose TorchScript code reads or writes files; nothing is
    /// executed
    #[cfg_attr(feature = "cli", arg(long))]
    pub allow_dangerous: bool,
    /// Reject a file that names an unknown global or TorchScript operator, or uses a global in a way that nobody has judged
    #[cfg_attr(feature = "cli", arg(long, conflicts_with = "allow_dangerous"))]
    pub deny_unknown: bool,
    /// Hyperparameters of a language model that are missing from its documents.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub overrides: Overrides,
    /// Selection of tensors, and of the prefix to remove from their names.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub selection: Selection,
    /// Replace each match of a regular expression in the names, with $1 or ${1} for its groups; repeatable, in this
    /// order
    #[serde(rename = "rename")]
    #[cfg_attr(feature = "cli", arg(long = "rename", value_name = "REGEX=TO"))]
    pub renames: Vec<Rename>,
    /// Compute the numbers of quantized weights (FP8, MXFP4, GPTQ, AWQ and others)
    ///
    /// They are those of the weights' library, in the dtype of config.json or of --dtype; what describes the quantization is
    /// dropped
    #[cfg_attr(feature = "cli", arg(long))]
    pub dequantize: bool,
    /// Take one part of a model of several, as a model of its own: its tensors, names and config.json
    #[cfg_attr(feature = "cli", arg(long, value_name = "PART"))]
    pub part: Option<ModelPart>,
    /// Take the tensors that the model lacks from BASE, which it was trained from
    ///
    /// BASE has the same config.json and shapes, and some tensors that are equal bit for bit. Its layout and shards may be others
    #[serde(with = "path_json::option")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BASE", conflicts_with = "part", value_hint = clap::ValueHint::AnyPath))]
    pub complete_from: Option<PathBuf>,
    /// Checkpoints to sum with the selected and renamed tensors.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub sum: CheckpointSum,
    /// Merge an adapter of peft: the folder that peft saved, or the file of the tensors in it; `=WEIGHT` scales its changes;
    /// repeatable, in this order
    #[serde(rename = "merge")]
    #[cfg_attr(feature = "cli", arg(long = "merge", value_name = "ADAPTER[=WEIGHT]", value_hint = clap::ValueHint::AnyPath))]
    pub adapters: Vec<WeightedPath>,
    /// Casts of the selected tensors to other dtypes.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub casts: CastOptions,
    /// Write an output of up to N times the input, whose tensors are views that repeat bytes; 64 MiB more than the input are
    /// always written
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = DEFAULT_MAX_EXPANSION, value_parser = clap::value_parser!(u64).range(1..)))]
    pub max_expansion: u64,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            stores: Stores::default(),
            destination: Destination::default(),
            target: Target::default(),
            output: None,
            if_exists: IfExists::default(),
            dry_run: false,
            no_sync: false,
            digest: false,
            statement: None,
            single: false,
            incomplete: false,
            allow_dangerous: false,
            deny_unknown: false,
            overrides: Overrides::default(),
            selection: Selection::default(),
            renames: Vec::new(),
            dequantize: false,
            part: None,
            complete_from: None,
            sum: CheckpointSum::default(),
            adapters: Vec::new(),
            casts: CastOptions::default(),
            max_expansion: DEFAULT_MAX_EXPANSION,
        }
    }
}

impl ConvertOptions {
    /// Creates options that convert the checkpoint at `input` into a carton next to it.
    pub fn new(input: impl Into<Location>) -> Self {
        Self::from_inputs([input])
    }

    /// Creates options that convert the checkpoint in the files `inputs` into a carton next to it.
    pub fn from_inputs<L: Into<Location>>(inputs: impl IntoIterator<Item = L>) -> Self {
        Self { inputs: inputs.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Creates options from JSON, by the names of the command line, such as `max_shard_size`. The output format is that of `to`,
    /// else that of the extension of `output`, else the first one that has the options.
    ///
    /// # Errors
    /// When an option is unknown, has a wrong value, or is that of another output.
    pub fn from_json(mut given: Map<String, Json>) -> Result<Self, InvalidOption> {
        #[derive(Default, Serialize, Deserialize)]
        #[serde(default)]
        struct Choice {
            to: Option<&'static OutputFormat>,
            #[serde(with = "path_json::option")]
            output: Option<PathBuf>,
            names: Option<TargetLayout>,
            part: Option<ModelPart>,
            #[serde(with = "path_json::option")]
            complete_from: Option<PathBuf>,
        }
        let chosen = ["to", "output", "names", "part", "complete_from"].into_iter();
        let chosen = chosen.filter_map(|name| Some((name.to_owned(), given.get(name)?.clone()))).collect();
        let Choice { to, output, names: layout, part, complete_from } =
            set_options(&Choice::default(), chosen)?;
        given.remove("to");
        let is_given = |value: &Json| match value {
            Json::Null | Json::Bool(false) => false,
            Json::Array(list) => !list.is_empty(),
            _ => true,
        };
        // A flag that is off says nothing, also if only another output has it.
        let outputs: Vec<_> = outputs().map(|format| to_object(&format.target())).collect();
        let is_known =
            |name: &str| outputs.iter().any(|options| options.contains_key(&name.replace('-', "_")));
        given.retain(|name, value| is_given(value) || !is_known(name));
        let names: Vec<String> = given.keys().map(|name| name.replace('-', "_")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let makes_folder = part.is_some() || complete_from.is_some();
        let target = Target::choose(to, output.as_deref(), &names, layout, makes_folder)?;
        let options = set_options(&Self { target: target.clone(), ..Self::default() }, given)?;
        Ok(Self { target: options.target.assumed_as(&target), ..options })
    }

    /// Returns the treatment of an input that is a single shard.
    pub fn shards(&self) -> ShardPolicy {
        ShardPolicy::from_single(self.single)
    }

    /// Returns the globals that a pickle may name.
    pub fn globals(&self) -> AllowedGlobals {
        match self {
            Self { allow_dangerous: true, .. } => AllowedGlobals::All,
            Self { deny_unknown: true, .. } => AllowedGlobals::Known,
            _ => AllowedGlobals::NotDangerous,
        }
    }

    /// Returns where an adapter or a summed checkpoint is.
    ///
    /// # Errors
    /// When it is at an address that cannot be opened.
    pub(crate) fn locate(&self, path: &Path) -> Result<Location> {
        self.stores.locate(path).map_err(|error| error.in_file(&output::shown_path(path)))
    }

    /// Returns the options for opening the input.
    pub fn open_options(&self) -> OpenOptions {
        let mut options = OpenOptions::reading(self.inputs.clone(), self.shards());
        options.globals = self.globals();
        options.dequantize = self.dequantize;
        options.origins = self.dry_run;
        options.documents = true;
        options
    }

    /// Returns what the steps of a conversion need besides the model.
    pub fn context<'c>(&'c self, observer: &'c dyn Observer) -> Context<'c> {
        let mut context = Context::new(observer);
        context.overrides = self.overrides;
        context.stores = Some(&self.stores);
        context.shards = self.shards();
        context.globals = self.globals();
        context
    }

    /// Returns the steps of a conversion, in their order.
    pub fn steps(&self) -> Vec<Box<dyn Step>> {
        let mut steps = self.naming_steps(false);
        let makes_model =
            |options: ModuleOptions<'_>| options.model.architecture != ArchitectureChoice::Weights;
        let format = self.target.output();
        if format.is_for_llama_cpp() || format.module_options().is_some_and(makes_model) {
            steps.push(Box::new(Translate::from_gguf()));
        }
        if self.part.is_some() {
            steps.push(Box::new(TakePart));
        }
        steps.extend(self.complete_from.clone().map(|base| Box::new(Complete::new(base)) as Box<dyn Step>));
        steps.extend(self.required_whole().map(|step| Box::new(step) as Box<dyn Step>));
        if !self.sum.is_empty() {
            steps.push(Box::new(Sum::new(self.sum.clone(), self.naming_steps(true))));
        }
        if !self.adapters.is_empty() {
            steps.push(Box::new(Merge(self.adapters.clone())));
        }
        if let Some(layout) = format.requested_layout() {
            let mut translate = Translate::new(layout);
            translate.writes_document = format.is_folder(self.output.as_deref(), false);
            steps.push(Box::new(translate));
        }
        if format.is_for_llama_cpp() {
            steps.push(Box::new(Translate::from_others(TargetLayout::HuggingFace)));
        }
        let casts = self.own_casts();
        if self.quantizes() {
            steps.push(Box::new(CastToBlocks::new(&casts, self.named_architecture())));
        } else if !casts.is_empty() {
            steps.push(Box::new(casts));
        }
        steps
    }

    /// Returns true if the output is the module of a decoder whose matrices are quantized.
    pub(crate) fn quantizes(&self) -> bool {
        let output = self.target.output();
        let has_model =
            |options: ModuleOptions<'_>| options.model.architecture != ArchitectureChoice::Weights;
        self.casts.quantizes() && output.module_options().is_some_and(has_model)
    }

    /// Returns true if the casts change floating-point tensors, or those of a dtype.
    pub(crate) fn has_casts(&self) -> bool {
        self.quantizes() || !self.casts.all().is_empty()
    }

    fn named_architecture(&self) -> Option<String> {
        match &self.target.output().module_options()?.model.architecture {
            ArchitectureChoice::Named(name) => Some(name.clone()),
            _ => None,
        }
    }

    /// Returns the step that requires a whole model: for other names, after a completion, and for a model that runs here or in llama.cpp, unless tensors are selected.
    fn required_whole(&self) -> Option<RequireWhole> {
        let Selection { key, include, exclude, .. } = &self.selection;
        if self.single || key.is_some() || !include.is_empty() || !exclude.is_empty() {
            return None;
        }
        let format = self.target.output();
        // A model gets Meta's names only if all its weights are there.
        let is_renamed = format.requested_layout().is_some_and(|layout| layout != TargetLayout::Meta);
        let has_model =
            |options: ModuleOptions<'_>| options.model.architecture != ArchitectureChoice::Weights;
        let runs = format.module_options().is_some_and(has_model);
        let purpose = if runs {
            ModelPurpose::Decoder
        } else if format.is_for_llama_cpp() {
            ModelPurpose::LlamaCpp
        } else {
            ModelPurpose::Loader
        };
        let is_needed = purpose != ModelPurpose::Loader || is_renamed || self.complete_from.is_some();
        is_needed.then(|| RequireWhole::new(self.incomplete, purpose))
    }

    /// Returns the casts, without the dtype if the output chooses those of its tensors, and those before a quantization.
    pub(crate) fn own_casts(&self) -> CastOptions {
        if self.quantizes() {
            return self.casts.before_blocks();
        }
        let is_chosen = self.target.output().is_for_llama_cpp();
        CastOptions { dtype: self.casts.dtype.filter(|_| !is_chosen), ..self.casts.clone() }
    }

    /// Returns the steps for the input and for each checkpoint that is summed with it. With `if_quantized`, an input whose
    /// weights are not quantized is taken as it is.
    fn naming_steps(&self, if_quantized: bool) -> Vec<Box<dyn Step>> {
        let selection = self.selection.clone();
        let mut steps = if self.dequantize {
            // Blocks are made of numbers that were not rounded.
            let exact = self.target.output().is_for_llama_cpp();
            let exact = exact.then_some(Cast { from: CastFrom::FloatingPoint, to: Dtype::Float32 });
            let casts = self.own_casts().all().into_iter().chain(exact).collect();
            Dequantize::new(casts, if_quantized).with_selection(selection)
        } else {
            vec![Box::new(selection) as Box<dyn Step>]
        };
        if !self.renames.is_empty() {
            steps.push(Box::new(self.renames.clone()));
        }
        steps
    }

    /// Returns the paths of the adapters, and of the summed and completing checkpoints.
    pub fn other_paths(&self) -> impl Iterator<Item = &Path> {
        self.adapters.iter().map(|adapter| adapter.path.as_path()).chain(self.other_checkpoints())
    }

    /// Returns the paths of the summed and completing checkpoints.
    pub(crate) fn other_checkpoints(&self) -> impl Iterator<Item = &Path> {
        self.sum.paths().chain(self.complete_from.as_deref())
    }

    /// Sets the output path, and infers the output format from its extension.
    ///
    /// # Errors
    /// When the extension belongs to a format that this crate does not write.
    pub fn with_output(self, output: impl Into<PathBuf>) -> Result<Self, InvalidOption> {
        let output = output.into();
        Ok(Self { target: Target::from_path(&output)?, output: Some(output), ..self })
    }
}

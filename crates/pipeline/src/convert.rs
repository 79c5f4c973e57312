//! A checkpoint becomes a carton.

use std::path::{Path, PathBuf};
use std::time::Instant;

use carton_format::{Dimension, SHORT_DESCRIPTION_MAX};
use mapped::hex;
use serde::Serialize;
use sources::Sources;
use store::{IfExists, file_name, folder};
use torch_import::{Checkpoint, Container, Format, Omission, Risk};
use torchscript::{Converted, Kind};

use crate::back::carton::{self, Layout};
use crate::{
    Error, InvalidOption, ModelOptions, Note, Observer, Result, Selection, Totals, model, select, values,
};

/// Version of the members of [`ConvertReport`].
const SCHEMA_VERSION: u32 = 1;
/// Stems, and beginnings of stems, that do not name a model: the name of the folder is better.
const GENERIC: &[&str] = &["last", "best"];
const GENERIC_STARTS: &[&str] = &["consolidated", "model", "pytorch_model"];
/// What a checkpoint's name may end in. Other endings, as of `llama-3.1`, belong to the name.
const EXTENSIONS: &[&str] =
    &["pth", "pt", "bin", "ckpt", "pkl", "pickle", "th", "tar", "model", "safetensors", "torch", "zip"];

/// What to convert, and into what.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// A checkpoint, a folder that holds one, or all shards of one.
    pub inputs: Vec<PathBuf>,
    /// Where to write the carton; `None` for [`default_output`].
    pub output: Option<PathBuf>,
    /// What happens to a file that exists at the output.
    pub if_exists: IfExists,
    /// Whether a shard is converted alone.
    pub single: bool,
    /// Fields of carton.toml.
    pub fields: Fields,
    /// A TOML file with more fields of carton.toml.
    pub config: Option<PathBuf>,
    /// Files to keep in `misc/`, besides those next to the checkpoint.
    pub misc: Vec<PathBuf>,
    /// Whether the values that are not tensors are kept in `misc/checkpoint.json`.
    pub keep_values: bool,
    /// The PyTorch that the carton requires.
    pub torch: Torch,
    /// Which globals a pickle may name.
    pub globals: AllowedGlobals,
    /// What the module is.
    pub model: ModelOptions,
    /// Which tensors, under which names.
    pub selection: Selection,
    /// Whether to stop before anything is written.
    pub dry_run: bool,
}

impl ConvertOptions {
    /// Converts the checkpoint at `input`.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self {
            inputs: vec![input.into()],
            output: None,
            if_exists: IfExists::Replace,
            single: false,
            fields: Fields::default(),
            config: None,
            misc: Vec::new(),
            keep_values: true,
            torch: Torch::default(),
            globals: AllowedGlobals::default(),
            model: ModelOptions::default(),
            selection: Selection::default(),
            dry_run: false,
        }
    }
}

/// Fields of carton.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// The model's name; `None` for the stem of the file, or the name of the folder.
    pub name: Option<String>,
    /// Markdown of any length.
    pub description: Option<String>,
    /// At most 100 characters.
    pub short_description: Option<String>,
    /// An SPDX expression or free text.
    pub license: Option<String>,
    /// URL of the repository that packs the model.
    pub repository: Option<String>,
    /// URL of the model's home page.
    pub homepage: Option<String>,
}

/// The PyTorch that a carton requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Torch {
    /// 2.0, which Carton's runner has.
    #[default]
    Carton,
    /// 2.15 or newer, which loads every dtype.
    Newest,
}

impl Torch {
    /// The version that `carton.toml` requires.
    pub fn required_version(self) -> &'static str {
        match self {
            Self::Carton => "=2.0",
            Self::Newest => ">=2.15",
        }
    }
}

/// Which globals a pickle may name. None of them is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowedGlobals {
    /// Only those that this crate knows.
    Known,
    /// All but those that can run code.
    #[default]
    NotDangerous,
    /// All.
    All,
}

/// What was made.
#[derive(Clone, Debug, Serialize)]
pub struct ConvertReport {
    /// Version of these members.
    pub schema_version: u32,
    /// The input as it was given; for several shards, their folder.
    pub file: String,
    /// The carton.
    pub output: String,
    /// Whether the carton was written; not after a dry run.
    pub written: bool,
    /// Bytes of the carton.
    pub nbytes: u64,
    /// The SHA-256 of MANIFEST, which identifies the model; `None` after a dry run.
    pub manifest_sha256: Option<String>,
    /// What the module is: `weights`, or the name of an architecture.
    pub module: String,
    /// Why it is not a model that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_weights: Option<String>,
    /// What the module takes.
    pub inputs: Vec<PortReport>,
    /// What it returns.
    pub outputs: Vec<PortReport>,
    /// How many tensors it holds.
    pub tensors: usize,
    /// Sums over the tensors.
    #[serde(flatten)]
    pub totals: Totals,
    /// The names of the files in `misc/`.
    pub misc: Vec<String>,
    /// Whether one of them is a tokenizer.
    pub has_tokenizer: bool,
    /// What the files hold that is neither a tensor nor a value of the checkpoint, at most 10,000 of each file.
    pub left_out: Vec<Omission>,
    /// How many there are.
    pub left_out_count: usize,
    /// What a person should know.
    pub notes: Vec<Note>,
    /// How long it took.
    pub seconds: f64,
}

/// An input or output of the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// Its dtype.
    pub dtype: &'static str,
    /// Its dimensions: numbers, or symbols for any size.
    pub shape: Vec<Dimension>,
    /// Whether it may be omitted.
    pub optional: bool,
}

impl ConvertReport {
    /// Whether the module is a model that runs.
    pub fn is_model(&self) -> bool {
        self.module != Kind::Weights.to_string()
    }
}

/// Converts a checkpoint into a carton.
///
/// # Errors
/// When the inputs cannot be read, are not one checkpoint, or are damaged; when an option does not fit them; when the
/// output cannot be written; or when `observer` stops the work. No output is left then.
pub fn convert(options: &ConvertOptions, observer: &dyn Observer) -> Result<ConvertReport> {
    convert_into(options, true, observer)
}

/// The same. Without `check_folder`, a dry run does not need the folder of the output, which would be created.
pub(crate) fn convert_into(
    options: &ConvertOptions,
    check_folder: bool,
    observer: &dyn Observer,
) -> Result<ConvertReport> {
    let start = Instant::now();
    check(options)?;
    let sources = Sources::find(&options.inputs, options.single)?;
    let containers = sources.open()?;
    let file = sources.path.as_path();
    let target = match &options.output {
        Some(output) => output.clone(),
        None => output_of(options, &sources),
    };
    let (misc, left_out) = carton::misc(&options.misc, file)?;
    let inputs: Vec<&Path> = sources.inputs().chain(misc.iter().map(|(_, path)| path.as_path())).collect();
    match store::check_target(&target, &inputs, options.if_exists) {
        Err(store::Error::NoFolder { .. }) if options.dry_run && !check_folder => {}
        checked => checked?,
    }

    let judge = |file: &Path, checkpoint: &Checkpoint| judge(options.globals, file, checkpoint);
    let (checkpoint, read_notes) =
        sources.read_checked::<Error>(&containers, &judge, &|| crate::check(observer))?;
    let mut notes: Vec<Note> = read_notes.into_iter().map(Note::Sources).collect();
    notes.extend(left_out);
    notes.extend(Note::left_out(&checkpoint.left_out));
    let omitted = checkpoint.left_out.clone();
    if containers.iter().any(|container| container.format() == Format::TorchScript) {
        notes.push(Note::CodeDropped);
    }
    notes.extend([Risk::Dangerous, Risk::Unknown].into_iter().filter_map(|risk| recorded(&checkpoint, risk)));
    let selected = select::select(&options.selection, &checkpoint).map_err(Error::at(sources.root()))?;
    notes.extend(selected.notes);
    let kept = if options.keep_values { values::document(&checkpoint, &selected.compounds) } else { None };
    let values = checkpoint.notable_values().count();
    // The objects of a pickle can take more memory than all that follows.
    drop(checkpoint);
    mapped::release_freed();
    if let Err(error) = torchscript::loads_in_2_0(&selected.tensors)
        && options.torch == Torch::Carton
    {
        return Err(Error::at(sources.root())(Error::Module(Box::new(error))));
    }
    let converted = model::convert(&options.model, options.single, &sources, &selected.tensors)?;
    mapped::release_freed();
    if options.model.require_model && converted.kind == Kind::Weights {
        return Err(Error::at(sources.root())(not_a_model(&converted)));
    }
    notes.extend(converted.notes.iter().cloned().map(Note::Module));
    if let Some(decoder::WhyWeights::ModelType { model_type }) = &converted.why {
        notes.push(Note::NoForward { model_type: model_type.clone() });
    }
    if kept.is_some() {
        notes.push(Note::ValuesKept { values });
    }
    let name = model_name(options, &sources);
    let layout = Layout::new(options, &name, &target, (&converted, &selected.tensors), &misc, kept)?;
    notes.extend(layout.notes.iter().cloned());
    for note in &notes {
        observer.note(note);
    }

    let carton = layout.carton(&converted);
    let (nbytes, manifest) = if options.dry_run {
        (carton.len().map_err(Error::Carton)?, None)
    } else {
        let check_inputs = || {
            containers.iter().try_for_each(Container::check_unchanged)?;
            layout.check_unchanged()
        };
        let written = carton::write_carton(&carton, &target, options.if_exists, &check_inputs, observer)?;
        (written.len, Some(hex(&written.manifest_hash)))
    };
    let misc_names = layout.misc_names();
    // carton.toml lists a million outputs, and so does the report.
    drop(carton);
    drop(layout);
    Ok(ConvertReport {
        schema_version: SCHEMA_VERSION,
        file: match options.inputs.as_slice() {
            [input] => input.display().to_string(),
            _ => sources.root().display().to_string(),
        },
        output: target.display().to_string(),
        written: !options.dry_run,
        nbytes,
        manifest_sha256: manifest,
        module: converted.kind.to_string(),
        why_weights: converted.why.as_ref().map(ToString::to_string),
        inputs: converted.inputs.iter().cloned().map(port).collect(),
        outputs: converted.outputs(&selected.tensors).map(port).collect(),
        tensors: selected.tensors.len(),
        totals: Totals::from_tensors(selected.tensors.iter().map(|(_, tensor)| tensor)),
        has_tokenizer: sources::has_tokenizer(&misc),
        misc: misc_names,
        left_out_count: omitted.count(),
        left_out: omitted.listed,
        notes,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Where a conversion writes when no output is given: next to the checkpoint, under its name. A folder is a checkpoint
/// too, so its carton is next to the folder.
///
/// # Errors
/// When the inputs are not one checkpoint.
pub fn default_output(options: &ConvertOptions) -> Result<PathBuf> {
    Ok(output_of(options, &Sources::find(&options.inputs, options.single)?))
}

fn output_of(options: &ConvertOptions, sources: &Sources) -> PathBuf {
    match given_folder(options) {
        Some((given, name)) => {
            let name = format!("{name}.carton");
            // `.` and `..` have no name that could be replaced: their parent is not what was meant.
            if given.file_name().is_some() { given.with_file_name(name) } else { given.join(name) }
        }
        // A name that is not UTF-8 is kept as it is, except for its last ending.
        None if sources.path.file_name().is_some_and(|name| name.to_str().is_none()) => {
            sources.path.with_extension("carton")
        }
        None => sources.path.with_file_name(format!("{}.carton", stem(&sources.path))),
    }
}

/// The folder that is the only input, and its name.
fn given_folder(options: &ConvertOptions) -> Option<(&Path, String)> {
    let [input] = options.inputs.as_slice() else { return None };
    let whole = if input.is_dir() { std::path::absolute(input).ok()? } else { return None };
    let whole = if input.file_name().is_some() { whole } else { whole.canonicalize().ok()? };
    Some((input, whole.file_name()?.to_string_lossy().into_owned()))
}

/// What can be checked before a file is opened.
fn check(options: &ConvertOptions) -> Result<()> {
    if options.inputs.is_empty() {
        return Err(InvalidOption::NoInput.into());
    }
    for input in &options.inputs {
        store::refuse_remote(input)?;
    }
    let fields = &options.fields;
    let found = fields.short_description.as_ref().map_or(0, |text| text.chars().count());
    if found > SHORT_DESCRIPTION_MAX {
        let text = carton_format::Error::ShortDescription { found }.to_string();
        return Err(InvalidOption::ShortDescription(text).into());
    }
    if fields.name.as_ref().is_some_and(String::is_empty) {
        return Err(InvalidOption::EmptyName.into());
    }
    Ok(())
}

/// Refuses a checkpoint that names globals which are not allowed. Nothing runs here, but a person who is sent such a
/// file should know.
fn judge(allowed: AllowedGlobals, file: &Path, checkpoint: &Checkpoint) -> Result<()> {
    let first = |risk: Risk| checkpoint.globals.iter().find(|global| global.risk() == risk);
    let dangerous = first(Risk::Dangerous).filter(|_| allowed != AllowedGlobals::All);
    if let Some(global) = dangerous {
        let error = Error::Dangerous { global: global.described(), offset: global.offset };
        return Err(Error::at(file)(error));
    }
    let unknown = first(Risk::Unknown).filter(|_| allowed == AllowedGlobals::Known);
    if let Some(global) = unknown {
        let error = Error::Unknown { global: global.to_string(), offset: global.offset };
        return Err(Error::at(file)(error));
    }
    Ok(())
}

fn recorded(checkpoint: &Checkpoint, risk: Risk) -> Option<Note> {
    let names = checkpoint.globals.iter().filter(|global| global.risk() == risk);
    let names: Vec<String> = names.map(ToString::to_string).collect();
    (!names.is_empty()).then_some(Note::Recorded { risk, names })
}

fn not_a_model(converted: &Converted) -> Error {
    let why = converted.why.as_ref().map(ToString::to_string);
    Error::NotAModel { why: why.unwrap_or_else(|| "weights were asked for".to_owned()) }
}

/// The file's name without the endings of checkpoints.
fn stem(path: &Path) -> String {
    let mut stem = file_name(path);
    while let Some((rest, extension)) = stem.rsplit_once('.') {
        if rest.is_empty() || !EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str()) {
            break;
        }
        stem = rest.to_owned();
    }
    stem
}

/// The given name, else the stem, else, for stems that do not name a model, the name of the folder.
fn model_name(options: &ConvertOptions, sources: &Sources) -> String {
    if let Some(name) = &options.fields.name {
        return name.clone();
    }
    if let Some((_, name)) = given_folder(options) {
        return name;
    }
    let stem = stem(&sources.path);
    let generic =
        GENERIC.contains(&stem.as_str()) || GENERIC_STARTS.iter().any(|start| stem.starts_with(start));
    let folder = std::path::absolute(folder(&sources.path)).ok();
    let folder = folder.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    match folder {
        Some(folder) if generic => folder,
        _ => stem,
    }
}

fn port(port: torchscript::Port) -> PortReport {
    let dimension = |dim: torchscript::Dim| match dim {
        torchscript::Dim::Symbol(symbol) => Dimension::Symbol(symbol),
        torchscript::Dim::Size(size) => Dimension::Size(size),
    };
    PortReport {
        name: port.name,
        dtype: port.dtype.name(),
        shape: port.shape.into_iter().map(dimension).collect(),
        optional: port.optional,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_keep_what_belongs_to_the_name() {
        let stem = |path: &str| super::stem(Path::new(path));
        assert_eq!(stem("a/consolidated.00.pth"), "consolidated.00");
        assert_eq!(stem("net.pth.tar"), "net");
        assert_eq!(stem("llama-3.1"), "llama-3.1");
        assert_eq!(stem(".pth"), ".pth");
    }
}

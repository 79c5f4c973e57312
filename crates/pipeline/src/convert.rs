//! A checkpoint becomes a carton, a safetensors file, or another checkpoint.

use std::path::{Path, PathBuf};
use std::time::Instant;

use carton_format::SHORT_DESCRIPTION_MAX;
use decoder::Document;
use serde::Serialize;
use sources::{Companion, Sources};
use store::IfExists;
use tensor::Tensor;
use torch_import::{Checkpoint, Compound, LeftOut, Omission, Risk};

use crate::back::carton::{self, CartonReport};
use crate::back::safetensors::{self, SafetensorsOptions, SafetensorsReport};
use crate::back::torch::{self, TorchReport};
use crate::back::triton::{self, TritonReport};
use crate::back::{Job, Values};
use crate::cast::Casts;
use crate::from_carton::Packed;
use crate::names::Named;
use crate::output::{self, Destination};
use crate::script::{self, Script};
use crate::{
    Cast, CastReport, Error, InvalidOption, ModelOptions, Names, Note, Observer, OutputKind, Rename, Result,
    Selection, Totals, cast, names, naming, rename, select, values,
};

/// Version of the members of [`ConvertReport`].
const SCHEMA_VERSION: u32 = 1;
/// What to convert, and into what.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct ConvertOptions {
    /// A checkpoint, a folder that holds one, or all shards of one.
    pub inputs: Vec<PathBuf>,
    /// The file or folder to write; `None` for [`default_output`](crate::default_output).
    pub output: Option<PathBuf>,
    /// The kind of output; `None` for that of the output's extension, and a carton if that says nothing.
    pub to: Option<OutputKind>,
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
    /// Whether a self test is stored: tokens, and the logits of a model with float32 or float64 weights.
    pub self_test: bool,
    /// The PyTorch that the carton requires.
    pub torch: Torch,
    /// Which globals a pickle may name.
    pub globals: AllowedGlobals,
    /// What the module is.
    pub model: ModelOptions,
    /// Which tensors, under which names.
    pub selection: Selection,
    /// What is replaced in the names of the selected tensors, one after the other.
    pub renames: Vec<Rename>,
    /// Whose names and documents a language model gets; `None` for those that it has.
    pub names: Option<Names>,
    /// Tensors of which dtypes become which.
    pub casts: Vec<Cast>,
    /// How safetensors files are written.
    pub safetensors: SafetensorsOptions,
    /// Whether to stop before anything is written.
    pub dry_run: bool,
}

impl ConvertOptions {
    /// Converts the checkpoint at `input`.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self {
            inputs: vec![input.into()],
            output: None,
            to: None,
            if_exists: IfExists::default(),
            single: false,
            fields: Fields::default(),
            config: None,
            misc: Vec::new(),
            keep_values: true,
            self_test: false,
            torch: Torch::default(),
            globals: AllowedGlobals::default(),
            model: ModelOptions::default(),
            selection: Selection::default(),
            renames: Vec::new(),
            names: None,
            casts: Vec::new(),
            safetensors: SafetensorsOptions::default(),
            dry_run: false,
        }
    }

    /// Whether the output has to be a folder, because it consists of several files.
    pub(crate) fn needs_folder(&self) -> bool {
        self.safetensors.max_shard_size.is_some() || self.names.is_some()
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
    /// The file or folder that was written.
    pub output: String,
    /// The kind of output.
    pub to: OutputKind,
    /// Whether it was written; not after a dry run.
    pub written: bool,
    /// Bytes of the output.
    pub nbytes: u64,
    /// What only this kind of output has.
    #[serde(flatten)]
    pub made: Made,
    /// How many tensors it holds.
    pub tensors: usize,
    /// Sums over the tensors.
    #[serde(flatten)]
    pub totals: Totals,
    /// What became of tensors that were cast, by dtype.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub casts: Vec<CastReport>,
    /// What the files hold that is neither a tensor nor a value of the checkpoint, at most 10,000 of each file.
    pub left_out: Vec<Omission>,
    /// How many there are.
    pub left_out_count: usize,
    /// What a person should know.
    pub notes: Vec<Note>,
    /// How long it took.
    pub seconds: f64,
}

/// What the report about one kind of output has.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Made {
    /// About a carton.
    Carton(CartonReport),
    /// About safetensors files.
    Safetensors(SafetensorsReport),
    /// About a checkpoint.
    Torch(TorchReport),
    /// About a model in a Triton repository.
    Triton(TritonReport),
}

impl ConvertReport {
    /// What the report about a carton has.
    pub fn carton(&self) -> Option<&CartonReport> {
        match &self.made {
            Made::Carton(report) => Some(report),
            Made::Safetensors(_) | Made::Torch(_) | Made::Triton(_) => None,
        }
    }
}

/// Converts a checkpoint.
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
    let destination = Destination::new(options)?;
    if let Some(packed) = Packed::open(options, destination.kind)? {
        return packed.convert(options, (&destination, start), observer);
    }
    let sources = Sources::find(&options.inputs, options.single)?;
    let containers = sources.open()?;
    let next_to_input = || naming::output_of(options, &sources, &destination);
    let target = destination.path.clone().unwrap_or_else(next_to_input);
    let (misc, left_out) = carton::misc(&options.misc, &sources.path)?;
    if !destination.is_folder {
        let inputs: Vec<&Path> =
            sources.inputs().chain(misc.iter().map(|(_, path)| path.as_path())).collect();
        match store::check_target(&target, &inputs, options.if_exists) {
            Err(store::Error::NoFolder { .. }) if options.dry_run && !check_folder => {}
            checked => checked?,
        }
    }

    let judge = |file: &Path, checkpoint: &Checkpoint| judge(options.globals, file, checkpoint);
    let (checkpoint, read_notes) =
        sources.read_checked::<Error>(&containers, &judge, &|| crate::check(observer))?;
    let script = script::convert(options, destination.kind, &containers)?;
    let omitted = match &script {
        Script::Module(_) => script::left_out(&checkpoint.left_out),
        _ => checkpoint.left_out.clone(),
    };
    let is_kept = |note: &sources::Note| matches!(script, Script::Module(_)) && script::is_kept(note);
    let read_notes = read_notes.into_iter().filter(|note| !is_kept(note));
    let mut notes: Vec<Note> = read_notes.map(Note::Sources).collect();
    notes.extend(left_out);
    notes.extend(Note::left_out(&omitted));
    if destination.kind == OutputKind::Carton && options.to.is_none() && output::has_other_extension(&target)
    {
        notes.push(Note::CartonByDefault { output: store::file_name(&target) });
    }
    notes.extend(script.note());
    notes.extend([Risk::Dangerous, Risk::Unknown].into_iter().filter_map(|risk| recorded(&checkpoint, risk)));
    let Taken { tensors, compounds, document, casts } = match &script {
        Script::Module(_) => Taken::all(&checkpoint),
        script => Taken::selected(options, &sources, &checkpoint, &mut notes)
            .map_err(|error| script.explained(error))?,
    };
    let script = script.into_module();
    let keeps_values = options.keep_values && destination.kind == OutputKind::Carton && script.is_none();
    let values = Values {
        count: checkpoint.notable_values().count(),
        document: keeps_values.then(|| values::document(&checkpoint, &compounds)).flatten(),
    };
    // The objects of a pickle can take more memory than all that follows.
    drop(checkpoint);
    mapped::release_freed();
    let job = Job {
        options,
        sources: &sources,
        containers: &containers,
        target: &target,
        tensors: &tensors,
        decoder: None,
        document: document.as_ref().map(|document| (document.file(), document.text(&tensors))),
        compounds: &compounds,
        values,
        casts: &casts,
        script,
        observer,
    };
    write(job, (&destination, start), &misc, omitted, notes)
}

/// Has the back end write its output, and reports what was made since `start`. `omitted` is what the files hold besides.
pub(crate) fn write(
    job: Job<'_>,
    (destination, start): (&Destination, Instant),
    misc: &[Companion],
    omitted: LeftOut,
    mut notes: Vec<Note>,
) -> Result<ConvertReport> {
    let Job { options, sources, target, tensors, casts, observer, .. } = job;
    let is_folder = destination.is_folder;
    let (nbytes, made) = match destination.kind {
        OutputKind::Carton => {
            let made = carton::write(job, misc, &mut notes)?;
            (made.nbytes, Made::Carton(made.report))
        }
        OutputKind::Safetensors => {
            let made = safetensors::write(&job, is_folder, &mut notes)?;
            (made.nbytes, Made::Safetensors(made.report))
        }
        OutputKind::Torch => {
            let made = torch::write(&job, is_folder, &mut notes)?;
            (made.nbytes, Made::Torch(made.report))
        }
        OutputKind::Triton => {
            let made = triton::write(&job, &mut notes)?;
            (made.nbytes, Made::Triton(made.report))
        }
    };
    for note in casts.notes() {
        observer.note(&note);
        notes.push(note);
    }
    Ok(ConvertReport {
        schema_version: SCHEMA_VERSION,
        file: match options.inputs.as_slice() {
            [input] => input.display().to_string(),
            _ => sources.root().display().to_string(),
        },
        output: target.display().to_string(),
        to: destination.kind,
        written: !options.dry_run,
        nbytes,
        made,
        tensors: tensors.len(),
        totals: Totals::from_tensors(tensors.iter().map(|(_, tensor)| tensor)),
        casts: casts.reports(),
        left_out_count: omitted.count(),
        left_out: omitted.listed,
        notes,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// What an output gets of a checkpoint.
struct Taken {
    tensors: Vec<(String, Tensor)>,
    compounds: Vec<(String, Compound)>,
    document: Option<Document>,
    casts: Casts,
}

impl Taken {
    /// Everything as it is, for a module that keeps its code.
    fn all(checkpoint: &Checkpoint) -> Self {
        let tensors = checkpoint.tensors().map(|(name, tensor)| (name.into_owned(), tensor.clone()));
        Self { tensors: tensors.collect(), compounds: Vec::new(), document: None, casts: Casts::default() }
    }

    /// What the options select, under the names and with the dtypes that they ask for.
    fn selected(
        options: &ConvertOptions,
        sources: &Sources,
        checkpoint: &Checkpoint,
        notes: &mut Vec<Note>,
    ) -> Result<Self> {
        let selected = select::select(&options.selection, checkpoint)
            .and_then(|selected| rename::apply(&options.renames, selected))
            .map_err(Error::at(sources.root()))?;
        notes.extend(selected.notes);
        let mut compounds = selected.compounds;
        let Named { tensors, document } = match options.names {
            Some(names) => names::apply(names, &options.model, sources, selected.tensors, notes)?,
            None => Named { tensors: selected.tensors, document: None },
        };
        let (tensors, casts) =
            cast::apply(&options.casts, tensors, &mut compounds, notes).map_err(Error::at(sources.root()))?;
        Ok(Self { tensors, compounds, document, casts })
    }
}

/// What can be checked before a file is opened.
fn check(options: &ConvertOptions) -> Result<()> {
    if options.inputs.is_empty() {
        return Err(InvalidOption::NoInput.into());
    }
    for input in &options.inputs {
        store::refuse_remote(input)?;
    }
    cast::check(&options.casts)?;
    let fields = &options.fields;
    let found = fields.short_description.as_ref().map_or(0, |text| text.chars().count());
    if found > SHORT_DESCRIPTION_MAX {
        let text = carton_format::Error::ShortDescription { found }.to_string();
        return Err(InvalidOption::ShortDescription(text).into());
    }
    rename::check(&options.renames)?;
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

//! A checkpoint becomes a carton, a safetensors file, or another checkpoint.

use std::path::Path;
use std::time::Instant;

use carton_format::SHORT_DESCRIPTION_MAX;
use decoder::Document;
use sources::Sources;
use tensor::Tensor;
use torch_import::{Checkpoint, Compound, Risk};

use crate::back::{Job, Values, carton};
use crate::cast::Casts;
use crate::destination::Destination;
use crate::from_carton::Packed;
use crate::names::Named;
use crate::script::{self, Script};
use crate::write::write;
use crate::{
    AllowedGlobals, ConvertOptions, ConvertReport, Error, InvalidOption, Note, Observer, OutputKind, Result,
    cast, names, naming, output, rename, select, values,
};

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
            .map_err(|error| script.explained(destination.kind, error))?,
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

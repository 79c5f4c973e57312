//! Conversion of a checkpoint into a carton, a safetensors file, or another checkpoint.

use std::path::Path;
use std::time::Instant;

use checkpoint_files::CheckpointSources;
use decoder::LayoutDocument;
use tensor::Tensors;
use torch_import::{Checkpoint, Risk};

use crate::back::NonTensorParts;
use crate::cast::Casts;
use crate::from_carton::CartonModel;
use crate::note_collector::NoteCollector;
use crate::script::{self, ScriptDecision};
use crate::target_layout::TranslatedTensors;
use crate::write::{SelectedTensors, write_output};
use crate::{
    AllowedGlobals, Conversion, ConvertOptions, ConvertReport, Error, Note, Observer, Result, cast, misc,
    output_kind, rename, select, target_layout, values,
};

/// Converts a checkpoint according to `options`.
///
/// # Errors
/// When the inputs cannot be read, are not one checkpoint, or are damaged; when an option does not fit them; when the output
/// cannot be written; or when `observer` stops the work. In each case no output is left.
pub fn convert(options: &ConvertOptions, observer: &dyn Observer) -> Result<ConvertReport> {
    Conversion::plan(options)?.run(observer)
}

impl Conversion {
    /// Reads the checkpoint, and writes the output unless the options ask for a dry run.
    ///
    /// # Errors
    /// When the inputs cannot be read or are damaged; when an option does not fit them; when the output cannot be written;
    /// or when `observer` stops the work. In each case no output is left.
    pub fn run(&self, observer: &dyn Observer) -> Result<ConvertReport> {
        let start = Instant::now();
        let Self { options, sources, .. } = self;
        let mut notes = NoteCollector::new(observer);
        if let Some(model) = CartonModel::open(options)? {
            return model.convert(self, notes, start, observer);
        }
        let containers = sources.open()?;
        let format = options.target.format();
        let (misc, left_out) = misc::find_misc_files(format.misc(), sources)?;
        if !self.is_folder {
            self.check_target(misc.iter().map(|(_, path)| path.as_path()))?;
        }

        let judge = |file: &Path, checkpoint: &Checkpoint| check_globals(options.globals, file, checkpoint);
        let (checkpoint, read_notes) = sources.read_with_observer::<Error>(&containers, &judge, observer)?;
        let script = script::decide_on_code(options, &containers)?;
        let keeps_code = matches!(script, ScriptDecision::Module(_));
        let omitted = if keeps_code {
            script::omissions_with_code(&checkpoint.left_out)
        } else {
            checkpoint.left_out.clone()
        };
        let read_notes =
            read_notes.into_iter().filter(|note| !(keeps_code && script::is_constants_note(note)));
        notes.extend(read_notes.map(Note::Sources));
        notes.extend(left_out);
        notes.extend(Note::omission_notes(&omitted));
        if options.target.as_carton().is_some_and(|carton| carton.assumed)
            && output_kind::has_unknown_extension(&self.output)
        {
            notes.push(Note::CartonByDefault { output: output::file_name(&self.output) });
        }
        notes.extend(script.note());
        let risks = [Risk::Dangerous, Risk::Unknown];
        notes.extend(risks.into_iter().filter_map(|risk| recorded_globals_note(&checkpoint, risk)));
        let PreparedTensors { tensors, document, casts } = if keeps_code {
            PreparedTensors::all(&checkpoint)
        } else {
            PreparedTensors::new(options, sources, &checkpoint, &mut notes)
                .map_err(|error| script.explain_no_tensors(options.target.kind(), error))?
        };
        let script = script.into_module();
        let keeps_values = options.target.as_carton().is_some_and(|carton| carton.keep_values) && !keeps_code;
        let kept = NonTensorParts {
            script,
            values: keeps_values.then(|| values::document(&checkpoint, &tensors)).flatten(),
        };
        let values = checkpoint.notable_values().count();
        // Frees the objects of the pickle, which can take more memory than all following steps.
        drop(checkpoint);
        byte_source::report_memory_freed();
        let selected = SelectedTensors {
            containers: &containers,
            document: document.as_ref().map(|document| (document.file(), document.text(&tensors))),
            tensors: &tensors,
            decoder: None,
            values,
            misc: &misc,
            casts: &casts,
            omitted,
        };
        write_output(self, selected, kept, notes, start, observer)
    }

    /// Rejects an output that must not be written, such as one of the inputs or of the files in `misc`.
    fn check_target<'m>(&'m self, misc: impl Iterator<Item = &'m Path>) -> Result<()> {
        let inputs: Vec<&Path> = self.sources.inputs().chain(misc).collect();
        match output::check_target(&self.output, &inputs, self.options.if_exists) {
            Err(output::Error::NoFolder { .. }) if self.options.dry_run && !self.needs_folder => Ok(()),
            checked => Ok(checked?),
        }
    }
}

/// Tensors selected from a checkpoint, renamed and cast.
struct PreparedTensors {
    tensors: Tensors,
    document: Option<LayoutDocument>,
    casts: Casts,
}

impl PreparedTensors {
    /// Takes all tensors unchanged, for a module that keeps its code.
    fn all(checkpoint: &Checkpoint) -> Self {
        Self { tensors: checkpoint.to_tensors(), document: None, casts: Casts::default() }
    }

    /// Takes the tensors that the options select, with the names and dtypes that they ask for.
    fn new(
        options: &ConvertOptions,
        sources: &CheckpointSources,
        checkpoint: &Checkpoint,
        notes: &mut NoteCollector<'_>,
    ) -> Result<Self> {
        let selected = select::select(&options.selection, checkpoint)
            .and_then(|selected| rename::apply_renames(&options.renames, selected))
            .map_err(Error::at(sources.root()))?;
        notes.extend(selected.notes);
        let TranslatedTensors { tensors, document } = match options.target.format().requested_layout() {
            Some(names) => {
                target_layout::translate_layout(names, options.overrides, sources, selected.tensors, notes)?
            }
            None => TranslatedTensors { tensors: selected.tensors, document: None },
        };
        let (tensors, casts) =
            cast::apply_casts(&options.casts, tensors, notes).map_err(Error::at(sources.root()))?;
        Ok(Self { tensors, document, casts })
    }
}

/// Rejects a checkpoint that names globals which are not allowed. Nothing is executed here, but the user should know about
/// such a file.
fn check_globals(allowed: AllowedGlobals, file: &Path, checkpoint: &Checkpoint) -> Result<()> {
    let first = |risk: Risk| checkpoint.globals.iter().find(|global| global.risk() == risk);
    let dangerous = first(Risk::Dangerous).filter(|_| allowed != AllowedGlobals::All);
    if let Some(global) = dangerous {
        let error = Error::DangerousGlobal { global: global.name_with_alias(), offset: global.offset };
        return Err(Error::at(file)(error));
    }
    let unknown = first(Risk::Unknown).filter(|_| allowed == AllowedGlobals::Known);
    if let Some(global) = unknown {
        let error = Error::UnknownGlobal { global: global.to_string(), offset: global.offset };
        return Err(Error::at(file)(error));
    }
    Ok(())
}

fn recorded_globals_note(checkpoint: &Checkpoint, risk: Risk) -> Option<Note> {
    let names = checkpoint.globals.iter().filter(|global| global.risk() == risk);
    let names: Vec<String> = names.map(ToString::to_string).collect();
    (!names.is_empty()).then_some(Note::GlobalsRecorded { risk, names })
}

//! Conversion of a TorchScript archive that keeps its code.

use open::AllowedGlobals;
use open::files::FilesNote;
use torch_import::{Container, OmissionReason, Omissions, Risk};
use torchscript::{Module, OnInvalidInput, ScriptOptions, Uncallable, WrapOutcome};

use crate::back::{Output, has_torchscript};
use crate::error::at;
use crate::{
    ArchitectureChoice, ConvertOptions, Error, InvalidOption, ModelChange, ModelOptions, Note, Problem,
    Result,
};

/// Decision on the code of the input.
pub(crate) enum ScriptDecision {
    Module(Box<Module>),
    /// The code is not kept; has the reason if the conversion could have kept the code.
    Dropped(Option<Uncallable>),
    /// The input has no code.
    None,
}

impl ScriptDecision {
    /// Returns a note if the code is not kept.
    pub(crate) fn note(&self) -> Option<Note> {
        match self {
            Self::Dropped(why) => Some(Note::CodeDropped { why: why.clone() }),
            Self::Module(_) | Self::None => None,
        }
    }

    pub(crate) fn is_kept(&self) -> bool {
        matches!(self, Self::Module(_))
    }

    /// Extends the error that there are no tensors by the reason for which the code is not kept.
    pub(crate) fn explain_no_tensors(&self, output: &dyn Output, error: Error) -> Error {
        match (self, error) {
            (Self::Dropped(why), error)
                if matches!(error.detail(), Some(open::Problem::NoTensors { .. }))
                    && (output.needs_forward() || why.is_some()) =>
            {
                let path = error.location().path.unwrap_or_default();
                at(&path)(match why {
                    Some(why) if !output.needs_forward() => Problem::NotScript { why: why.clone() },
                    why => Problem::ScriptToServe { why: why.clone() },
                })
            }
            (_, error) => error,
        }
    }

    pub(crate) fn into_module(self) -> Option<Box<Module>> {
        match self {
            Self::Module(converted) => Some(converted),
            Self::Dropped(_) | Self::None => None,
        }
    }
}

/// Returns the omissions of a module that keeps its code: only the code for mobile devices.
pub(crate) fn omissions_with_code(all: &Omissions) -> Omissions {
    let is_mobile = |reason| reason == OmissionReason::MobileCode;
    Omissions {
        listed: all.listed.iter().filter(|omission| is_mobile(omission.reason)).cloned().collect(),
        totals: all.totals.iter().filter(|total| is_mobile(total.reason)).copied().collect(),
    }
}

/// Returns true if the note is on constants, which a module with its code keeps.
pub(crate) fn is_constants_note(note: &open::Note) -> bool {
    matches!(
        note,
        open::Note::Sources(FilesNote::Container {
            note: torch_import::CheckpointNote::Constants { .. },
            ..
        })
    )
}

/// Checks the options before any file is opened.
///
/// # Errors
/// When the module is to be kept as it is, and other options are about calling it.
pub(crate) fn check_options(options: &ScriptOptions) -> Result<(), open::InvalidOption> {
    let called = [
        ("input", options.inputs.is_empty()),
        ("output_type", options.outputs.is_empty()),
        ("output_names", options.output_names.is_empty()),
    ];
    match called.into_iter().find(|(_, is_empty)| options.keep_unchanged && !is_empty) {
        Some((second, _)) => Err(open::InvalidOption::Exclusive { first: "no_wrap", second }),
        None => Ok(()),
    }
}

/// Decides whether the code of the input is kept, and converts its module if so. Only an output with a module keeps code.
pub(crate) fn decide_on_code(options: &ConvertOptions, containers: &[Container]) -> Result<ScriptDecision> {
    let module = options.target.output().module_options();
    let change = module.and_then(|module| tensor_change(options, module.model));
    let found = match (containers, module) {
        _ if !has_torchscript(containers) => ScriptDecision::None,
        ([container], Some(module)) if change.is_none() => {
            match convert_script(container, module.script, module.errors)? {
                WrapOutcome::Module(converted) => {
                    check_operators(options.globals(), container)?;
                    ScriptDecision::Module(Box::new(converted))
                }
                WrapOutcome::Uncallable(why) => ScriptDecision::Dropped(Some(why)),
            }
        }
        _ => ScriptDecision::Dropped(None),
    };
    match found {
        ScriptDecision::Module(_) => {}
        _ if module.is_none_or(|module| *module.script == ScriptOptions::default()) => {}
        ScriptDecision::Dropped(Some(why)) => return Err(Problem::NotScript { why }.into()),
        ScriptDecision::Dropped(None) | ScriptDecision::None => {
            return Err(InvalidOption::NoScript { change }.into());
        }
    }
    Ok(found)
}

/// Converts an archive into the module of a carton, which reacts to invalid inputs as given, or without a reaction into a
/// module for Triton.
pub(crate) fn convert_script(
    container: &Container,
    options: &ScriptOptions,
    errors: Option<OnInvalidInput>,
) -> Result<WrapOutcome> {
    let at = at::<Error>(container.path());
    let records = match container.script_records() {
        Ok(records) => records,
        Err(error) => return Err(at(error)),
    };
    let whole = container.file_storage();
    let converted = match errors {
        Some(errors) => torchscript::wrap_script(records, &whole, options, errors),
        None => torchscript::wrap_positional_script(records, &whole, options),
    };
    converted.map_err(at)
}

/// Rejects code with operators or classes that the options do not allow.
fn check_operators(allowed: AllowedGlobals, container: &Container) -> Result<()> {
    let refused = match allowed {
        AllowedGlobals::All => return Ok(()),
        AllowedGlobals::NotDangerous => [Risk::Dangerous].as_slice(),
        AllowedGlobals::Known => &[Risk::Dangerous, Risk::Unreviewed, Risk::Unknown],
    };
    let at = at::<Error>(container.path());
    let used = match container.globals_in_code() {
        Ok(used) => used,
        Err(error) => return Err(at(error)),
    };
    match used.iter().find(|(_, global)| refused.contains(&global.risk())) {
        Some((record, global)) => {
            let (record, operator) = (record.clone(), global.to_string());
            let is_dangerous = global.risk() == Risk::Dangerous;
            Err(at(Problem::DisallowedOperator { record, operator, is_dangerous }.into()))
        }
        None => Ok(()),
    }
}

/// Returns the first change that the options make to the tensors, which the code does not allow.
fn tensor_change(options: &ConvertOptions, model: &ModelOptions) -> Option<ModelChange> {
    let changes = [
        (ModelChange::Model, model.architecture != ArchitectureChoice::Auto),
        (ModelChange::Selection, !options.selection.is_empty()),
        (ModelChange::Renames, !options.renames.is_empty()),
        (ModelChange::Casts, !options.casts.is_empty()),
        (ModelChange::Sum, !options.sum.is_empty()),
        (ModelChange::Merge, !options.adapters.is_empty()),
        (ModelChange::Dequantize, options.dequantize),
    ];
    changes.into_iter().find(|(_, is_asked)| *is_asked).map(|(change, _)| change)
}

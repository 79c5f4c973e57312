//! Conversion of a carton, or of the archive taken from one. The model is recognised by its code.

use std::path::Path;
use std::sync::Arc;

use carton_format::MODEL_PT;
use decoder::Overrides;
use open::{Model, open_model};
use tensor::Tensors;
use torch_import::{Checkpoint, Container};
use torchscript::{Module, Recognised, RecognisedModel};

use crate::error::at;
use crate::input::script::{self, ScriptDecision};
use crate::{
    ConvertOptions, Error, InvalidOption, ModelChange, ModelOptions, PlannedConversion, Problem, Result,
};

/// Opens the model if the only input is a carton, packed or unpacked, or the archive of a carton, and the output can be written
/// from it; with its module, if that keeps code of its own. Returns `None` if the input is a checkpoint.
///
/// # Errors
/// When the carton cannot be read, or this program did not write its module.
pub(crate) fn open(conversion: &PlannedConversion) -> Result<Option<(Model, Option<Box<Module>>)>> {
    let options = &conversion.options;
    let output = options.target.output();
    let module = output.module_options().filter(|_| output.needs_forward());
    let ([location], Some(module)) = (options.inputs.as_slice(), module) else {
        return Ok(None);
    };
    let path = location.path();
    let change = first_change(options, module.model);
    let Some(input) = &conversion.carton else {
        return if location.is_local() { open_archive(conversion, path, change) } else { Ok(None) };
    };
    if let Some(change) = change {
        return Err(InvalidOption::AlreadyConverted { change }.into());
    }
    let container = open_model(&input.carton, &())?;
    match recognise(&container).map_err(Error::downcast) {
        Err(Ok(Problem::ForeignModule { record })) => {
            let module = script_model(options, &container, record).map_err(at(path))?;
            let checkpoint = Checkpoint::read(&container).map_err(at(path))?;
            Ok(Some((carton_model(conversion, container, checkpoint.to_tensors()), Some(module))))
        }
        Ok(found) => Ok(Some((decoder_model(conversion, container, *found), None))),
        Err(Ok(problem)) => Err(at(path)(problem)),
        Err(Err(error)) => Err(at(path)(error)),
    }
}

/// Opens the model in an archive that was part of a carton. Any other archive is treated as a checkpoint.
fn open_archive(
    conversion: &PlannedConversion,
    path: &Path,
    change: Option<ModelChange>,
) -> Result<Option<(Model, Option<Box<Module>>)>> {
    if !path.is_file() {
        return Ok(None);
    }
    // A file that cannot be opened is reported when it is read as a checkpoint.
    let Ok(container) = Container::open(path) else { return Ok(None) };
    if !container.is_torchscript() {
        return Ok(None);
    }
    match (recognise(&container), change) {
        (Ok(_), Some(change)) => Err(InvalidOption::AlreadyConverted { change }.into()),
        (Ok(model), None) => Ok(Some((decoder_model(conversion, container, *model), None))),
        (Err(error), None) if is_of_weights(&error) => Err(at(path)(error)),
        (Err(_), _) => Ok(None),
    }
}

/// Creates the model of a decoder that its code shows.
fn decoder_model(conversion: &PlannedConversion, container: Container, found: RecognisedModel) -> Model {
    let mut model = carton_model(conversion, container, found.tensors);
    model.decoder = Some(found.decoder);
    model
}

fn carton_model(conversion: &PlannedConversion, container: Container, tensors: Tensors) -> Model {
    let mut model = Model::new(Arc::clone(&conversion.sources), vec![container], Checkpoint::default());
    let names = tensors.names().map(|name| Some(name.to_owned())).collect();
    model.set_tensors(tensors, Some(names));
    model
}

/// Converts the module of a carton that was made from a TorchScript file. `record` has code that is not a decoder's.
fn script_model(options: &ConvertOptions, container: &Container, record: String) -> Result<Box<Module>> {
    let records = container.script_records()?;
    let original = torchscript::unwrap_script(&records)?;
    if original.is_none() {
        return Err(Problem::ForeignModule { record }.into());
    }
    match script::decide_on_code(options, std::slice::from_ref(container))? {
        ScriptDecision::Module(module) => Ok(module),
        ScriptDecision::Dropped(why) => Err(Problem::ScriptToServe { why }.into()),
        ScriptDecision::None => Err(Problem::ForeignModule { record }.into()),
    }
}

/// Returns true if the code of an archive is that of this program for weights or a decoder, which the tensors and the documents
/// describe as well.
pub(crate) fn is_code_of_tensors(container: &Container) -> bool {
    recognise(container).map_or_else(|error| is_of_weights(&error), |_| true)
}

fn is_of_weights(error: &Error) -> bool {
    matches!(error.detail(), Some(Problem::CartonOfWeights))
}

/// Recognises the model that the code of an archive runs.
fn recognise(container: &Container) -> Result<Box<RecognisedModel>> {
    let checkpoint = Checkpoint::read(container).map_err(|error| error.in_record(MODEL_PT))?;
    match torchscript::recognise(&container.records_besides_storages(), checkpoint.to_tensors()) {
        Recognised::Decoder(model) => Ok(model),
        Recognised::Weights { .. } => Err(Problem::CartonOfWeights.into()),
        Recognised::Other { record } => Err(Problem::ForeignModule { record }.into()),
    }
}

/// Returns the first change that the options would make to the tensors.
fn first_change(options: &ConvertOptions, model: &ModelOptions) -> Option<ModelChange> {
    let has_facts = *model != ModelOptions::default() || options.overrides != Overrides::default();
    let changes = [
        (ModelChange::Selection, !options.selection.is_empty()),
        (ModelChange::Renames, !options.renames.is_empty()),
        (ModelChange::Sum, !options.sum.is_empty()),
        (ModelChange::Merge, !options.adapters.is_empty()),
        (ModelChange::Dequantize, options.dequantize),
        (ModelChange::Model, has_facts),
    ];
    changes.into_iter().find(|(_, is_asked)| *is_asked).map(|(change, _)| change)
}

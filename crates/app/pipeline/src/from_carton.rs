//! Conversion of a carton, or of the archive taken from one. The model is recognised by its code.

use std::path::Path;
use std::time::Instant;

use carton_format::MODEL_PT;
use carton_reader::Carton;
use decoder::Overrides;
use torch_import::{Checkpoint, Container, ContainerFormat, Omissions};
use torchscript::{Module, Recognised, RecognisedModel};

use crate::back::NonTensorParts;
use crate::note_collector::NoteCollector;
use crate::script::{self, ScriptDecision};
use crate::write::{SelectedTensors, write_output};
use crate::{
    ConvertOptions, ConvertReport, Error, InvalidOption, ModelChange, ModelOptions, Observer, OutputKind,
    PlannedConversion, Result, Target, cast, input,
};

pub(crate) struct CartonModel {
    container: Container,
    model: FoundModel,
}

enum FoundModel {
    Decoder(Box<RecognisedModel>),
    /// Module with its own code, from a carton that was made from a TorchScript file.
    Script(Box<Module>, Checkpoint),
}

impl CartonModel {
    /// Opens the model if the only input is a carton, packed or unpacked, or the archive of a carton, and the output can be
    /// written from it. Returns `None` if the input is a checkpoint.
    ///
    /// # Errors
    /// When the carton cannot be read, or this program did not write its module.
    pub(crate) fn open(options: &ConvertOptions) -> Result<Option<Self>> {
        let ([path], Target::Triton(triton)) = (options.inputs.as_slice(), &options.target) else {
            return Ok(None);
        };
        let is_folder = input::is_unpacked_carton(path);
        if !(path.is_file() || is_folder) {
            return Ok(None);
        }
        let change = first_change(options, &triton.model);
        let named = is_folder || OutputKind::from_path(path) == Some(OutputKind::Carton);
        let at = |error| Error::at(path)(Error::ReadCarton(Box::new(error)));
        let carton = match Carton::open(path) {
            Ok(carton) => carton,
            Err(error) if named => return Err(at(error)),
            Err(_) => return Self::open_archive(path, change),
        };
        if let Some(change) = change {
            return Err(InvalidOption::AlreadyConverted { change }.into());
        }
        let container = carton.model(MODEL_PT).map_err(at)?;
        let model = match recognise(&container) {
            Err(Error::ForeignModule { record }) => script_model(options, &container, record),
            found => found.map(FoundModel::Decoder),
        };
        Ok(Some(Self { container, model: model.map_err(Error::at(path))? }))
    }

    /// Opens the model in an archive that was part of a carton. Any other archive is treated as a checkpoint.
    fn open_archive(path: &Path, change: Option<ModelChange>) -> Result<Option<Self>> {
        // A file that cannot be opened is reported when it is read as a checkpoint.
        let Ok(container) = Container::open(path) else { return Ok(None) };
        if container.format() != ContainerFormat::TorchScript {
            return Ok(None);
        }
        match (recognise(&container), change) {
            (Ok(_), Some(change)) => Err(InvalidOption::AlreadyConverted { change }.into()),
            (Ok(model), None) => Ok(Some(Self { container, model: FoundModel::Decoder(model) })),
            (Err(Error::CartonOfWeights), None) => Err(Error::at(path)(Error::CartonOfWeights)),
            (Err(_), _) => Ok(None),
        }
    }

    /// Converts the model into the output.
    ///
    /// # Errors
    /// Those of [`PlannedConversion::run`].
    pub(crate) fn convert(
        self,
        conversion: &PlannedConversion,
        mut notes: NoteCollector<'_>,
        start: Instant,
        observer: &dyn Observer,
    ) -> Result<ConvertReport> {
        let Self { container, model } = self;
        let (tensors, decoder, script) = match model {
            FoundModel::Decoder(model) => (model.tensors, Some(model.decoder), None),
            FoundModel::Script(module, checkpoint) => (checkpoint.to_tensors(), None, Some(module)),
        };
        let casts = &conversion.options.casts.all();
        let (tensors, casts) =
            cast::apply_casts(casts, tensors, &mut notes).map_err(Error::at(conversion.sources.root()))?;
        let selected = SelectedTensors {
            containers: std::slice::from_ref(&container),
            tensors: &tensors,
            decoder: decoder.as_ref(),
            document: None,
            values: 0,
            misc: &[],
            casts: &casts,
            adapters: None,
            sum: None,
            dequantized: Vec::new(),
            quantized: None,
            omitted: Omissions::default(),
            origins: tensors.names().map(|name| Some(name.to_owned())).collect(),
        };
        let kept = NonTensorParts { script, values: None };
        write_output(conversion, selected, kept, notes, start, observer)
    }
}

/// Converts the module of a carton that was made from a TorchScript file. `record` has code that is not a decoder's.
fn script_model(options: &ConvertOptions, container: &Container, record: String) -> Result<FoundModel> {
    let at = |reason| Error::Checkpoint(reason);
    let records = container.script_records().map_err(at)?;
    let original = torchscript::unwrap_script(&records).map_err(|reason| Error::Module(Box::new(reason)))?;
    if original.is_none() {
        return Err(Error::ForeignModule { record });
    }
    let checkpoint = Checkpoint::read(container).map_err(at)?;
    let decision = script::decide_on_code(options, std::slice::from_ref(container));
    // The caller adds the path of the carton.
    let decision = decision.map_err(|error| match error {
        Error::AtPath { reason, .. } => *reason,
        error => error,
    })?;
    match decision {
        ScriptDecision::Module(module) => Ok(FoundModel::Script(module, checkpoint)),
        ScriptDecision::Dropped(why) => Err(Error::ScriptToServe { why }),
        ScriptDecision::None => Err(Error::ForeignModule { record }),
    }
}

/// Recognises the model that the code of an archive runs.
fn recognise(container: &Container) -> Result<Box<RecognisedModel>> {
    let checkpoint = Checkpoint::read(container).map_err(|reason| {
        let (path, reason) = (MODEL_PT.to_owned(), Box::new(reason));
        Error::ReadCarton(Box::new(carton_reader::Error::Model { path, reason }))
    })?;
    match torchscript::recognise(&container.records_besides_storages(), checkpoint.to_tensors()) {
        Recognised::Decoder(model) => Ok(model),
        Recognised::Weights { .. } => Err(Error::CartonOfWeights),
        Recognised::Other { record } => Err(Error::ForeignModule { record }),
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

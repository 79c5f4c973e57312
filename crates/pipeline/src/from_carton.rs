//! A carton as the input of a conversion, or the archive that is in one: the model in it, recognised by its code.

use std::path::{Path, PathBuf};
use std::time::Instant;

use carton_format::MODEL_PT;
use carton_reader::Carton;
use decoder::Given;
use sources::Sources;
use tensor::Tensor;
use torch_import::{Checkpoint, Container, Format, LeftOut};
use torchscript::{Model, Recognised};

use crate::back::{Job, Values};
use crate::destination::Destination;
use crate::write::write;
use crate::{
    Architecture, ConvertOptions, ConvertReport, Error, InvalidOption, Observer, OutputKind, Result, Setting,
    cast, input, naming,
};

/// A model that is in a carton or in an archive.
pub(crate) struct Packed {
    sources: Sources,
    container: Container,
    model: Box<Model>,
}

impl Packed {
    /// The model of the only input, if that is a carton, packed or not, or the archive of one, and such an output can be made
    /// of it.
    ///
    /// # Errors
    /// When the carton cannot be read, or its module is not a model that this program wrote.
    pub(crate) fn open(options: &ConvertOptions, kind: OutputKind) -> Result<Option<Self>> {
        let [path] = options.inputs.as_slice() else { return Ok(None) };
        let is_folder = input::is_unpacked_carton(path);
        if kind != OutputKind::Triton || !(path.is_file() || is_folder) {
            return Ok(None);
        }
        let named = is_folder || OutputKind::from_path(path) == Some(OutputKind::Carton);
        let at = |error| Error::at(path)(Error::ReadCarton(Box::new(error)));
        let carton = match Carton::open(path) {
            Ok(carton) => carton,
            Err(error) if named => return Err(at(error)),
            Err(_) => return Self::archive(options, path),
        };
        if let Some(setting) = misplaced(options) {
            return Err(InvalidOption::Misplaced { setting }.into());
        }
        let container = carton.model(MODEL_PT).map_err(at)?;
        let model = recognise(&container).map_err(Error::at(path))?;
        Ok(Some(Self { sources: Sources::file(path), container, model }))
    }

    /// The model of the archive that was in a carton. Any other archive is a checkpoint.
    fn archive(options: &ConvertOptions, path: &Path) -> Result<Option<Self>> {
        // What cannot be opened is reported as a checkpoint.
        let Ok(container) = Container::open(path) else { return Ok(None) };
        if container.format() != Format::TorchScript {
            return Ok(None);
        }
        match (recognise(&container), misplaced(options)) {
            (Ok(_), Some(setting)) => Err(InvalidOption::Misplaced { setting }.into()),
            (Ok(model), None) => Ok(Some(Self { sources: Sources::file(path), container, model })),
            (Err(Error::PackedWeights), None) => Err(Error::at(path)(Error::PackedWeights)),
            (Err(_), _) => Ok(None),
        }
    }

    /// Converts the model.
    pub(crate) fn convert(
        self,
        options: &ConvertOptions,
        (destination, start): (&Destination, Instant),
        observer: &dyn Observer,
    ) -> Result<ConvertReport> {
        let Self { sources, container, model } = self;
        let next_to_input = || naming::output_of(options, &sources, destination);
        let target: PathBuf = destination.path.clone().unwrap_or_else(next_to_input);
        let mut notes = Vec::new();
        let (tensors, casts) = cast::apply(&options.casts, model.tensors, &mut Vec::new(), &mut notes)
            .map_err(Error::at(sources.root()))?;
        let job = Job {
            options,
            sources: &sources,
            containers: std::slice::from_ref(&container),
            target: &target,
            tensors: &tensors,
            decoder: Some(&model.decoder),
            document: None,
            compounds: &[],
            values: Values { count: 0, document: None },
            casts: &casts,
            script: None,
            observer,
        };
        write(job, (destination, start), &[], LeftOut::default(), notes)
    }
}

/// The model that an archive runs.
fn recognise(container: &Container) -> Result<Box<Model>> {
    let checkpoint = Checkpoint::read(container).map_err(|reason| {
        let (path, reason) = (MODEL_PT.to_owned(), Box::new(reason));
        Error::ReadCarton(Box::new(carton_reader::Error::Model { path, reason }))
    })?;
    let tensors: Vec<(String, Tensor)> =
        checkpoint.tensors().map(|(name, tensor)| (name.into_owned(), tensor.clone())).collect();
    match torchscript::recognise(&container.records_besides_storages(), tensors) {
        Recognised::Decoder(model) => Ok(model),
        Recognised::Weights { .. } => Err(Error::PackedWeights),
        Recognised::Other { record } => Err(Error::OtherModule { record }),
    }
}

/// The first setting that says something about the tensors of a checkpoint.
fn misplaced(options: &ConvertOptions) -> Option<Setting> {
    let model = &options.model;
    let has_facts =
        model.architecture != Architecture::Auto || model.keep_extra || model.given != Given::default();
    let settings = [
        (Setting::Selection, !options.selection.is_empty()),
        (Setting::Renames, !options.renames.is_empty()),
        (Setting::Facts, has_facts),
    ];
    settings.into_iter().find(|(_, is_set)| *is_set).map(|(setting, _)| setting)
}

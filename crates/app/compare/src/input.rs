//! Opens a checkpoint or a carton as the tensors that a conversion selects from it, and its values.

use std::path::{Path, PathBuf};

use byte_source::InputSource;
use carton_reader::Carton;
use carton_tools::{CartonNote, Error, Result, is_carton, read_checkpoint};
use foldhash::{HashSet, HashSetExt};
use pipeline::{ConvertOptions, ConvertedTensors, Observer, Selection, ShardPolicy, ValueRows, select};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tensor::Tensors;
use torch_import::Container;

/// Checkpoint or carton whose tensors are compared or hashed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct InputOptions {
    /// Checkpoint file, folder with a checkpoint, or carton.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub path: PathBuf,
    /// The input, if it is not on this machine.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub source: Option<InputSource>,
    /// Take the numbers that quantized weights stand for, as `convert --dequantize` writes them; a file without is taken as it is
    #[cfg_attr(feature = "cli", arg(long))]
    pub dequantize: bool,
    /// Each file is a single shard
    #[cfg_attr(feature = "cli", arg(long))]
    pub single: bool,
    /// Selection of tensors, and of the prefix to remove from their names.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten, next_help_heading = "Tensors"))]
    pub selection: Selection,
}

impl InputOptions {
    /// Creates options for the tensors that a conversion of `path` selects by default.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// Sets the selection of tensors.
    #[must_use]
    pub fn select(self, selection: Selection) -> Self {
        Self { selection, ..self }
    }

    /// Takes the numbers that quantized weights stand for in place of their codes.
    #[must_use]
    pub fn dequantize(self) -> Self {
        Self { dequantize: true, ..self }
    }

    /// Returns the treatment of an input that is a single shard.
    pub fn shards(&self) -> ShardPolicy {
        ShardPolicy::from_single(self.single)
    }

    /// Treats a file that is one of several shards as a checkpoint.
    #[must_use]
    pub fn single_shard(self) -> Self {
        Self { single: true, ..self }
    }
}

/// An open checkpoint or carton.
pub(crate) struct OpenedInput {
    pub(crate) tensors: Tensors,
    pub(crate) values: InputValues,
    pub(crate) format: &'static str,
    /// Total length of the files in bytes.
    pub(crate) nbytes: u64,
    /// Largest number of bytes that views may have together.
    pub(crate) allowed_nbytes: u64,
    pub(crate) notes: Vec<CartonNote>,
    containers: Vec<Container>,
    pub(crate) path: PathBuf,
}

/// Values that are not tensors.
pub(crate) enum InputValues {
    /// Values of a checkpoint, rendered on demand.
    Rows(ValueRows),
    /// Rows of the document in a carton.
    Document(Vec<Json>),
}

impl OpenedInput {
    /// Opens a checkpoint or a carton. Reads no elements, except to compare the copies that shards have of a tensor.
    ///
    /// # Errors
    /// When the input cannot be read or is damaged, the selection does not fit it, or `observer` stops the work.
    pub(crate) fn open(options: &InputOptions, observer: &dyn Observer) -> Result<Self> {
        let mut conversion = ConvertOptions::new(&options.path);
        conversion.source.clone_from(&options.source);
        conversion.single = options.single;
        conversion.selection.clone_from(&options.selection);
        let carton = if let Some(source) = &options.source {
            carton_tools::open_source(source)?
        } else {
            output::refuse_remote(&options.path)?;
            is_carton(&options.path).then(|| carton_tools::open(&options.path)).transpose()?
        };
        if let Some(carton) = carton {
            return Self::of_carton(&carton, (options, &conversion), observer);
        }
        conversion.dequantize = options.dequantize;
        let converted = match ConvertedTensors::read(&conversion, observer) {
            Err(error) if options.dequantize && error.is_not_quantized() => {
                conversion.dequantize = false;
                ConvertedTensors::read(&conversion, observer)?
            }
            converted => converted?,
        };
        let (nbytes, allowed_nbytes) = (converted.input_nbytes(), converted.allowed_nbytes(&conversion));
        let ConvertedTensors { tensors, checkpoint, containers, notes, .. } = converted;
        Ok(Self {
            tensors,
            values: InputValues::Rows(ValueRows::notable(checkpoint)),
            format: containers.first().map_or("", |container| container.format().name()),
            nbytes,
            allowed_nbytes,
            notes: notes.into_iter().map(CartonNote::Checkpoint).collect(),
            containers,
            path: options.path.clone(),
        })
    }

    fn of_carton(
        carton: &Carton,
        (options, conversion): (&InputOptions, &ConvertOptions),
        observer: &dyn Observer,
    ) -> Result<Self> {
        let path: &Path = &options.path;
        let model = read_checkpoint(carton, observer)?;
        let selected = select(&options.selection, &model.checkpoint).map_err(pipeline::Error::at(path))?;
        Ok(Self {
            tensors: selected.tensors,
            values: InputValues::Document(model.values),
            format: "carton",
            nbytes: model.container.len(),
            allowed_nbytes: pipeline::allowed_nbytes(model.container.len(), conversion.max_expansion),
            notes: model
                .notes
                .into_iter()
                .chain(selected.notes.into_iter().map(CartonNote::Checkpoint))
                .collect(),
            containers: vec![model.container],
            path: path.to_owned(),
        })
    }

    /// Checks that views do not repeat too many bytes: a scalar can be expanded to terabytes.
    ///
    /// # Errors
    /// When the views have more bytes than the output of a conversion may have.
    pub(crate) fn check_views(&self) -> Result<()> {
        let mut seen = HashSet::new();
        let distinct = self.tensors.iter().filter(|(_, tensor)| seen.insert(tensor.view_id()));
        let nbytes = distinct.fold(0_u64, |sum, (_, tensor)| sum.saturating_add(tensor.nbytes()));
        if nbytes > self.allowed_nbytes {
            let error = pipeline::Error::DigestExpansion { nbytes, allowed: self.allowed_nbytes };
            return Err(pipeline::Error::at(&self.path)(error).into());
        }
        Ok(())
    }

    /// Checks that no file changed since it was opened.
    ///
    /// # Errors
    /// When a file changed, or its metadata cannot be read.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        self.containers.iter().try_for_each(Container::check_unchanged).map_err(|reason| {
            let io = |reason| Error::from(pipeline::Error::Io { path: self.path.clone(), reason });
            pipeline::Error::from_read_error(reason, io)
        })
    }
}

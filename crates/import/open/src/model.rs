//! What was opened: the tensors, values and documents of an input, which steps change and from which an output is written.

use std::path::Path;
use std::sync::Arc;

use byte_source::{Location, Observer};
use decoder::{Decoder, LayoutDocument};
use quantization::QuantizationDocuments;
use tensor::Tensors;
use torch_import::{Checkpoint, Container};

use crate::carton::checkpoint::{CartonCheckpoint, read_checkpoint};
use crate::carton::{CartonInput, open_model};
use crate::files::{CheckpointSources, ShardPolicy};
use crate::globals::check_globals;
use crate::steps::dequantize;
use crate::{AllowedGlobals, Context, Note, Result, Step, StepReport, ValueRow, ValueRows};

/// Factor of [`allowed_nbytes`] if the options do not give another one.
pub const DEFAULT_MAX_EXPANSION: u64 = 64;

/// Bytes that an output may have in addition to those of the input, whatever its size: causal masks are expanded views.
const EXPANSION_BASE: u64 = 64 << 20;

/// Returns the largest number of bytes that the tensors of `input` bytes may have together, since views can repeat bytes.
pub fn allowed_nbytes(input: u64, factor: u64) -> u64 {
    input.saturating_mul(factor).max(input.saturating_add(EXPANSION_BASE))
}

/// Options for opening an input.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Checkpoint file, folder with a checkpoint, or all shards of a checkpoint.
    pub inputs: Vec<Location>,
    /// Treatment of an input that is a single shard.
    pub shards: ShardPolicy,
    /// Globals that a pickle may name.
    pub globals: AllowedGlobals,
    /// True if [`Dequantize`](crate::Dequantize) is one of the steps: the documents then describe its result.
    pub dequantize: bool,
    /// True if the documents in a carton are read.
    pub documents: bool,
    /// True to record the names that the tensors have in the input.
    pub origins: bool,
}

impl OpenOptions {
    /// Creates options for reading an input of which nothing is written, so that its globals are not judged.
    pub fn reading(inputs: Vec<Location>, shards: ShardPolicy) -> Self {
        Self { inputs, shards, globals: AllowedGlobals::All, ..Self::default() }
    }
}

/// An open input, and the tensors that steps make of it.
///
/// Before the first step that changes them, the tensors are all those of the input, under its names. Nothing of a tensor is read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Model {
    /// The files of the input, and the documents next to them.
    pub sources: Arc<CheckpointSources>,
    /// Open files: those of the input, and of the checkpoints and adapters that steps read.
    pub containers: Vec<Container>,
    /// Tensors and values as the input has them.
    pub checkpoint: Checkpoint,
    pub notes: Vec<Note>,
    /// Tensors as the steps so far left them; empty before they are taken from the checkpoint.
    tensors: Tensors,
    /// True once the tensors are taken from the checkpoint.
    is_taken: bool,
    /// Names that the tensors have in the input, if they are recorded; `None` for a tensor that a step generated.
    pub origins: Option<Vec<Option<String>>>,
    /// Document of the layout that the tensors were translated into.
    pub document: Option<LayoutDocument>,
    /// Names and contents of the documents in a GGUF file, which count like those next to other inputs.
    pub key_documents: Vec<(String, Vec<u8>)>,
    /// Name of the pre-tokenizer in llama.cpp that a GGUF file names.
    pub pre_tokenizer: Option<String>,
    /// Documents that describe the quantization of the weights, if it is undone.
    pub quantization: Option<QuantizationDocuments>,
    /// The part that a step takes, if one does.
    pub part: Option<families::TextPart>,
    /// What the tensors lack, and have too much, if an incomplete model passes.
    pub incomplete: Option<families::ModelComparison>,
    /// True if a merge changed the head, which is not that of the embeddings then.
    pub has_own_head: bool,
    /// Decoder that the tensors belong to, if it is known without documents.
    pub decoder: Option<Decoder>,
    /// The carton, if the input is one.
    pub carton: Option<OpenCarton>,
}

/// The carton that a [`Model`] was read from.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenCarton {
    pub input: Arc<CartonInput>,
    /// Values that are not tensors.
    pub values: Vec<ValueRow>,
}

impl Model {
    /// Opens an input. Reads no elements, except to compare the copies that shards have of a tensor.
    ///
    /// # Errors
    /// When the input cannot be read, is not one checkpoint, or is damaged; when it names a global that the options do not
    /// allow; or when `observer` stops the work.
    pub fn open(options: &OpenOptions, observer: &dyn Observer) -> Result<Self> {
        let carton = CartonInput::find(options, options.documents || options.dequantize)?.map(Arc::new);
        let mut sources = match &carton {
            Some(carton) => carton.sources(),
            None => find_sources(options)?,
        };
        let quantization =
            options.dequantize.then(|| dequantize::take_documents(&mut sources)).transpose()?;
        let found = FoundInput { sources: Arc::new(sources), carton, part: None, quantization };
        found.read(options, observer)
    }

    /// Creates a model of a checkpoint that is open.
    pub fn new(sources: Arc<CheckpointSources>, containers: Vec<Container>, checkpoint: Checkpoint) -> Self {
        Self {
            sources,
            containers,
            checkpoint,
            notes: Vec::new(),
            tensors: Tensors::default(),
            is_taken: false,
            origins: None,
            document: None,
            key_documents: Vec::new(),
            pre_tokenizer: None,
            quantization: None,
            part: None,
            incomplete: None,
            has_own_head: false,
            decoder: None,
            carton: None,
        }
    }

    /// Applies the steps in order. Without steps, the tensors are those of the input.
    ///
    /// # Errors
    /// When a step does not fit the tensors that the steps before it left, or the observer of `context` stops the work.
    pub fn apply(&mut self, steps: &[Box<dyn Step>], context: &Context<'_>) -> Result<Vec<StepReport>> {
        let reports = steps.iter().map(|step| step.apply(self, context)).collect::<Result<_>>()?;
        self.checkpoint.refuse_unreadable().map_err(|error| error.in_file(self.root()))?;
        self.tensors_mut();
        Ok(reports)
    }

    /// Returns the tensors as the steps left them.
    pub fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// Returns the tensors, which are all those of the input if no step took some of them.
    pub fn tensors_mut(&mut self) -> &mut Tensors {
        if !self.is_taken {
            let tensors = self.checkpoint.to_tensors();
            let origins = self.origins.take();
            let origins = origins.map(|_| tensors.names().map(|name| Some(name.to_owned())).collect());
            self.set_tensors(tensors, origins);
        }
        &mut self.tensors
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Replaces the tensors. `origins` has their names in the input, if these are recorded.
    pub fn set_tensors(&mut self, tensors: Tensors, origins: Option<Vec<Option<String>>>) {
        (self.tensors, self.origins, self.is_taken) = (tensors, origins, true);
    }

    /// Takes the tensors out, for a step that puts others in their place.
    pub(crate) fn take_tensors(&mut self) -> Tensors {
        std::mem::take(self.tensors_mut())
    }

    /// Returns the name of the input's format.
    pub fn format(&self) -> &'static str {
        match &self.carton {
            Some(_) => "carton",
            None => self.containers.first().map_or("", Container::format),
        }
    }

    /// Returns the path that stands for the input in messages.
    pub fn root(&self) -> &Path {
        self.sources.root()
    }

    /// Adds a note for each reason for which something of the input is left out.
    pub fn note_omissions(&mut self) {
        self.notes.extend(Note::omission_notes(&self.checkpoint.left_out));
    }

    /// Takes the values that are not tensors, except the metadata entry that every safetensors file from PyTorch has. Frees the
    /// objects of the pickle.
    pub fn take_values(&mut self) -> ValueRows {
        match &mut self.carton {
            Some(carton) => ValueRows::from_document(std::mem::take(&mut carton.values)),
            None => ValueRows::notable(std::mem::take(&mut self.checkpoint)),
        }
    }

    /// Returns the length of the input in bytes, which is that of a packed carton or of all files.
    pub fn nbytes(&self) -> u64 {
        let carton = self.carton.as_ref().map(|carton| carton.input.carton.len());
        carton.filter(|len| *len > 0).unwrap_or_else(|| self.input_nbytes())
    }

    /// Returns the total length of the open files in bytes.
    pub fn input_nbytes(&self) -> u64 {
        self.containers.iter().map(Container::len).fold(0, u64::saturating_add)
    }

    /// Returns the largest number of bytes that views of the files may have together, unless options allow more.
    pub fn allowed_nbytes(&self) -> u64 {
        allowed_nbytes(self.input_nbytes(), DEFAULT_MAX_EXPANSION)
    }

    /// Checks that no file changed since it was opened.
    ///
    /// # Errors
    /// When a file changed, or its metadata cannot be read.
    pub fn check_unchanged(&self) -> Result<()> {
        let check = self.containers.iter().try_for_each(Container::check_unchanged);
        check.map_err(|error| error.in_file(self.root()))
    }
}

/// An input that is found and not read.
#[derive(Clone, Debug)]
pub struct FoundInput {
    pub sources: Arc<CheckpointSources>,
    pub carton: Option<Arc<CartonInput>>,
    /// The part that [`TakePart`](crate::TakePart) takes. The documents of `sources` describe it.
    pub part: Option<families::TextPart>,
    /// Documents that describe the quantization of the weights, if it is undone. The documents of `sources` describe the
    /// result.
    pub quantization: Option<QuantizationDocuments>,
}

impl FoundInput {
    /// Reads the input.
    ///
    /// # Errors
    /// Those of [`Model::open`].
    pub fn read(self, options: &OpenOptions, observer: &dyn Observer) -> Result<Model> {
        let Self { sources, carton, part, quantization } = self;
        let judge = |file: &Path, checkpoint: &Checkpoint| check_globals(options.globals, file, checkpoint);
        let mut model = if let Some(input) = carton {
            let container = open_model(&input.carton, observer)?;
            let CartonCheckpoint { checkpoint, values, note } = read_checkpoint(&input.carton, &container)?;
            judge(input.carton.path(), &checkpoint)?;
            let mut model = Model::new(sources, vec![container], checkpoint);
            model.notes.extend(note);
            model.carton = Some(OpenCarton { input, values });
            model
        } else {
            let containers = sources.open_with_observer(observer)?;
            let (mut checkpoint, notes) = sources.read_readable(&containers, &judge, observer)?;
            dequantize::encode_descriptions(quantization.is_some(), &mut checkpoint);
            let mut model = Model::new(sources, containers, checkpoint);
            model.notes.extend(notes.into_iter().map(Note::Sources));
            let first = model.containers.first();
            model.notes.extend(first.and_then(|it| Note::of_other_format(it.path(), it.format())));
            model
        };
        // Patterns are compared with the names in the input, too, after quantized weights have the names of their numbers.
        let has_origins = options.origins || quantization.is_some();
        model.origins = has_origins.then(Vec::new);
        model.quantization = quantization;
        model.part = part;
        Ok(model)
    }
}

/// Finds the files of an input, which is a checkpoint.
///
/// # Errors
/// When the input is not one checkpoint.
pub fn find_sources(options: &OpenOptions) -> Result<CheckpointSources> {
    CheckpointSources::find(&options.inputs, options.shards)
}

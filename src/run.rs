//! Builder for inference on the CPU, with a carton or with the decoder of a checkpoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{Location, Observer};
use carton_format::Carton;
use decoder::Detected;
use open::files::ShardPolicy;
use open::{Context, Dequantize, Model, OpenOptions, Selection, TargetLayout, Translate};
use runtime::{Runnable, RunnableOptions, SelfTestOptions, SelfTestReport};
use tensor::Tensor;
use torch_import::Container;

use crate::{Error, Result, Tensors};

/// Returns a run of the carton at `path`, a file or an unpacked folder, or of the decoder of a checkpoint there, which [`Run::run`] starts.
pub fn run(path: impl Into<PathBuf>) -> Run {
    Run::new(path)
}

/// A run of a model that has not started.
#[derive(Clone, Debug)]
#[must_use = "a carton runs with `run`, or is opened with `open`"]
pub struct Run {
    path: PathBuf,
    options: RunnableOptions,
    inputs: Vec<(String, Tensor)>,
    outputs: Option<Vec<String>>,
}

impl Run {
    /// Creates a run of the model at `path` without inputs, which returns all outputs.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), options: RunnableOptions::default(), inputs: Vec::new(), outputs: None }
    }

    /// Sets the number of compute threads.
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = Some(threads);
        self
    }

    /// Checks every hash and every rule of the carton before the run.
    pub fn verify(mut self) -> Self {
        self.options.verify = true;
        self
    }

    /// Adds an input tensor under the input's name.
    pub fn input(mut self, name: impl Into<String>, tensor: Tensor) -> Self {
        self.inputs.push((name.into(), tensor));
        self
    }

    /// Selects an output by name. After the first call, only selected outputs are returned.
    pub fn output(mut self, name: impl Into<String>) -> Self {
        self.outputs.get_or_insert_default().push(name.into());
        self
    }

    /// Opens the model and returns its outputs for the inputs. A program that runs one several times opens it once
    /// with [`open`](Self::open).
    ///
    /// # Errors
    /// When the carton cannot be read or does not run here, the inputs are not what its carton.toml declares, an output
    /// does not exist, or `observer` stops the work.
    pub fn run(&self, observer: &dyn Observer) -> Result<Tensors> {
        let carton = self.open(observer)?;
        let outputs = carton.infer_until(&self.inputs, self.outputs.as_deref(), observer)?;
        Ok(outputs.into_iter().collect())
    }

    /// Opens the carton and runs the self tests stored in it.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and when `observer` stops the work. A test that fails is part of the report.
    pub fn self_test(&self, options: &SelfTestOptions, observer: &dyn Observer) -> Result<SelfTestReport> {
        runtime::self_test(&self.open(observer)?, options, observer)
    }

    /// Opens the model for inference; [`Runnable::infer`] takes the inputs.
    ///
    /// # Errors
    /// When the carton cannot be read, does not run here, or is damaged, or `observer` stops the work.
    pub fn open(&self, observer: &dyn Observer) -> Result<Runnable> {
        let input = Location::from(&self.path);
        open_model(carton_tools::open(&input), &input, &self.options, observer)
    }
}

/// Opens the model at `input`: the carton that was opened there, or the decoder of a checkpoint on this machine in place.
pub(crate) fn open_model(
    opened: Result<Carton>,
    input: &Location,
    options: &RunnableOptions,
    observer: &dyn Observer,
) -> Result<Runnable> {
    match opened {
        Err(error) if input.is_local() && is_checkpoint(&error) => {
            open_checkpoint(input.path(), options, observer)
        }
        opened => Runnable::from_carton(opened?, options, observer),
    }
}

/// Returns true if a carton cannot be opened because the path is that of a checkpoint, or of a file whose error says more if it is
/// opened as one.
pub(crate) fn is_checkpoint(error: &Error) -> bool {
    use carton_tools::Problem;
    matches!(error.detail(), Some(Problem::IsCheckpoint { .. } | Problem::NotACarton { .. }))
}

/// Returns the names and contents of the documents in a checkpoint.
#[cfg(all(feature = "cli", feature = "tokenizer"))]
pub(crate) fn checkpoint_documents(path: &Path, observer: &dyn Observer) -> Result<Vec<(String, Vec<u8>)>> {
    let reading = OpenOptions::reading(vec![path.to_owned().into()], ShardPolicy::RequireAll);
    Ok(open::documents_in(&Model::open(&reading, observer)?.checkpoint))
}

fn open_checkpoint(path: &Path, options: &RunnableOptions, observer: &dyn Observer) -> Result<Runnable> {
    let mut reading = OpenOptions::reading(vec![path.to_owned().into()], ShardPolicy::RequireAll);
    reading.dequantize = true;
    let mut model = Model::open(&reading, observer)?;
    let mut steps = Dequantize::new(Vec::new(), true).with_selection(Selection::default());
    if model.format() == "gguf" {
        steps.push(Box::new(Translate::new(TargetLayout::HuggingFace)));
    }
    model.apply(&steps, &Context::new(observer))?;
    let sources = Arc::clone(&model.sources);
    let failed = |error| open::in_checkpoint(error, &sources);
    let documents = model.decoder_options(decoder::Overrides::default(), true)?;
    let decoder = match decoder::detect(model.tensors(), &documents).map_err(failed)? {
        Detected::Model(decoder) => decoder,
        Detected::Weights { .. } if model.containers.iter().any(Container::is_torchscript) => {
            return Err(Error::from(runtime::Problem::ForeignCode { record: String::new() }).in_file(path));
        }
        Detected::Weights { no_model_reason: why, .. } => {
            return Err(Error::from(decoder::Problem::NotAModel { why }).in_file(path));
        }
    };
    let containers = std::mem::take(&mut model.containers);
    let own = std::mem::take(&mut model.key_documents);
    Runnable::from_decoder(path, &decoder, model.tensors().clone(), own, containers, options).map_err(failed)
}

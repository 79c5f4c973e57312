//! Opens a carton and runs it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{Action, Observer, ProgressReporter};
use carton_format::{Carton, Config, MODEL_PT};
use decoder::Decoder;
use decoder::interface::DecoderPort;
use tensor::{Tensor, Tensors};
use torch_import::{Checkpoint, Container};
use torchscript::Recognised;

use crate::model::{self, DecoderPass, DecoderRun};
use crate::weights::export_tensor;
use crate::{Error, PortSide, Problem, Result, RunnablePort, ports};

/// Name of Carton's runner for TorchScript archives.
const TORCHSCRIPT: &str = "torchscript";
/// Runner option for the number of threads.
const NUM_THREADS: &str = "num_threads";
/// Largest number of output names in an error.
const NAMES_SHOWN: usize = 10;

/// Options for opening a carton.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[non_exhaustive]
pub struct RunnableOptions {
    /// Compute with N threads [default: what the carton says, else one for each core]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096)))]
    pub threads: Option<usize>,
    /// Check every hash and rule of the carton first; without it, no hash is compared
    #[cfg_attr(feature = "cli", arg(long))]
    pub verify: bool,
}

impl RunnableOptions {
    /// Sets the number of compute threads.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Enables the check of every hash and rule before the carton is opened.
    #[must_use]
    pub fn verify(self) -> Self {
        Self { verify: true, ..self }
    }
}

/// Open carton that can run.
pub struct Runnable {
    origin: Origin,
    kind: RunnableKind,
    inputs: Vec<RunnablePort>,
    outputs: Vec<RunnablePort>,
    tensors: Tensors,
    /// Keep the model's files mapped.
    _containers: Vec<Container>,
}

/// Where a model was read from.
enum Origin {
    Carton(Box<Carton>, Box<Config>),
    Checkpoint {
        path: PathBuf,
        folder: PathBuf,
        /// Documents in the checkpoint itself, which count if the folder has none of the name.
        documents: Vec<(String, Vec<u8>)>,
    },
}

/// Kind of model in a carton.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunnableKind {
    /// Decoder, which takes tokens and returns logits.
    Decoder(Arc<forward::ForwardModel>),
    /// Module that returns its tensors by name.
    Weights,
}

impl std::fmt::Debug for Runnable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runnable")
            .field("path", &self.path())
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Runnable {
    /// Opens the carton or the unpacked folder at `path`. A stored model is mapped in place. A compressed model is
    /// decompressed into a temporary file, which `observer` can follow and stop.
    ///
    /// # Errors
    /// Returns an error if the carton cannot be read, is not a carton, lacks a file that it needs, needs another runner, or
    /// has code that a conversion does not write; and if `options` ask for verification and the carton is damaged.
    pub fn open(path: &Path, options: &RunnableOptions, observer: &dyn Observer) -> Result<Self> {
        Self::from_carton(Carton::open(path).map_err(|error| error.in_file(path))?, options, observer)
    }

    /// Runs a carton that is open, and whose file is in memory or mapped: one that is not on this machine is copied before.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn from_carton(carton: Carton, options: &RunnableOptions, observer: &dyn Observer) -> Result<Self> {
        if options.verify {
            verify(&carton, observer)?;
        }
        let path = &carton.path().to_owned();
        let failed = |error: Error| error.in_file(path);
        let config = carton.config().map_err(failed)?.document;
        let runner = &config.runner.runner_name;
        if runner != TORCHSCRIPT {
            return Err(failed(Problem::Runner { runner: runner.clone() }.into()));
        }
        let threads = threads(path, &config, options)?;
        let damaged = |error: Error| failed(error.in_record(MODEL_PT));
        let source = carton.source(MODEL_PT, observer).map_err(failed)?;
        let container = Container::from_source(source).map_err(damaged)?;
        let checkpoint = Checkpoint::read(&container).map_err(damaged)?;
        let recognised =
            torchscript::recognise(&container.records_besides_storages(), checkpoint.to_tensors());
        let (kind, defaults, tensors) = match recognised {
            Recognised::Decoder(found) => {
                let torchscript::RecognisedModel { decoder, assignment, tensors } = *found;
                let options = forward::ForwardOptions { threads };
                let made = forward::ForwardModel::new(&decoder, &tensors, &assignment, &options)?;
                (RunnableKind::Decoder(Arc::new(made)), Some(model::default_ports(&decoder)), tensors)
            }
            Recognised::Weights { tensors } => (RunnableKind::Weights, None, tensors),
            Recognised::Other { record } => return Err(failed(Problem::ForeignCode { record }.into())),
        };
        let (inputs, outputs) = merge_ports(path, &config, defaults, &tensors)?;
        let origin = Origin::Carton(Box::new(carton), Box::new(config));
        Ok(Self { origin, kind, inputs, outputs, tensors, _containers: vec![container] })
    }

    /// Makes a decoder of a checkpoint runnable in place: nothing is written, and its weights stay where they are. `path` is that of the
    /// checkpoint, a file or a folder. Its documents are those of the folder, and `documents`, which are in the checkpoint itself.
    ///
    /// # Errors
    /// Returns an error if the weights are not those of the decoder.
    pub fn from_decoder(
        path: &Path,
        decoder: &Decoder,
        tensors: Tensors,
        documents: Vec<(String, Vec<u8>)>,
        containers: Vec<Container>,
        options: &RunnableOptions,
    ) -> Result<Self> {
        let assignment = decoder.assign(&tensors, true)?;
        let threads = forward::ForwardOptions { threads: options.threads };
        let made = forward::ForwardModel::new(decoder, &tensors, &assignment, &threads)?;
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
        let (inputs, outputs) = model::default_ports(decoder);
        Ok(Self {
            origin: Origin::Checkpoint { path: path.to_owned(), folder: folder.to_owned(), documents },
            kind: RunnableKind::Decoder(Arc::new(made)),
            inputs,
            outputs,
            tensors,
            _containers: containers,
        })
    }

    /// Returns the path under which the carton or checkpoint was opened.
    pub fn path(&self) -> &Path {
        match &self.origin {
            Origin::Carton(carton, _) => carton.path(),
            Origin::Checkpoint { path, .. } => path,
        }
    }

    /// Returns the kind of model in the carton.
    pub fn kind(&self) -> &RunnableKind {
        &self.kind
    }

    /// Returns the contents of carton.toml; `None` for a checkpoint.
    pub fn config(&self) -> Option<&Config> {
        match &self.origin {
            Origin::Carton(_, config) => Some(config),
            Origin::Checkpoint { .. } => None,
        }
    }

    pub(crate) fn carton(&self) -> Option<&Carton> {
        match &self.origin {
            Origin::Carton(carton, _) => Some(carton),
            Origin::Checkpoint { .. } => None,
        }
    }

    /// Returns the inputs. A model has the inputs that carton.toml declares, or its own if carton.toml declares none.
    pub fn inputs(&self) -> &[RunnablePort] {
        &self.inputs
    }

    /// Returns the outputs. For weights, there is one output for each tensor that carton.toml declares.
    pub fn outputs(&self) -> &[RunnablePort] {
        &self.outputs
    }

    /// Returns the tensors of the model under their own names, as in the checkpoint.
    pub fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// Reads the file `misc/NAME` of a carton and checks its hash, or the file NAME next to a checkpoint; `None` if there is no such
    /// file. A file of more than `limit` bytes is not read.
    ///
    /// # Errors
    /// Returns an error if the file is not in the carton although MANIFEST lists it, is too large, or is damaged.
    pub fn misc(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let carton = match &self.origin {
            Origin::Carton(carton, _) => carton,
            Origin::Checkpoint { folder, documents, .. } => {
                let inner = documents.iter().find(|(known, _)| known == name);
                let inner = inner.map(|(_, contents)| contents.clone());
                return Ok(read_document(&folder.join(name), limit)?.or(inner));
            }
        };
        let path = format!("misc/{name}");
        let failed = |error: Error| error.in_file(self.path());
        let entry = match carton.entry(&path) {
            Ok(entry) => entry,
            Err(carton_format::Problem::Missing { .. }) => return Ok(None),
            Err(problem) => return Err(failed(problem.into())),
        };
        if entry.len > limit {
            let problem = carton_format::Problem::OversizedDocument { path, found: entry.len, limit };
            return Err(failed(problem.into()));
        }
        let mut bytes = Vec::new();
        let read = carton.read(&path).map_err(failed)?.read_to_end(&mut bytes);
        read.map_err(|reason| failed(carton.reader_error(&path, reason)))?;
        Ok(Some(bytes))
    }

    /// Runs the carton. `wanted` names the outputs to return; `None` stands for all that Carton's runner would return.
    ///
    /// # Errors
    /// Returns an error if the inputs do not match carton.toml, an output does not exist, or the model fails.
    pub fn infer(
        &self,
        inputs: &[(String, Tensor)],
        wanted: Option<&[String]>,
    ) -> Result<Vec<(String, Tensor)>> {
        self.infer_until(inputs, wanted, &())
    }

    /// Runs the carton as [`infer`](Self::infer) does; `observer` can stop the work between the layers of a model.
    ///
    /// # Errors
    /// Those of [`infer`](Self::infer), and that the observer stopped the work.
    pub fn infer_until(
        &self,
        inputs: &[(String, Tensor)],
        wanted: Option<&[String]>,
        observer: &dyn Observer,
    ) -> Result<Vec<(String, Tensor)>> {
        let mut call = self.start(inputs, wanted, usize::MAX)?;
        while call.advance(observer)? {}
        call.finish()
    }

    /// Starts a call that runs in pieces, so that the caller can do other work between them: about `rows_at_once` tokens of a
    /// decoder go through the layers at once, those of all sequences together. Weights are one piece.
    ///
    /// # Errors
    /// Returns an error if the inputs do not match carton.toml or an output does not exist.
    pub fn start(
        &self,
        inputs: &[(String, Tensor)],
        wanted: Option<&[String]>,
        rows_at_once: usize,
    ) -> Result<RunningCall> {
        Ok(RunningCall(match &self.kind {
            RunnableKind::Decoder(model) => {
                let decoder = DecoderRun { model, inputs: &self.inputs, outputs: &self.outputs };
                CallState::Decoder(Box::new(decoder.start(inputs, wanted, rows_at_once)?))
            }
            RunnableKind::Weights => {
                ports::check_inputs_fit(&self.inputs, inputs)?;
                CallState::Weights(self.exported_tensors(wanted)?)
            }
        }))
    }

    /// Returns the most tokens of a sequence that the model was made for, as its `config.json` or `params.json` in the carton
    /// says; `None` if neither does.
    pub fn max_positions(&self) -> Option<u64> {
        let number = |name: &str, keys: &[&str]| {
            let bytes = self.misc(name, POSITIONS_DOCUMENT_MAX).ok()??;
            let document: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
            let nested = document.get("text_config");
            let found =
                |document: &serde_json::Value| keys.iter().find_map(|key| document.get(key)?.as_u64());
            found(&document).or_else(|| found(nested?)).filter(|positions| *positions > 0)
        };
        number("config.json", &["max_position_embeddings", "n_positions"])
            .or_else(|| number("params.json", &["max_seq_len"]))
    }

    /// Returns the wanted tensors as a module of weights exports them.
    fn exported_tensors(&self, wanted: Option<&[String]>) -> Result<Vec<(String, Tensor)>> {
        let export = |name: &str, tensor: &Tensor| Ok((name.to_owned(), export_tensor(name, tensor)?));
        let Some(wanted) = wanted else {
            return self.tensors.iter().map(|(name, tensor)| export(name, tensor)).collect();
        };
        let find = |name: &String| {
            // The name of a port may differ from that of its tensor.
            let port = self.outputs.iter().find(|port| port.name == *name);
            let internal = port.map_or(name.as_str(), RunnablePort::internal);
            let tensor = self.tensors.get(internal).ok_or_else(|| self.no_output(name))?;
            export(name, tensor)
        };
        wanted.iter().map(find).collect()
    }

    fn no_output(&self, name: &str) -> Error {
        let names = self.outputs.iter().map(|port| port.name.clone());
        let mut known: Vec<String> = names.take(NAMES_SHOWN).collect();
        if self.outputs.len() > NAMES_SHOWN {
            known.push(format!("{} more", self.outputs.len().saturating_sub(NAMES_SHOWN)));
        }
        Problem::NoOutput { name: name.to_owned(), known }.into()
    }
}

/// Largest document, in bytes, that is read for the number of positions.
const POSITIONS_DOCUMENT_MAX: u64 = 1 << 20;

/// Call of a carton that runs in pieces; see [`Runnable::start`].
#[derive(Debug)]
pub struct RunningCall(CallState);

#[derive(Debug)]
enum CallState {
    Decoder(Box<DecoderPass>),
    Weights(Vec<(String, Tensor)>),
}

impl RunningCall {
    /// Computes the next piece. Returns true if there are more. The call cannot be used after an error.
    ///
    /// # Errors
    /// Returns an error if the model fails, or if `observer` stops the work.
    pub fn advance(&mut self, observer: &dyn Observer) -> Result<bool> {
        match &mut self.0 {
            CallState::Decoder(pass) => pass.advance(observer),
            CallState::Weights(_) => Ok(false),
        }
    }

    /// Returns the outputs, once all pieces are computed.
    ///
    /// # Errors
    /// Returns an error if the outputs do not fit in memory.
    pub fn finish(self) -> Result<Vec<(String, Tensor)>> {
        match self.0 {
            CallState::Decoder(pass) => pass.finish(),
            CallState::Weights(tensors) => Ok(tensors),
        }
    }
}

/// Reads a document of a folder; `None` if there is no such file.
fn read_document(path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    let failed = |error: std::io::Error| Error::from(error).in_file(path);
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let found = file.metadata().map_err(failed)?.len();
    if found > limit {
        let path = path.display().to_string();
        return Err(carton_format::Problem::OversizedDocument { path, found, limit }.into());
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

/// Checks every hash and rule of a carton.
fn verify(carton: &Carton, observer: &dyn Observer) -> Result<()> {
    let name = carton.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let total = Some(carton.entries().fold(0_u64, |sum, entry| sum.saturating_add(entry.len)));
    let report = carton.verify(ProgressReporter::new(observer, &name, Action::Verify, total))?;
    match report.findings.len() {
        0 => Ok(()),
        problems => Err(Error::from(Problem::Damaged { problems }).in_file(carton.path())),
    }
}

/// Returns the number of threads that the caller or the carton requests.
fn threads(path: &Path, config: &Config, options: &RunnableOptions) -> Result<Option<usize>> {
    if options.threads.is_some() {
        return Ok(options.threads);
    }
    let Some(value) = config.runner.opts.get(NUM_THREADS) else { return Ok(None) };
    let number =
        value.as_integer().and_then(|number| usize::try_from(number).ok()).filter(|number| *number > 0);
    let failed =
        || Error::from(Problem::RunnerOption { name: NUM_THREADS, found: value.to_string() }).in_file(path);
    number.map(Some).ok_or_else(failed)
}

/// Merges the ports of carton.toml with those of the model, which apply if carton.toml declares none.
fn merge_ports(
    path: &Path,
    config: &Config,
    model: Option<(Vec<RunnablePort>, Vec<RunnablePort>)>,
    tensors: &Tensors,
) -> Result<(Vec<RunnablePort>, Vec<RunnablePort>)> {
    let Some((inputs, outputs)) = model else {
        let has = |port: &RunnablePort| tensors.iter().any(|(name, _)| name == port.internal());
        let port = |port: &carton_format::Port| {
            let port = RunnablePort::new(port, false);
            if has(&port) {
                Ok(port)
            } else {
                Err(unknown_port(path, PortSide::Output, &port, &["the tensors of the model"]))
            }
        };
        if let Some(input) = config.inputs.first() {
            return Err(unknown_port(path, PortSide::Input, &RunnablePort::new(input, false), &["none"]));
        }
        return Ok((Vec::new(), config.outputs.iter().map(port).collect::<Result<_>>()?));
    };
    if config.inputs.is_empty() && config.outputs.is_empty() {
        return Ok((inputs, outputs));
    }
    let names = |ports: &[RunnablePort]| -> Vec<&'static str> {
        ports
            .iter()
            .filter_map(|port| DecoderPort::from_name(port.internal()))
            .map(DecoderPort::name)
            .collect()
    };
    let merged =
        |side: PortSide, declared: &[carton_format::Port], own: &[RunnablePort], known: &[&'static str]| {
            let port = |port: &carton_format::Port| {
                let port = RunnablePort::new(port, false);
                let optional = own.iter().find(|own| own.name == port.internal()).map(|own| own.optional);
                match optional {
                    Some(optional) => Ok(RunnablePort { optional, ..port }),
                    None => Err(unknown_port(path, side, &port, known)),
                }
            };
            declared.iter().map(port).collect::<Result<Vec<_>>>()
        };
    Ok((
        merged(PortSide::Input, &config.inputs, &inputs, &names(&inputs))?,
        merged(PortSide::Output, &config.outputs, &outputs, &names(&outputs))?,
    ))
}

fn unknown_port(path: &Path, side: PortSide, port: &RunnablePort, known: &[&'static str]) -> Error {
    let problem = Problem::UnknownPort { side, name: port.internal().to_owned(), known: known.to_vec() };
    Error::from(problem).in_file(path)
}

const _: () = {
    const fn is_shared<T: Send + Sync + 'static>() {}
    // A server shares the carton between its threads.
    is_shared::<Runnable>();
};

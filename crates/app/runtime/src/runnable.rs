//! A carton that runs.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{Action, Observer, Work};
use carton_format::{Config, MODEL_PT};
use carton_reader::Carton;
use decoder::interface::DecoderPort;
use tensor::{Tensor, Tensors};
use torch_import::{Checkpoint, Container};
use torchscript::Recognised;

use crate::model::{self, Decoder};
use crate::weights::exported;
use crate::{Error, Port, Result, Side, ports};

/// The runner whose models are TorchScript archives.
const TORCHSCRIPT: &str = "torchscript";
/// The runner's option for the number of threads.
const NUM_THREADS: &str = "num_threads";
/// The most names of outputs in an error.
const NAMES_SHOWN: usize = 10;

/// How a carton is opened.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The number of threads that compute; `None` for `num_threads` of the carton's runner options, or as many as the
    /// machine runs at once.
    pub threads: Option<usize>,
    /// Whether every hash and rule is checked first, which reads the whole carton.
    pub verify: bool,
}

impl OpenOptions {
    /// Sets the number of threads that compute.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Checks every hash and rule first.
    #[must_use]
    pub fn verify(self) -> Self {
        Self { verify: true, ..self }
    }
}

/// A carton that runs.
pub struct Runnable {
    carton: Carton,
    config: Config,
    kind: Kind,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    tensors: Tensors,
    /// The model's file stays mapped.
    _container: Container,
}

/// What a carton is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// Takes tokens and returns logits.
    Decoder(Arc<forward::Model>),
    /// Returns its tensors by name.
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
    /// Opens the carton or the unpacked folder at `path`. A model that is stored is mapped in place, and a compressed one
    /// is decompressed into a temporary file, which `observer` can follow and stop.
    ///
    /// # Errors
    /// When it cannot be read or is not a carton, a file that it needs is elsewhere, it needs another runner, its code is
    /// not what a conversion writes, or it is to be verified and is damaged.
    pub fn open(path: &Path, options: &OpenOptions, observer: &dyn Observer) -> Result<Self> {
        let carton = carton_tools::open(path)?;
        if options.verify {
            verify(&carton, observer)?;
        }
        let failed = |error| Error::from(carton_tools::Error::reader(path)(error));
        let config = carton.config().map_err(failed)?.document;
        let runner = &config.runner.runner_name;
        if runner != TORCHSCRIPT {
            return Err(Error::Runner { path: path.to_owned(), runner: runner.clone() });
        }
        let threads = threads(path, &config, options)?;
        let container = carton_tools::model(&carton, observer)?;
        let checkpoint = Checkpoint::read(&container).map_err(|reason| {
            failed(carton_reader::Error::Model { path: MODEL_PT.to_owned(), reason: Box::new(reason) })
        })?;
        let recognised =
            torchscript::recognise(&container.records_besides_storages(), checkpoint.to_tensors());
        let (kind, defaults, tensors) = match recognised {
            Recognised::Decoder(found) => {
                let torchscript::Model { decoder, assignment, tensors } = *found;
                let options = forward::Options { threads };
                let made = forward::Model::new(&decoder, &tensors, &assignment, &options)?;
                (Kind::Decoder(Arc::new(made)), Some(model::ports(&decoder)), tensors)
            }
            Recognised::Weights { tensors } => (Kind::Weights, None, tensors),
            Recognised::Other { record } => return Err(Error::OtherCode { path: path.to_owned(), record }),
        };
        let (inputs, outputs) = declared(path, &config, defaults, &tensors)?;
        Ok(Self { carton, config, kind, inputs, outputs, tensors, _container: container })
    }

    /// The carton as it was given.
    pub fn path(&self) -> &Path {
        self.carton.path()
    }

    /// What it is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// carton.toml.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The open carton.
    pub(crate) fn carton(&self) -> &Carton {
        &self.carton
    }

    /// What it takes. A model has the inputs that carton.toml declares, or if it declares none, its own.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// What it returns. For weights, there is one for each tensor that carton.toml declares.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// The tensors of the model under their own names, as the checkpoint had them.
    pub fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// The file `misc/NAME`; `None` if there is none. It is checked, and not read if it has more than `limit` bytes.
    ///
    /// # Errors
    /// When it is elsewhere, too large, or damaged.
    pub fn misc(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let path = format!("misc/{name}");
        let failed = |error| Error::from(carton_tools::Error::reader(self.path())(error));
        let entry = match self.carton.entry(&path) {
            Ok(entry) => entry,
            Err(carton_reader::Error::Missing { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if entry.len > limit {
            return Err(failed(carton_reader::Error::Large { path, found: entry.len, limit }));
        }
        let mut bytes = Vec::new();
        let read = self.carton.read(&path).map_err(failed)?.read_to_end(&mut bytes);
        read.map_err(|reason| failed(self.carton.unwrapped(&path, reason)))?;
        Ok(Some(bytes))
    }

    /// Runs the carton. `wanted` names the outputs to return, or is `None` for all that Carton's runner would return.
    ///
    /// # Errors
    /// When inputs are not what carton.toml declares, an output does not exist, or the model fails.
    pub fn infer(
        &self,
        inputs: &[(String, Tensor)],
        wanted: Option<&[String]>,
    ) -> Result<Vec<(String, Tensor)>> {
        self.infer_until(inputs, wanted, &())
    }

    /// The same; the observer can stop the work between the layers of a model.
    ///
    /// # Errors
    /// Those of [`infer`](Self::infer), and [`Error::Cancelled`].
    pub fn infer_until(
        &self,
        inputs: &[(String, Tensor)],
        wanted: Option<&[String]>,
        observer: &dyn Observer,
    ) -> Result<Vec<(String, Tensor)>> {
        match &self.kind {
            Kind::Decoder(model) => {
                let decoder = Decoder { model, inputs: &self.inputs, outputs: &self.outputs };
                decoder.infer(inputs, wanted, observer)
            }
            Kind::Weights => {
                ports::check(&self.inputs, inputs)?;
                self.returned(wanted)
            }
        }
    }

    /// The tensors as a module of weights returns them.
    fn returned(&self, wanted: Option<&[String]>) -> Result<Vec<(String, Tensor)>> {
        let export = |name: &str, tensor: &Tensor| Ok((name.to_owned(), exported(name, tensor)?));
        let Some(wanted) = wanted else {
            return self.tensors.iter().map(|(name, tensor)| export(name, tensor)).collect();
        };
        let find = |name: &String| {
            // A port may have a name of its own.
            let port = self.outputs.iter().find(|port| port.name == *name);
            let internal = port.map_or(name.as_str(), Port::internal);
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
        Error::NoOutput { name: name.to_owned(), known }
    }
}

/// Checks every hash and rule.
fn verify(carton: &Carton, observer: &dyn Observer) -> Result<()> {
    let name = carton.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let total = Some(carton.entries().fold(0_u64, |sum, entry| sum.saturating_add(entry.len)));
    let report = carton.verify(Work::new(observer, &name, Action::Verify, total))?;
    match report.findings.len() {
        0 => Ok(()),
        problems => Err(Error::Damaged { path: carton.path().to_owned(), problems }),
    }
}

/// The number of threads that the caller or the carton wants.
fn threads(path: &Path, config: &Config, options: &OpenOptions) -> Result<Option<usize>> {
    if options.threads.is_some() {
        return Ok(options.threads);
    }
    let Some(value) = config.runner.opts.get(NUM_THREADS) else { return Ok(None) };
    let number =
        value.as_integer().and_then(|number| usize::try_from(number).ok()).filter(|number| *number > 0);
    let failed =
        || Error::RunnerOption { path: path.to_owned(), name: NUM_THREADS, found: value.to_string() };
    number.map(Some).ok_or_else(failed)
}

/// The ports of carton.toml, or those of the model where it declares none.
fn declared(
    path: &Path,
    config: &Config,
    model: Option<(Vec<Port>, Vec<Port>)>,
    tensors: &Tensors,
) -> Result<(Vec<Port>, Vec<Port>)> {
    let Some((inputs, outputs)) = model else {
        let has = |port: &Port| tensors.iter().any(|(name, _)| name == port.internal());
        let port = |port: &carton_format::Port| {
            let port = Port::new(port, false);
            if has(&port) {
                Ok(port)
            } else {
                Err(unknown(path, Side::Output, &port, &["the tensors of the model"]))
            }
        };
        if let Some(input) = config.inputs.first() {
            return Err(unknown(path, Side::Input, &Port::new(input, false), &["none"]));
        }
        return Ok((Vec::new(), config.outputs.iter().map(port).collect::<Result<_>>()?));
    };
    if config.inputs.is_empty() && config.outputs.is_empty() {
        return Ok((inputs, outputs));
    }
    let merged = |side: Side, declared: &[carton_format::Port], own: &[Port], known: &[&'static str]| {
        let port = |port: &carton_format::Port| {
            let port = Port::new(port, false);
            let optional = own.iter().find(|own| own.name == port.internal()).map(|own| own.optional);
            match optional {
                Some(optional) => Ok(Port { optional, ..port }),
                None => Err(unknown(path, side, &port, known)),
            }
        };
        declared.iter().map(port).collect::<Result<Vec<_>>>()
    };
    Ok((
        merged(Side::Input, &config.inputs, &inputs, &DecoderPort::INPUTS.map(DecoderPort::name))?,
        merged(Side::Output, &config.outputs, &outputs, &DecoderPort::OUTPUTS.map(DecoderPort::name))?,
    ))
}

fn unknown(path: &Path, side: Side, port: &Port, known: &[&'static str]) -> Error {
    let (path, name): (PathBuf, String) = (path.to_owned(), port.internal().to_owned());
    Error::Port { path, side, name, known: known.to_vec() }
}

const _: () = {
    const fn is_shared<T: Send + Sync + 'static>() {}
    // A server keeps it and uses it from its threads.
    is_shared::<Runnable>();
};

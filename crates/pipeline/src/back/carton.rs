//! The carton back end: the tensors become a module, and the module a carton, in one pass.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carton_format::{Config, DataType, Dimension, MODEL_PT, Port, Runner, Shape, TensorIndex};
use carton_writer::{Carton, Content, File, Written};
use mapped::{MappedFile, hex};
use serde::Serialize;
use sources::Companion;
use store::{IfExists, Output, file_name};
use tensor::{Dtype, Tensor};
use torchscript::{Converted, Kind};

use super::self_test::{SelfTestReport, Stored};
use super::{Job, Made, Outcome, carton_fields, stream};
use crate::observer::{self, Action, Step};
use crate::{ConvertOptions, Error, Fields, InvalidOption, Note, Observer, Result, Torch, model, naming};

/// Where the values that are not tensors are kept.
pub(crate) const VALUES: &str = "misc/checkpoint.json";
/// The folder of the companions.
const MISC: &str = "misc/";

/// What only the report about a carton has.
#[derive(Clone, Debug, Serialize)]
pub struct CartonReport {
    /// The SHA-256 of MANIFEST, which identifies the model; `None` after a dry run.
    pub manifest_sha256: Option<String>,
    /// What the module is: `weights`, or the name of an architecture.
    pub module: String,
    /// Why it is not a model that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_weights: Option<String>,
    /// The arguments and the result of the `forward` of a TorchScript module that keeps its code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// What the module takes, as far as carton.toml lists it.
    pub inputs: Vec<PortReport>,
    /// What it returns.
    pub outputs: Vec<PortReport>,
    /// The self test that was stored, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_test: Option<SelfTestReport>,
    /// The names of the files in `misc/`.
    pub misc: Vec<String>,
    /// Whether one of them is a tokenizer.
    pub has_tokenizer: bool,
}

impl CartonReport {
    /// Whether the module is a model that runs.
    pub fn is_model(&self) -> bool {
        self.module != Kind::Weights.to_string()
    }

    /// Whether the module takes tokens.
    pub fn is_decoder(&self) -> bool {
        self.is_model() && self.module != Kind::Script.to_string()
    }
}

/// An input or output of the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// Its dtype.
    pub dtype: &'static str,
    /// Its dimensions: numbers, or symbols for any size.
    pub shape: Vec<Dimension>,
    /// Whether it may be omitted.
    pub optional: bool,
}

/// Writes the tensors as a carton. `misc` are the files to keep in it.
///
/// # Errors
/// When the tensors do not become the module that the options ask for, the carton cannot be written, or the observer
/// stops the work.
pub(crate) fn write(mut job: Job<'_>, misc: &[Companion], notes: &mut Vec<Note>) -> Outcome<CartonReport> {
    let options = job.options;
    if let Err(error) = torchscript::loads_in_2_0(job.tensors)
        && options.torch == Torch::Carton
    {
        return Err(job.error(Error::Module(Box::new(error))));
    }
    let converted = match job.script.take() {
        Some(script) => *script,
        None => model::convert(&options.model, options.single, job.sources, job.tensors)?,
    };
    mapped::release_freed();
    if options.model.require_model && converted.kind == Kind::Weights {
        return Err(job.error(not_a_model(&converted)));
    }
    notes.extend(converted.notes.iter().cloned().map(Note::Module));
    if let Some(decoder::WhyWeights::ModelType { model_type }) = &converted.why {
        notes.push(Note::NoForward { model_type: model_type.clone() });
    }
    let values = job.values.document.take();
    if values.is_some() {
        notes.push(Note::ValuesKept { values: job.values.count });
    }
    let name = naming::model_name(options, job.sources);
    let self_test = options.self_test.then(|| Stored::new(&job, &converted, notes)).transpose()?;
    let tested = self_test.as_ref().map(Stored::report);
    let layout =
        Layout::new(options, &name, job.target, (&converted, job.tensors), misc, (values, self_test))?;
    notes.extend(layout.notes.iter().cloned());
    job.announce(notes);

    let carton = layout.carton(&converted);
    let (nbytes, manifest) = if options.dry_run {
        (carton.len().map_err(Error::Carton)?, None)
    } else {
        let check_inputs = || {
            job.check_unchanged()?;
            layout.check_unchanged()
        };
        let written = write_carton(&carton, job.target, options.if_exists, &check_inputs, job.observer)
            .map_err(|error| error.with_tensor(job.tensors))?;
        (written.len, Some(hex(&written.manifest_hash)))
    };
    let misc_names = layout.misc_names();
    // carton.toml lists a million outputs, and so does the report.
    drop(carton);
    drop(layout);
    let Converted { archive, inputs, outputs, kind, why, signature, .. } = converted;
    drop(archive);
    mapped::release_freed();
    let report = CartonReport {
        manifest_sha256: manifest,
        module: kind.to_string(),
        why_weights: why.as_ref().map(ToString::to_string),
        signature,
        inputs: inputs.into_iter().map(port_report).collect(),
        outputs: outputs.ports(job.tensors).map(port_report).collect(),
        self_test: tested,
        misc: misc_names,
        has_tokenizer: sources::has_tokenizer(misc),
    };
    Ok(Made { nbytes, report })
}

/// A carton that is laid out and not written.
pub(crate) struct Layout {
    config: String,
    index: String,
    misc: Vec<(String, Arc<MappedFile>)>,
    values: Option<String>,
    /// The tensors of the self test: their paths, and their bytes.
    tensors: Vec<(String, Vec<u8>)>,
    pub(crate) notes: Vec<Note>,
}

impl Layout {
    /// Checks everything that can be checked before the first byte is written.
    pub(crate) fn new(
        options: &ConvertOptions,
        name: &str,
        target: &Path,
        (converted, tensors): (&Converted, &[(String, Tensor)]),
        misc: &[Companion],
        (values, self_test): (Option<String>, Option<Stored>),
    ) -> Result<Self> {
        let has = |path: &str| {
            let is_companion = misc.iter().any(|(name, _)| path.strip_prefix(MISC) == Some(name));
            is_companion || (path == VALUES && values.is_some())
        };
        let mut outputs = converted.outputs.ports(tensors).map(port);
        let mut config =
            Config::new(Runner::new("torchscript", required_torch(options, converted).required_version(), 1));
        config.model_name = Some(name.to_owned());
        config.inputs = converted.inputs.iter().cloned().map(port).collect::<Result<_>>()?;
        if options.config.is_some() || self_test.is_some() {
            config.outputs = outputs.by_ref().collect::<Result<_>>()?;
        }
        if let Some(file) = &options.config {
            config = carton_fields::merged(&config, file, &has)?;
        }
        let (mut index, mut tensors) = (TensorIndex::default(), Vec::new());
        if let Some(stored) = self_test {
            config.self_tests.push(stored.test);
            (index, tensors) = (stored.index, stored.files);
        }
        set_fields(&mut config, &options.fields);
        let problems = config.check(&index, &has);
        if !problems.0.is_empty() {
            return Err(Error::Document { path: target.to_owned(), problems });
        }
        let unknown = config.unknown_fields();
        let notes = match &options.config {
            Some(file) if !unknown.is_empty() => {
                vec![Note::UnknownFields { file: file_name(file), fields: unknown }]
            }
            _ => Vec::new(),
        };
        let map = |(name, path): &Companion| {
            Ok((format!("{MISC}{name}"), Arc::new(MappedFile::open(path).map_err(Error::Map)?)))
        };
        let misc = misc.iter().map(map).collect::<Result<_>>()?;
        let mut wrong = Ok(());
        let outputs = outputs.map_while(|port| port.map_err(|error| wrong = Err(error)).ok());
        let config = config.to_toml_with(outputs)?;
        wrong?;
        Ok(Self { config, index: index.to_toml()?, misc, values, tensors, notes })
    }

    /// The names of the files in `misc/`.
    pub(crate) fn misc_names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.misc.iter().filter_map(|(path, _)| Some(path.strip_prefix(MISC)?.to_owned())).collect();
        if self.values.is_some() {
            names.push(VALUES.trim_start_matches(MISC).to_owned());
        }
        names
    }

    /// Fails when one of the files in `misc/` changed since it was opened.
    pub(crate) fn check_unchanged(&self) -> io::Result<()> {
        self.misc.iter().try_for_each(|(_, map)| map.check_unchanged())
    }

    /// The carton around `converted`.
    pub(crate) fn carton<'b>(&'b self, converted: &'b Converted) -> Carton<'b> {
        let mut files = vec![
            File::new(Config::PATH, Content::Bytes(self.config.as_bytes())),
            File::new(TensorIndex::PATH, Content::Bytes(self.index.as_bytes())),
        ];
        files.extend(self.tensors.iter().map(|(path, bytes)| File::new(path, Content::Bytes(bytes))));
        files.extend(self.misc.iter().map(|(path, map)| File::new(path, Content::Blob(map))));
        if let Some(values) = &self.values {
            files.push(File::new(VALUES, Content::Bytes(values.as_bytes())));
        }
        files.push(File::new(MODEL_PT, Content::Blob(&converted.archive)));
        Carton::new(files)
    }
}

/// The PyTorch that the module needs.
fn required_torch(options: &ConvertOptions, converted: &Converted) -> Torch {
    if converted.notes.iter().any(torchscript::Note::is_newer) { Torch::Newest } else { options.torch }
}

/// Writes a carton to `target`, whole or not at all. `check_inputs` is called once everything is written: it fails when
/// one of the inputs changed meanwhile.
///
/// # Errors
/// When a source cannot be read, is damaged or changed, `target` cannot be written, or `observer` stops the work.
pub fn write_carton(
    carton: &Carton<'_>,
    target: &Path,
    if_exists: IfExists,
    check_inputs: &dyn Fn() -> io::Result<()>,
    observer: &dyn Observer,
) -> Result<Written> {
    let len = carton.len().map_err(|error| failed(target, error))?;
    let mut output = Output::create(target, len)?;
    let name = file_name(target);
    let mut progress = |done| {
        let step = Step { name: &name, action: Action::Write, done, total: Some(len) };
        observer::advance(observer, step)
    };
    let written = carton.write(&mut output, &mut progress).map_err(|error| failed(target, error))?;
    check_inputs().map_err(|reason| failed(target, carton_writer::Error::Read(reason)))?;
    output.commit(if_exists)?;
    Ok(written)
}

/// Which of the files is the reason that a carton was not written.
fn failed(target: &Path, error: carton_writer::Error) -> Error {
    match error {
        carton_writer::Error::Cancelled(_) => Error::Cancelled,
        carton_writer::Error::Write(reason) => Error::Write { path: target.to_owned(), reason },
        carton_writer::Error::Read(reason) => stream::read_error(target, reason),
        error => Error::Carton(error),
    }
}

/// Sets the fields that were given.
fn set_fields(config: &mut Config, fields: &Fields) {
    for (field, given) in [
        (&mut config.model_name, &fields.name),
        (&mut config.short_description, &fields.short_description),
        (&mut config.model_description, &fields.description),
        (&mut config.license, &fields.license),
        (&mut config.repository, &fields.repository),
        (&mut config.homepage, &fields.homepage),
    ] {
        if given.is_some() {
            field.clone_from(given);
        }
    }
}

/// An input or output of a TorchScript module in Carton's terms.
fn port(port: torchscript::Port) -> Result<Port> {
    let dtype = match port.dtype {
        Dtype::Float32 => DataType::Float32,
        Dtype::Float64 => DataType::Float64,
        Dtype::Int8 => DataType::Int8,
        Dtype::Int16 => DataType::Int16,
        Dtype::Int32 => DataType::Int32,
        Dtype::Int64 => DataType::Int64,
        Dtype::UInt8 => DataType::UInt8,
        Dtype::UInt16 => DataType::UInt16,
        Dtype::UInt32 => DataType::UInt32,
        Dtype::UInt64 => DataType::UInt64,
        dtype => return Err(Error::Port { name: port.name, dtype }),
    };
    let dimensions = port.shape.into_iter().map(|dim| match dim {
        torchscript::Dim::Symbol(name) => Dimension::Symbol(name),
        torchscript::Dim::Size(size) => Dimension::Size(size),
    });
    let shape = Shape::Dimensions(dimensions.collect());
    let optional = |text| if port.optional { format!("optional: {text}") } else { text };
    let description = port.description.map(optional);
    Ok(Port { description, ..Port::new(&port.name, dtype, shape) })
}

/// The files for `misc/`: the companions of the checkpoint and the given ones, which win. And notes on companions that
/// are left out.
pub(crate) fn misc(given: &[PathBuf], checkpoint: &Path) -> Result<(Vec<Companion>, Vec<Note>)> {
    let mut all: Vec<Companion> = Vec::new();
    for path in given {
        if !path.is_file() {
            return Err(InvalidOption::MiscMissing { path: path.clone() }.into());
        }
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(InvalidOption::MiscName { path: path.clone() }.into());
        };
        if all.iter().any(|(other, _)| other == name) {
            return Err(InvalidOption::MiscTwice { name: name.to_owned() }.into());
        }
        all.push((name.to_owned(), path.clone()));
    }
    let (mut companions, mut left_out) = sources::companions(checkpoint)?;
    let is_given = |name: &str| all.iter().any(|(other, _)| other == name);
    companions.retain(|(name, _)| !is_given(name));
    left_out.retain(|note| match note {
        sources::Note::LinkLeftOut { path, .. } => !is_given(&file_name(path)),
        _ => true,
    });
    all.extend(companions);
    all.sort();
    Ok((all, left_out.into_iter().map(Note::Sources).collect()))
}

pub(super) fn port_report(port: torchscript::Port) -> PortReport {
    let dimension = |dim: torchscript::Dim| match dim {
        torchscript::Dim::Symbol(symbol) => Dimension::Symbol(symbol),
        torchscript::Dim::Size(size) => Dimension::Size(size),
    };
    PortReport {
        name: port.name,
        dtype: port.dtype.name(),
        shape: port.shape.into_iter().map(dimension).collect(),
        optional: port.optional,
    }
}

fn not_a_model(converted: &Converted) -> Error {
    let why = converted.why.as_ref().map(ToString::to_string);
    Error::NotAModel { why: why.unwrap_or_else(|| "weights were asked for".to_owned()) }
}

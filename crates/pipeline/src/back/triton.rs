//! The Triton back end: a model repository with one model, or one more model in a repository that is there.

use std::path::PathBuf;

use decoder::Decoder;
use mapped::Blob;
use serde::Serialize;
use store::Output;
use tensor::Dtype;
use torchscript::Converted;
use triton_repository::{CONFIG, DataType, Dim, MODEL, ModelConfig, Port, is_model_name};

use super::carton::{PortReport, port_report};
use super::folder::{NewFolder, whole};
use super::{Job, Made, Outcome, stream};
use crate::observer::{self, Action, Step};
use crate::{Architecture, Error, InvalidOption, Note, OutputKind, Result, model, naming, script};

/// What only the report about a Triton repository has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TritonReport {
    /// The name of the model, which is that of its folder in the repository.
    pub model: String,
    /// The architecture that it runs.
    pub module: String,
    /// What requests contain.
    pub inputs: Vec<PortReport>,
    /// What responses contain.
    pub outputs: Vec<PortReport>,
    /// The paths of the files in the repository.
    pub files: Vec<String>,
}

/// Writes the tensors as a model for Triton's PyTorch backend.
///
/// # Errors
/// When the tensors are not a model that runs, a file cannot be written, or the observer stops the work.
pub(crate) fn write(job: &Job<'_>, notes: &mut Vec<Note>) -> Outcome<TritonReport> {
    let converted = positional(job)?;
    mapped::release_freed();
    notes.extend(converted.notes.iter().cloned().map(Note::Module));
    if job.values.count > 0 {
        notes.push(Note::ValuesLeftOut { values: job.values.count });
    }
    let files = Files::new(job, &converted)?;
    files.check(job)?;
    job.announce(notes);
    if !job.options.dry_run {
        files.write(job, &converted)?;
    }
    let nbytes = converted.archive.len().saturating_add(files.config.len() as u64);
    let Converted { inputs, outputs, kind, .. } = converted;
    let model = files.name;
    let report = TritonReport {
        module: kind.to_string(),
        inputs: inputs.into_iter().map(port_report).collect(),
        outputs: outputs.ports(job.tensors).map(port_report).collect(),
        files: [CONFIG, MODEL].map(|path| format!("{model}/{path}")).to_vec(),
        model,
    };
    Ok(Made { nbytes, report })
}

/// The model that the options ask for, with a `forward` as Triton calls it.
fn positional(job: &Job<'_>) -> Result<Converted> {
    let options = &job.options.model;
    if let Some(decoder) = job.decoder {
        // A carton's module has the tensors that it is to keep.
        return positional_of(job, decoder, true);
    }
    let converted = model::convert(options, job.options.single, job.sources, job.tensors)?;
    let Some(decoder) = &converted.decoder else {
        let weights = options.architecture == Architecture::Weights;
        let is_script = !weights && script::has_code(job.containers);
        let nothing = Error::NothingToServe { why: converted.why };
        return Err(job.error(if is_script { Error::ScriptToServe } else { nothing }));
    };
    positional_of(job, decoder, options.keep_extra)
}

fn positional_of(job: &Job<'_>, decoder: &Decoder, keep_extra: bool) -> Result<Converted> {
    torchscript::positional(decoder, job.tensors, keep_extra)
        .map_err(|error| job.error(Error::Module(Box::new(error))))
}

/// The files of the model, not written yet.
struct Files {
    name: String,
    /// The text of the configuration.
    config: String,
    folder: PathBuf,
}

impl Files {
    fn new(job: &Job<'_>, converted: &Converted) -> Result<Self> {
        let name = naming::model_name(job.options, job.sources);
        if !is_model_name(&name) {
            return Err(InvalidOption::TritonName { name }.into());
        }
        let config = ModelConfig {
            inputs: converted.inputs.iter().cloned().map(port).collect::<Result<_>>()?,
            outputs: converted.outputs.ports(job.tensors).map(port).collect::<Result<_>>()?,
        };
        let folder = job.target.join(&name);
        Ok(Self { name, config: config.to_string(), folder })
    }

    /// In the order in which they take their places: Triton loads a model when it has a configuration.
    fn paths(&self) -> [PathBuf; 2] {
        [MODEL, CONFIG].map(|path| self.folder.join(path))
    }

    /// Fails if one of them cannot be written. Other models of the repository stay as they are.
    fn check(&self, job: &Job<'_>) -> Result<()> {
        let [model, config] = self.paths();
        let path = job.target.to_owned();
        let is_file_name = OutputKind::from_path(&path).is_some_and(|kind| kind != OutputKind::Triton);
        if is_file_name && !path.is_dir() {
            return Err(InvalidOption::NotAFolder { path }.into());
        }
        if path.join(CONFIG).exists() {
            return Err(InvalidOption::NotARepository { path }.into());
        }
        for folder in [job.target, &self.folder, store::folder(&model)] {
            if folder.exists() && !folder.is_dir() {
                return Err(InvalidOption::NotAFolder { path: folder.to_owned() }.into());
            }
        }
        let inputs: Vec<_> = job.sources.inputs().collect();
        for path in [model, config].iter().filter(|path| store::folder(path).is_dir()) {
            store::check_target(path, &inputs, job.options.if_exists)?;
        }
        Ok(())
    }

    fn write(&self, job: &Job<'_>, converted: &Converted) -> Result<()> {
        let [path, config] = self.paths();
        // After a failure they are dropped in the reverse order, in which they are empty.
        let repository = NewFolder::create(job.target)?;
        let model = NewFolder::create(&self.folder)?;
        let version = NewFolder::create(store::folder(&path))?;
        let nbytes = converted.archive.len();
        let mut archive = Output::create(&path, nbytes)?;
        let mut progress = |done| {
            let step = Step { name: &self.name, action: Action::Write, done, total: Some(nbytes) };
            observer::advance(job.observer, step)
        };
        stream::write(&converted.archive, (&mut archive, &path), &mut progress)
            .map_err(|error| error.with_tensor(job.tensors))?;
        let config = whole(&config, self.config.as_bytes())?;
        job.check_unchanged().map_err(|reason| stream::read_error(&path, reason))?;
        archive.commit(job.options.if_exists)?;
        config.commit(job.options.if_exists)?;
        [repository, model, version].into_iter().for_each(NewFolder::keep);
        Ok(())
    }
}

/// An input or output of a TorchScript module in Triton's terms.
fn port(port: torchscript::Port) -> Result<Port> {
    let data_type = match port.dtype {
        Dtype::Bool => DataType::Bool,
        Dtype::UInt8 => DataType::UInt8,
        Dtype::Int8 => DataType::Int8,
        Dtype::Int16 => DataType::Int16,
        Dtype::Int32 => DataType::Int32,
        Dtype::Int64 => DataType::Int64,
        Dtype::Float16 => DataType::Fp16,
        Dtype::Float32 => DataType::Fp32,
        Dtype::Float64 => DataType::Fp64,
        dtype => return Err(Error::TritonPort { name: port.name, dtype }),
    };
    let dims = port.shape.into_iter().map(|dim| match dim {
        torchscript::Dim::Symbol(_) => Dim::Any,
        torchscript::Dim::Size(size) => Dim::Size(size),
    });
    Ok(Port { name: port.name, data_type, dims: dims.collect() })
}

//! The Triton back end: writes a model repository with one model, or adds a model to an existing repository.

mod config;

use std::path::Path;

use decoder::Decoder;
use serde::{Deserialize, Serialize};
use tensor::Dtype;
use torch_import::Container;
use torchscript::{Module, ModuleCode, OnInvalidInput, ScriptOptions};

use self::config::{CONFIG_PATH, DataType, Dim, MODEL_PATH, ModelConfig, ModelPort, is_model_name};
use super::carton::CARTON;
use super::ports::PortReport;
use super::{ModuleOptions, NonTensorParts, Output, OutputJob, OutputPlan, has_torchscript, output_format};
use crate::input::script;
use crate::note_collector::NoteCollector;
use crate::options::model_options::{self, ArchitectureChoice, ModelOptions};
use crate::report::{file_names_line, module_line};
use crate::{InvalidOption, Note, OutputFormat, OutputReport, Problem, Result};
use output::{OutputDocuments, OutputFiles, PlannedFile};

pub(crate) static TRITON: OutputFormat = output_format!(
    TritonOptions,
    "triton",
    ["triton"],
    "A model in a folder that NVIDIA Triton serves (a model repository); other models there stay"
);

/// Options for adding a model to a Triton repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct TritonOptions {
    /// The model's name [default: the file's stem, or its folder for names like model.pt]
    #[cfg_attr(feature = "cli", arg(long))]
    pub name: Option<String>,
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub model: ModelOptions,
    /// Options for calling an input that is a TorchScript module.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub script: ScriptOptions,
}

impl TritonOptions {
    /// Sets the name of the model.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Sets the architecture and the treatment of unused tensors.
    #[must_use]
    pub fn model(self, model: ModelOptions) -> Self {
        Self { model, ..self }
    }

    /// Sets the options for calling a TorchScript module.
    #[must_use]
    pub fn script(self, script: ScriptOptions) -> Self {
        Self { script, ..self }
    }
}

/// Report fields that only a Triton repository has.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TritonReport {
    /// Name of the model and of its folder in the repository.
    pub model: String,
    /// Kind of module: `script`, or the name of an architecture.
    pub module: String,
    /// Arguments and result of the original `forward`, for a TorchScript module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Tensors of a request.
    pub inputs: Vec<PortReport>,
    /// Tensors of a response.
    pub outputs: Vec<PortReport>,
    /// Paths of the files, relative to the repository.
    pub files: Vec<String>,
}

impl OutputReport for TritonReport {
    fn module(&self) -> Option<String> {
        Some(module_line(&self.module, self.signature.as_deref(), &self.inputs, &self.outputs))
    }

    fn summary(&self) -> Vec<(&'static str, String)> {
        file_names_line(&self.files, true).into_iter().collect()
    }
}

/// Writes a model for Triton's PyTorch backend.
impl Output for TritonOptions {
    fn format(&self) -> &'static OutputFormat {
        &TRITON
    }

    fn plan<'p>(
        &'p self,
        job: &OutputJob<'p>,
        kept: NonTensorParts,
        notes: &mut NoteCollector<'_>,
    ) -> Result<OutputPlan<'p>> {
        let converted = match kept.script {
            Some(script) => *script,
            None => self.positional_module(job)?,
        };
        byte_source::report_memory_freed();
        notes.extend(converted.notes.into_iter().map(Note::Module));
        let keeps_values = matches!(converted.code, ModuleCode::Script { .. });
        if job.values > 0 && !keeps_values {
            notes.push(Note::ValuesLeftOut { values: job.values });
        }
        if !is_model_name(job.name) {
            return Err(InvalidOption::TritonName { name: job.name.to_owned() }.into());
        }
        let config = ModelConfig {
            inputs: converted.inputs.iter().cloned().map(triton_port).collect::<Result<_>>()?,
            outputs: converted.outputs.ports(job.tensors).map(triton_port).collect::<Result<_>>()?,
        };
        if let Some(name) = config.misnumbered_output() {
            return Err(job.at_input(Problem::TritonOutputNumber { name: name.to_owned() }));
        }
        let folder = job.target.join(job.name);
        let model = folder.join(MODEL_PATH);
        let version = output::parent_folder(&model).to_owned();
        let mut documents = OutputDocuments::default();
        // Triton loads a model once it has a configuration, so the configuration is written last.
        documents.add(folder.join(CONFIG_PATH), config.to_string());
        let weights = PlannedFile { name: job.name.to_owned(), ..PlannedFile::new(model, converted.archive) };
        let folders = vec![job.target.to_owned(), folder, version];
        let files = OutputFiles { weights: vec![weights], documents, folders, ..OutputFiles::default() };
        check(&files, job)?;
        let report = TritonReport {
            model: job.name.to_owned(),
            module: converted.code.name().to_owned(),
            signature: match &converted.code {
                ModuleCode::Script { signature } => Some(signature.clone()),
                _ => None,
            },
            inputs: converted.inputs.into_iter().map(PortReport::from).collect(),
            outputs: converted.outputs.ports(job.tensors).map(PortReport::from).collect(),
            files: [CONFIG_PATH, MODEL_PATH].map(|path| format!("{}/{path}", job.name)).to_vec(),
        };
        Ok(OutputPlan::new(files, || report))
    }

    fn check_targets(&self) -> Result<()> {
        if self.script.keep_unchanged {
            let (name, to, outputs) = ("no_wrap".to_owned(), TRITON.name(), vec![CARTON.name()]);
            return Err(InvalidOption::OtherOutput { name, to, outputs }.into());
        }
        script::check_options(&self.script)?;
        model_options::check_name(self.name.as_deref())
    }

    fn is_folder(&self, _: Option<&Path>, _: bool) -> bool {
        true
    }

    fn is_repository(&self) -> bool {
        true
    }

    fn is_tensor_file(&self) -> bool {
        false
    }

    fn needs_forward(&self) -> bool {
        true
    }

    fn module_options(&self) -> Option<ModuleOptions<'_>> {
        Some(ModuleOptions { model: &self.model, script: &self.script, errors: None })
    }

    fn model_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn is_complete(&self, output: &Path) -> bool {
        output.join(CONFIG_PATH).is_file() && Container::open(&output.join(MODEL_PATH)).is_ok()
    }
}

impl TritonOptions {
    /// Converts the tensors into a module with positional inputs, as Triton calls it.
    fn positional_module(&self, job: &OutputJob<'_>) -> Result<Module> {
        if let Some(decoder) = &job.model.decoder {
            // Keeps extra tensors: a carton's module contains only tensors that it is to keep.
            return positional(job, decoder, true);
        }
        let converted = job.to_module(&self.model, OnInvalidInput::default())?;
        let why = match converted.code {
            ModuleCode::Decoder(decoder) => return positional(job, &decoder, self.model.keep_extra),
            ModuleCode::Weights { why } => why,
            _ => None,
        };
        let weights = self.model.architecture == ArchitectureChoice::Weights;
        let is_script = !weights && has_torchscript(&job.model.containers);
        Err(job.at_input(if is_script {
            Problem::ScriptToServe { why: None }
        } else {
            Problem::NothingToServe { why }
        }))
    }
}

fn positional(job: &OutputJob<'_>, decoder: &Decoder, keep_extra: bool) -> Result<Module> {
    torchscript::positional_decoder_module(decoder, job.tensors, keep_extra)
        .map_err(|error| job.at_input(error))
}

/// Checks that all files can be written. Other models in the repository are not touched.
fn check(files: &OutputFiles<'_>, job: &OutputJob<'_>) -> Result<()> {
    let path = job.target.to_owned();
    let is_file_name = OutputFormat::from_path(&path).is_some_and(|format| *format != TRITON);
    if is_file_name && !path.is_dir() {
        return Err(InvalidOption::NotAFolder { path }.into());
    }
    let store = job.destination.store_of(&path)?;
    let config = path.join(CONFIG_PATH);
    let is_model = match store {
        Some(store) => store
            .stat(&config)
            .map_err(|reason| byte_source::FileError::Write { path: config, reason })?
            .is_some(),
        None => config.exists(),
    };
    if is_model {
        return Err(InvalidOption::NotARepository { path }.into());
    }
    let inputs = job.inputs();
    if store.is_some() {
        let mut paths = files.paths();
        return paths.try_for_each(|path| job.destination.check_target(path, &inputs, job.if_exists));
    }
    if let Some(folder) = files.folders.iter().find(|folder| folder.exists() && !folder.is_dir()) {
        return Err(InvalidOption::NotAFolder { path: folder.clone() }.into());
    }
    for path in files.paths().filter(|path| output::parent_folder(path).is_dir()) {
        output::check_target(path, &inputs, job.if_exists)?;
    }
    Ok(())
}

/// Converts an input or output of a TorchScript module to Triton's type.
fn triton_port(port: torchscript::ModulePort) -> Result<ModelPort> {
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
        dtype => return Err(Problem::TritonPort { name: port.name, dtype }.into()),
    };
    let dims = port.shape.into_iter().map(|dim| match dim {
        torchscript::Dim::Symbol(_) => Dim::Any,
        torchscript::Dim::Size(size) => Dim::Size(size),
    });
    Ok(ModelPort { name: port.name, data_type, dims: dims.collect() })
}

//! Files of a carton besides its module: carton.toml, the tensors of a self test, and the files in `misc/`.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use byte_source::{Blob, MappedFile, Observer};
use carton_format::{Config, DataType, Dimension, MODEL_PT, Port, Runner, Shape, TensorIndex};
use carton_writer::{CartonLayout, CartonMember, EntryContent};
use open::VALUES_PATH;
use open::files::Companion;
use output::file_name;
use tensor::Dtype;
use toml::Table;
use torchscript::Module;

use super::fields;
use super::options::{CartonFields, CartonOptions, RequiredTorch};
use super::self_test::PlannedSelfTest;
use crate::back::OutputJob;
use crate::error::at;
use crate::note_collector::NoteCollector;
use crate::{Note, Problem, Result};

/// Folder of the companions in the carton.
const MISC_FOLDER: &str = "misc/";

/// Table of `carton.toml` for the fields of this program, which Carton does not define.
const OWN_TABLE: &str = "torch2carton";
/// Key of the digest of the tensors in the table.
const DIGEST_KEY: &str = "digest";
/// Key in the table for what an incomplete model lacks.
const INCOMPLETE_KEY: &str = "incomplete";
/// Text as long as a digest, which stands in the configuration while the carton is laid out.
const DIGEST_PLACEHOLDER: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Files of a carton besides its module.
pub(super) struct NonModuleFiles<'j> {
    config: String,
    index: String,
    misc: Vec<(String, MiscContent)>,
    values: Option<String>,
    self_test: Option<PlannedSelfTest<'j>>,
    /// Digest of the tensors, which replaces its placeholder in `config` before the carton is written.
    digest: Option<Rc<OnceCell<String>>>,
}

/// Content of a file in `misc/`.
enum MiscContent {
    Mapped(Arc<MappedFile>),
    /// Document that replaces the file next to the checkpoint.
    Bytes(Vec<u8>),
}

impl<'j> NonModuleFiles<'j> {
    /// Lays out the files and checks the documents.
    ///
    /// # Errors
    /// When a document does not follow the specification, or a file to keep cannot be mapped.
    pub(super) fn new(
        options: &CartonOptions,
        job: &OutputJob<'j>,
        converted: &Module,
        values: Option<String>,
        self_test: Option<PlannedSelfTest<'j>>,
        notes: &mut NoteCollector<'_>,
    ) -> Result<Self> {
        let has = |path: &str| {
            let is_companion = job.misc.iter().any(|(name, _)| path.strip_prefix(MISC_FOLDER) == Some(name));
            is_companion || (path == VALUES_PATH && values.is_some())
        };
        let mut outputs = converted.outputs.ports(job.tensors).map(carton_port);
        let mut config =
            Config::new(Runner::new("torchscript", required_torch(options, converted).required_version(), 1));
        config.model_name = Some(job.name.to_owned());
        config.inputs = converted.inputs.iter().cloned().map(carton_port).collect::<Result<_>>()?;
        if options.config.is_some() || self_test.is_some() {
            config.outputs = outputs.by_ref().collect::<Result<_>>()?;
        }
        if let Some(file) = &options.config {
            config = fields::merge_fields_file(&config, file, &has)?;
        }
        let no_tensors = TensorIndex::default();
        let index = self_test.as_ref().map_or(&no_tensors, |stored| &stored.index);
        config.self_tests.extend(self_test.as_ref().map(|stored| stored.test.clone()));
        set_fields(&mut config, &options.fields);
        let problems = config.check(index, &has);
        if !problems.0.is_empty() {
            return Err(at(job.target)(open::Problem::Document(problems)));
        }
        let unknown = config.unknown_fields();
        if let Some(file) = options.config.as_ref().filter(|_| !unknown.is_empty()) {
            notes.push(Note::UnknownFields { file: file_name(file), fields: unknown });
        }
        let own = [
            (DIGEST_KEY, job.digest.as_ref().map(|_| DIGEST_PLACEHOLDER.to_owned())),
            (INCOMPLETE_KEY, job.incomplete()),
        ];
        for (key, text) in own.into_iter().filter_map(|(key, text)| Some((key, text?))) {
            let table = config.other.entry(OWN_TABLE).or_insert_with(|| toml::Value::Table(Table::new()));
            if let toml::Value::Table(table) = table {
                table.insert(key.to_owned(), text.into());
            }
        }
        let map = |(name, path): &Companion| {
            let content = match &job.document {
                Some((replaced, text)) if replaced == name => MiscContent::Bytes(text.clone().into_bytes()),
                _ => MiscContent::Mapped(Arc::new(MappedFile::open(path)?)),
            };
            Ok((format!("{MISC_FOLDER}{name}"), content))
        };
        let mut misc = job.misc.iter().map(map).collect::<Result<Vec<_>>>()?;
        if !job.model.key_documents.is_empty() {
            let is_new = |name: &str| job.misc.iter().all(|(known, _)| known != name);
            let made = job.made_documents().filter(|(name, _)| is_new(name));
            misc.extend(
                made.map(|(name, bytes)| (format!("{MISC_FOLDER}{name}"), MiscContent::Bytes(bytes))),
            );
        }
        let mut wrong = Ok(());
        let outputs = outputs.map_while(|port| port.map_err(|error| wrong = Err(error)).ok());
        let config = config.to_toml_with(outputs)?;
        wrong?;
        let index = index.to_toml()?;
        Ok(Self { config, index, misc, values, self_test, digest: job.digest.clone() })
    }

    /// Computes the logits of the self test, and writes the digest of the tensors into the configuration.
    ///
    /// # Errors
    /// When the model cannot run, or the observer stops the work.
    pub(super) fn prepare(&mut self, observer: &dyn Observer) -> Result<()> {
        if let Some(digest) = self.digest.as_ref().and_then(|digest| digest.get()) {
            let line = |digest: &str| format!("{DIGEST_KEY} = \"{digest}\"");
            self.config = self.config.replacen(&line(DIGEST_PLACEHOLDER), &line(digest), 1);
        }
        self.self_test.as_mut().map_or(Ok(()), |stored| stored.compute(observer))
    }

    /// Returns the names of the files in `misc/`, without the folder.
    pub(super) fn misc_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .misc
            .iter()
            .filter_map(|(path, _)| Some(path.strip_prefix(MISC_FOLDER)?.to_owned()))
            .collect();
        if self.values.is_some() {
            names.push(VALUES_PATH.trim_start_matches(MISC_FOLDER).to_owned());
        }
        names
    }

    /// Returns an error if one of the files in `misc/` changed since it was opened.
    pub(super) fn check_unchanged(&self) -> Result<(), byte_source::Error> {
        self.misc.iter().try_for_each(|(_, content)| match content {
            MiscContent::Mapped(map) => map.check_unchanged(),
            MiscContent::Bytes(_) => Ok(()),
        })
    }

    pub(super) fn carton<'b>(&'b self, model: &'b dyn Blob) -> CartonLayout<'b> {
        let mut files = vec![
            CartonMember::new(Config::PATH, EntryContent::Bytes(self.config.as_bytes())),
            CartonMember::new(TensorIndex::PATH, EntryContent::Bytes(self.index.as_bytes())),
        ];
        let tensors = self.self_test.iter().flat_map(|stored| &stored.files);
        files.extend(tensors.map(|(path, bytes)| CartonMember::new(path, EntryContent::Bytes(bytes))));
        files.extend(self.misc.iter().map(|(path, content)| {
            let content = match content {
                MiscContent::Mapped(map) => EntryContent::Blob(map),
                MiscContent::Bytes(bytes) => EntryContent::Bytes(bytes),
            };
            CartonMember::new(path, content)
        }));
        if let Some(values) = &self.values {
            files.push(CartonMember::new(VALUES_PATH, EntryContent::Bytes(values.as_bytes())));
        }
        files.push(CartonMember::new(MODEL_PT, EntryContent::Blob(model)));
        CartonLayout::new(files)
    }
}

/// Returns the PyTorch version required by the module.
fn required_torch(options: &CartonOptions, converted: &Module) -> RequiredTorch {
    if converted.notes.iter().any(torchscript::ModuleNote::is_newer) {
        RequiredTorch::Newest
    } else {
        options.torch
    }
}

/// Sets the fields that the options contain.
fn set_fields(config: &mut Config, fields: &CartonFields) {
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

/// Converts an input or output of a TorchScript module to Carton's type.
fn carton_port(port: torchscript::ModulePort) -> Result<Port> {
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
        dtype => return Err(Problem::Port { name: port.name, dtype }.into()),
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

//! The carton back end: carton.toml for a module, and the files that a carton holds, in one pass.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carton_format::{Config, DataType, Dimension, MODEL_PT, Port, Runner, Shape, TensorIndex};
use carton_writer::{Carton, Content, File, Written};
use mapped::MappedFile;
use sources::Companion;
use store::{IfExists, Output, file_name};
use tensor::{Dtype, Tensor};
use torchscript::Converted;

use super::carton_fields;
use crate::observer::{self, Action, Step};
use crate::{ConvertOptions, Error, Fields, InvalidOption, Note, Observer, Result};

/// Where the values that are not tensors are kept.
pub(crate) const VALUES: &str = "misc/checkpoint.json";
/// The folder of the companions.
const MISC: &str = "misc/";

/// A carton that is laid out and not written.
pub(crate) struct Layout {
    config: String,
    index: String,
    misc: Vec<(String, Arc<MappedFile>)>,
    values: Option<String>,
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
        values: Option<String>,
    ) -> Result<Self> {
        let has = |path: &str| {
            let is_companion = misc.iter().any(|(name, _)| path.strip_prefix(MISC) == Some(name));
            is_companion || (path == VALUES && values.is_some())
        };
        let mut outputs = converted.outputs(tensors).map(port);
        let mut config = Config::new(Runner::new("torchscript", options.torch.required_version(), 1));
        config.model_name = Some(name.to_owned());
        config.inputs = converted.inputs.iter().cloned().map(port).collect::<Result<_>>()?;
        if let Some(file) = &options.config {
            config.outputs = outputs.by_ref().collect::<Result<_>>()?;
            config = carton_fields::merged(&config, file, &has)?;
        }
        set_fields(&mut config, &options.fields);
        let problems = config.check(&TensorIndex::default(), &has);
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
        Ok(Self { config, index: TensorIndex::default().to_toml()?, misc, values, notes })
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
        files.extend(self.misc.iter().map(|(path, map)| File::new(path, Content::Blob(map))));
        if let Some(values) = &self.values {
            files.push(File::new(VALUES, Content::Bytes(values.as_bytes())));
        }
        files.push(File::new(MODEL_PT, Content::Blob(&converted.archive)));
        Carton::new(files)
    }
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
        carton_writer::Error::Read(reason) => {
            Error::of_read(&reason).unwrap_or_else(|| Error::Read { path: target.to_owned(), reason })
        }
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

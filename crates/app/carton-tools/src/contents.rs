//! What is in a carton: its configuration, its files, its tensors.

use std::path::Path;

use byte_source::{Observer, hex};
use carton_format::{Config, MODEL_PT, TensorSpec};
use carton_reader::{Carton, Entry, Method};
use serde::Serialize;
use tensor::Tensor;
use torch_import::Checkpoint;

use crate::open::{model, open};
use crate::own_tensors::own_tensors;
use crate::{Error, Note, Result, SCHEMA_VERSION};

/// What is in a carton.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ContentsReport {
    /// Version of these members.
    pub schema_version: u32,
    /// The carton as it was given.
    pub file: String,
    /// `carton`.
    pub format: &'static str,
    /// The SHA-256 of MANIFEST, which identifies the model; `None` where there is no MANIFEST.
    pub manifest_sha256: Option<String>,
    /// carton.toml.
    pub config: Config,
    /// The files that are there, sorted by path.
    pub files: Vec<FileRow>,
    /// The files that LINKS says where to fetch.
    pub absent: Vec<AbsentRow>,
    /// The tensors of the model under their own names, where `model/model.pt` is there and holds tensors.
    pub tensors: Vec<TensorRow>,
    /// The tensors of self tests and examples.
    pub tensor_data: Vec<TensorSpec>,
    /// What a person should know.
    pub notes: Vec<Note>,
}

/// A file of a carton.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FileRow {
    /// Its path in the carton.
    pub path: String,
    /// Its bytes, decompressed.
    pub nbytes: u64,
    /// Its bytes in the carton.
    pub packed_nbytes: u64,
    /// `stored`, `deflate`, `zstd`, or the number of another method.
    pub compression: String,
    /// Whether it is a link.
    pub link: bool,
}

/// A file that a carton leaves out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AbsentRow {
    /// Its path in the carton.
    pub path: String,
    /// Its SHA-256.
    pub sha256: String,
    /// Where to fetch it.
    pub urls: Vec<String>,
}

/// A tensor of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorRow {
    /// Its name.
    pub name: String,
    /// PyTorch's name of its dtype.
    pub dtype: &'static str,
    /// Its shape, in elements.
    pub shape: Vec<u64>,
    /// Bytes of its elements.
    pub nbytes: u64,
}

/// Lists what is in the carton or the unpacked folder at `path`. The elements of its tensors are not read, unless the
/// model is compressed.
///
/// # Errors
/// When it cannot be read, is not a carton, or its documents do not follow the specification.
pub fn contents(path: &Path) -> Result<ContentsReport> {
    let carton = open(path)?;
    let config = carton.config().map_err(Error::reader(path))?.document;
    let index = carton.tensor_index().map_err(Error::reader(path))?.document;
    let mut notes = Vec::new();
    // The model of another runner may have another format.
    let tensors = tensors(&carton, &()).unwrap_or_else(|error| {
        notes.push(Note::NoTensors { reason: without_path(path, &error) });
        Vec::new()
    });
    let absent = carton.absent();
    let absent = absent.iter().map(|(path, sha256)| AbsentRow {
        path: path.clone(),
        sha256: hex(sha256),
        urls: carton.links().urls(sha256).to_vec(),
    });
    Ok(ContentsReport {
        schema_version: SCHEMA_VERSION,
        file: path.display().to_string(),
        format: "carton",
        manifest_sha256: carton.manifest_hash().map(|hash| hex(&hash)),
        config,
        files: carton.entries().map(file).collect(),
        absent: absent.collect(),
        tensors: tensors.into_iter().map(row).collect(),
        tensor_data: index.tensors,
        notes,
    })
}

fn file(entry: &Entry) -> FileRow {
    FileRow {
        path: entry.path.clone(),
        nbytes: entry.len,
        packed_nbytes: entry.packed_len,
        compression: compression(entry.method),
        link: entry.link,
    }
}

fn compression(method: Method) -> String {
    match method {
        Method::Stored => "stored".to_owned(),
        Method::Deflated => "deflate".to_owned(),
        Method::Zstd => "zstd".to_owned(),
        Method::Other(number) => format!("method {number}"),
    }
}

/// Returns the tensors of the model under their own names; none if there is no `model/model.pt`. A model that is compressed
/// is decompressed into a temporary file first, which takes long.
///
/// # Errors
/// When the model is elsewhere, is damaged or has no tensors, and when `observer` stops the work.
pub fn tensors(carton: &Carton, observer: &dyn Observer) -> Result<Vec<(String, Tensor)>> {
    if carton.entry(MODEL_PT).is_err() {
        return Ok(Vec::new());
    }
    let model = model(carton, observer)?;
    let checkpoint = Checkpoint::read(&model).map_err(|reason| {
        let reason = carton_reader::Error::Model { path: MODEL_PT.to_owned(), reason: Box::new(reason) };
        Error::reader(carton.path())(reason)
    })?;
    let own = own_tensors(&checkpoint).into_iter();
    Ok(own.map(|(name, tensor)| (name.into_owned(), tensor.clone())).collect())
}

fn row((name, tensor): (String, Tensor)) -> TensorRow {
    TensorRow { name, dtype: tensor.dtype().name(), shape: tensor.shape().to_vec(), nbytes: tensor.nbytes() }
}

/// The report names the carton already.
fn without_path(path: &Path, error: &Error) -> String {
    let text = error.to_string();
    text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text).to_owned()
}

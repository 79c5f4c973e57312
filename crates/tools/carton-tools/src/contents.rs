//! Lists the contents of a carton: its configuration, files and tensors.

use std::path::Path;

use byte_source::{Observer, hex};
use carton_format::{Carton, CartonEntry, CompressionMethod, Config, MODEL_PT, TensorSpec};
use open::{open_model, own_tensors, read_model};
use serde::Serialize;
use tensor::Tensor;
use torch_import::Container;

use crate::error::at;
use crate::open::open;
use crate::script_outputs::script_outputs;
use crate::{CartonNote, Error, Result, SCHEMA_VERSION};

/// Contents of a carton: configuration, files and tensors.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ContentsReport {
    /// Version of the report's format.
    pub schema_version: u32,
    /// Path of the carton, as the caller gave it.
    pub file: String,
    /// Format name, which is always `carton`.
    pub format: &'static str,
    /// SHA-256 of MANIFEST, which identifies the model; `None` if there is no MANIFEST.
    pub manifest_sha256: Option<String>,
    /// Parsed contents of carton.toml.
    pub config: Config,
    /// Files in the carton, sorted by path.
    pub files: Vec<CartonFileRow>,
    /// Files that are not in the carton, with their URLs from LINKS.
    pub absent: Vec<AbsentFileRow>,
    /// Tensors of the model under their own names; empty if `model/model.pt` is absent or holds no tensors.
    pub tensors: Vec<CartonTensorRow>,
    /// Names of the outputs of a wrapped TorchScript module, of which carton.toml cannot say dtypes and shapes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub script_outputs: Vec<String>,
    /// Tensors of self tests and examples.
    pub tensor_data: Vec<TensorSpec>,
    pub notes: Vec<CartonNote>,
}

/// Size and compression of a file that a carton holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CartonFileRow {
    /// Path of the file in the carton.
    pub path: String,
    /// Decompressed size in bytes.
    pub nbytes: u64,
    /// Size in the carton, in bytes.
    pub packed_nbytes: u64,
    /// `stored`, `deflate`, `zstd`, or the number of another method.
    pub compression: String,
    /// True if the file is a symbolic link.
    pub link: bool,
}

/// File that MANIFEST lists and the carton leaves out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AbsentFileRow {
    /// Path of the file in the carton.
    pub path: String,
    pub sha256: String,
    /// URLs from which to fetch the file.
    pub urls: Vec<String>,
}

/// Dtype, shape and size of a tensor of the model in a carton.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CartonTensorRow {
    pub name: String,
    /// PyTorch's name of the dtype.
    pub dtype: &'static str,
    pub shape: Vec<u64>,
    /// Size of the elements in bytes, or of the blocks that are stored for them.
    pub nbytes: u64,
    /// Name of the blocks that are stored for the elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<&'static str>,
}

/// Lists the contents of the carton or the unpacked folder at `path`. Tensor elements are not read, unless the model is
/// compressed.
///
/// # Errors
/// Returns an error if the carton cannot be read, the path is not a carton, or a document does not follow the specification.
pub fn contents(path: &Path) -> Result<ContentsReport> {
    contents_of(&open(&path.into())?)
}

/// Reads the metadata, files and tensors of an open carton.
///
/// # Errors
/// Returns an error if the carton cannot be read, or a document does not follow the specification.
pub fn contents_of(carton: &Carton) -> Result<ContentsReport> {
    let path = carton.path();
    let config = carton.config().map_err(at(path))?.document;
    let index = carton.tensor_index().map_err(at(path))?.document;
    let mut notes = Vec::new();
    // The model of another runner may have another format.
    let model = tensors_of_model(carton, &()).unwrap_or_else(|error| {
        notes.push(CartonNote::NoTensors { reason: without_path(path, &error) });
        None
    });
    let (tensors, script_outputs) = match &model {
        Some((container, tensors)) => (tensors.as_slice(), script_outputs(container)),
        None => (&[][..], Vec::new()),
    };
    let absent = carton.absent();
    let absent = absent.iter().map(|(path, sha256)| AbsentFileRow {
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
        files: carton.entries().map(file_row).collect(),
        absent: absent.collect(),
        tensors: tensors.iter().map(tensor_row).collect(),
        script_outputs,
        tensor_data: index.tensors,
        notes,
    })
}

fn file_row(entry: &CartonEntry) -> CartonFileRow {
    CartonFileRow {
        path: entry.path.clone(),
        nbytes: entry.len,
        packed_nbytes: entry.packed_len,
        compression: compression_name(entry.method),
        link: entry.is_symbolic_link,
    }
}

fn compression_name(method: CompressionMethod) -> String {
    match method {
        CompressionMethod::Stored => "stored".to_owned(),
        CompressionMethod::Deflated => "deflate".to_owned(),
        CompressionMethod::Zstd => "zstd".to_owned(),
        CompressionMethod::Other(number) => format!("method {number}"),
    }
}

/// Returns the tensors of the model under their own names; none if there is no `model/model.pt`. A compressed model is
/// decompressed into a temporary file first, which takes long.
///
/// # Errors
/// Returns an error if the model is not in the carton although MANIFEST lists it, is damaged or has no tensors, and if
/// `observer` stops the work.
pub fn tensors(carton: &Carton, observer: &dyn Observer) -> Result<Vec<(String, Tensor)>> {
    Ok(tensors_of_model(carton, observer)?.map(|(_, tensors)| tensors).unwrap_or_default())
}

type NamedTensors = Vec<(String, Tensor)>;

/// Reads the model with its tensors; `None` if there is no `model/model.pt`.
fn tensors_of_model(carton: &Carton, observer: &dyn Observer) -> Result<Option<(Container, NamedTensors)>> {
    if carton.entry(MODEL_PT).is_err() {
        return Ok(None);
    }
    let model = open_model(carton, observer)?;
    let checkpoint = read_model(carton, &model)?;
    let own = own_tensors(&checkpoint).into_iter();
    let tensors = own.map(|(name, tensor)| (name.into_owned(), tensor.clone())).collect();
    Ok(Some((model, tensors)))
}

fn tensor_row((name, tensor): &(String, Tensor)) -> CartonTensorRow {
    let blocks = tensor.kept_q8_0_blocks();
    CartonTensorRow {
        name: name.clone(),
        dtype: tensor.dtype().name(),
        shape: tensor.shape().to_vec(),
        nbytes: blocks.as_ref().unwrap_or(tensor).nbytes(),
        blocks: blocks.map(|_| "Q8_0"),
    }
}

/// Returns the error's text without the path, which the report already has.
fn without_path(path: &Path, error: &Error) -> String {
    let text = error.to_string();
    text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text).to_owned()
}

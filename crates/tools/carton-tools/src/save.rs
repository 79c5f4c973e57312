//! Saves a tensor as a file that `numpy.load` reads.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{Action, FileError, Observer, ProgressReporter};
use open::NpyFile;
use output::{IfExists, OutputFile, check_target, file_name};
use serde::Serialize;
use tensor::Tensor;

use crate::{Error, Problem, Result, SCHEMA_VERSION};

/// Target of [`save_array`], and the most that it may grow.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SaveArrayOptions {
    pub output: PathBuf,
    pub if_exists: IfExists,
    /// Maximum size of the file as a multiple of the tensor's storage, because a view can repeat its bytes. A file that has at
    /// most 64 MiB more is always written.
    pub max_expansion: u64,
}

impl SaveArrayOptions {
    /// Creates options that write to `output`, and replace only a file of this program.
    pub fn new(output: impl Into<PathBuf>) -> Self {
        Self {
            output: output.into(),
            if_exists: IfExists::default(),
            max_expansion: open::DEFAULT_MAX_EXPANSION,
        }
    }
}

/// Path, size and dtype of the written array.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SaveArrayReport {
    /// Version of the report's format.
    pub schema_version: u32,
    /// Path of the carton, as the caller gave it.
    pub file: String,
    /// Name of the tensor.
    pub tensor: String,
    /// PyTorch's name of the tensor's dtype.
    pub dtype: &'static str,
    /// Dtype of the elements in the file, which differs from `dtype` if NumPy lacks that.
    pub saved_dtype: &'static str,
    pub shape: Vec<u64>,
    /// Path of the saved file.
    pub output: String,
    /// Size of the file in bytes.
    pub nbytes: u64,
}

/// Bytes that a file may have in addition to those of the tensor's storage, whatever its size.
const EXPANSION_BASE: u64 = 64 << 20;

/// Writes `tensor`, named `name` in the carton at `file`, as an [`NpyFile`].
///
/// # Errors
/// Returns an error if NumPy has no such dtype, the tensor cannot be read, the output cannot be written, or `observer` stops
/// the work.
pub fn save_array(
    file: &Path,
    name: &str,
    tensor: &Tensor,
    options: &SaveArrayOptions,
    observer: &dyn Observer,
) -> Result<SaveArrayReport> {
    let npy = npy_file(name, tensor)?;
    let nbytes = npy.nbytes();
    let (stored, factor) = (tensor.storage().len(), options.max_expansion);
    if nbytes > stored.saturating_mul(factor).max(stored.saturating_add(EXPANSION_BASE)) {
        return Err(Problem::Expansion { name: name.to_owned(), stored, nbytes, factor }.into());
    }
    check_target(&options.output, &[file], options.if_exists)?;
    let mut output = OutputFile::create(&options.output, nbytes)?;
    let name_of_output = file_name(&options.output);
    let progress = ProgressReporter::new(
        observer,
        &name_of_output,
        Action::Write,
        Some(tensor.numel().saturating_mul(npy.dtype().size())),
    );
    let failed = |reason| FileError::Write { path: options.output.clone(), reason }.into();
    npy.write(&mut output, &failed, &progress).map_err(|error| error.in_tensor(name))?;
    output.commit(options.if_exists)?;
    Ok(SaveArrayReport {
        schema_version: SCHEMA_VERSION,
        file: file.display().to_string(),
        tensor: name.to_owned(),
        dtype: tensor.dtype().name(),
        saved_dtype: npy.dtype().name(),
        shape: tensor.shape().to_vec(),
        output: options.output.display().to_string(),
        nbytes,
    })
}

/// Writes `tensor` as [`save_array`] does, to a stream such as standard output.
///
/// # Errors
/// Returns an error if NumPy has no such dtype, the tensor cannot be read, or `out` fails.
pub fn write_array(name: &str, tensor: &Tensor, out: &mut dyn io::Write) -> Result<()> {
    let failed = |reason| FileError::Output { what: "to standard output", reason }.into();
    let written = npy_file(name, tensor)?.write(out, &failed, &ProgressReporter::unobserved());
    written.map_err(|error| error.in_tensor(name))
}

/// Returns the file of a tensor whose numbers NumPy has, which packed and quantized ones are not.
fn npy_file(name: &str, tensor: &Tensor) -> Result<NpyFile> {
    let npy = NpyFile::new(tensor).map_err(|problem| Error::from(problem).in_tensor(name))?;
    if tensor.cast(npy.dtype()).is_none() {
        return Err(Error::from(Problem::NoNumpyDtype(tensor.dtype())).in_tensor(name));
    }
    Ok(npy)
}

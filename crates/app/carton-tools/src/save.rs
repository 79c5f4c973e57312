//! Saves a tensor as a file that `numpy.load` reads.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{Action, Blob, Observer, ProgressReporter, ReadError, Sink, Window};
use output::{IfExists, OutputFile, check_target, file_name};
use serde::Serialize;
use tensor::Tensor;

use crate::{Error, Result, SCHEMA_VERSION, npy};

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
            max_expansion: pipeline::DEFAULT_MAX_EXPANSION,
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

/// Writes `tensor`, named `name` in the carton at `file`, in NumPy's `.npy` format. bfloat16 and 8-bit floats become
/// float32, and complex32 becomes complex64; no number changes.
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
    let no_dtype = || Error::NoNumpyDtype { name: name.to_owned(), dtype: tensor.dtype() };
    let (header, dtype) = npy::npy_header(tensor).ok_or_else(no_dtype)?;
    let cast = tensor.cast(dtype).ok_or_else(no_dtype)?;
    let nbytes = (header.len() as u64).saturating_add(cast.nbytes());
    let (stored, factor) = (tensor.storage().len(), options.max_expansion);
    if nbytes > stored.saturating_mul(factor).max(stored.saturating_add(EXPANSION_BASE)) {
        return Err(Error::Expansion { name: name.to_owned(), stored, nbytes, factor });
    }
    check_target(&options.output, &[file], options.if_exists)?;
    let mut output = OutputFile::create(&options.output, nbytes)?;
    let failed = |reason| output::Error::Write { path: options.output.clone(), reason };
    io::Write::write_all(&mut output, &header).map_err(failed)?;
    let name_of_output = file_name(&options.output);
    let work = ProgressReporter::new(observer, &name_of_output, Action::Write, Some(cast.nbytes()));
    let mut sink = OutputSink { output: &mut output, work, done: 0, failed: None };
    let sent = cast.gathered().write_to(&mut sink);
    if let Some(reason) = sink.failed {
        return Err(failed(reason).into());
    }
    sent.map_err(|reason| Error::elements(name, reason))?;
    output.commit(options.if_exists)?;
    Ok(SaveArrayReport {
        schema_version: SCHEMA_VERSION,
        file: file.display().to_string(),
        tensor: name.to_owned(),
        dtype: tensor.dtype().name(),
        saved_dtype: dtype.name(),
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
    let no_dtype = || Error::NoNumpyDtype { name: name.to_owned(), dtype: tensor.dtype() };
    let (header, dtype) = npy::npy_header(tensor).ok_or_else(no_dtype)?;
    let cast = tensor.cast(dtype).ok_or_else(no_dtype)?;
    out.write_all(&header).map_err(Error::Stream)?;
    let work = ProgressReporter::new(&(), name, Action::Write, Some(cast.nbytes()));
    let mut sink = OutputSink { output: out, work, done: 0, failed: None };
    let sent = cast.gathered().write_to(&mut sink);
    if let Some(reason) = sink.failed {
        return Err(Error::Stream(reason));
    }
    sent.map_err(|reason| Error::elements(name, reason))
}

/// Sink that writes windows to the output, and keeps a write error apart from read errors.
struct OutputSink<'w, 'o> {
    output: &'w mut dyn io::Write,
    work: ProgressReporter<'o>,
    done: u64,
    failed: Option<io::Error>,
}

impl Sink for OutputSink<'_, '_> {
    fn write(&mut self, window: Window) -> Result<(), ReadError> {
        if let Err(error) = self.output.write_all(&window) {
            self.failed = Some(error);
            return Err(io::ErrorKind::Other.into());
        }
        self.done = self.done.saturating_add(window.len() as u64);
        Ok(self.work.advance(self.done)?)
    }
}

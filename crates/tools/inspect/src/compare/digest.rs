//! Digest of a checkpoint or carton.

use open::{Note, Result, TensorContent, digest_tensors};
use output::file_name;
use serde::Serialize;

use crate::Observer;
use crate::compare::SCHEMA_VERSION;
use crate::compare::input::{InputOptions, OpenedInput};

/// Digest of a checkpoint or carton.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DigestReport {
    /// Version of the report's fields.
    pub schema_version: u32,
    /// Path of the input, as given.
    pub file: String,
    /// SHA-256 of the lines, in hexadecimal.
    pub digest: String,
    /// Number of tensors.
    pub tensors: usize,
    /// Bytes of the elements of all tensors.
    pub nbytes: u64,
    pub notes: Vec<Note>,
    /// Line of each tensor and of each compound tensor, sorted, without its end.
    #[serde(skip)]
    pub lines: Vec<String>,
    /// Each tensor by the hash of its elements. Of tensors that share their elements, only the first one is here.
    #[serde(skip)]
    pub contents: Vec<TensorContent>,
}

/// Computes the digest of the tensors that a conversion selects, on all cores.
///
/// # Errors
/// When the input cannot be read, is damaged or changes, the selection does not fit it, or `observer` stops the work.
pub fn digest(options: &InputOptions, observer: &dyn Observer) -> Result<DigestReport> {
    let input = OpenedInput::open(options, false, observer)?;
    let name = file_name(options.input.path());
    let digest = digest_tensors(input.tensors(), &name, input.model.allowed_nbytes(), observer)
        .map_err(|error| error.in_file(options.input.path()))?;
    input.check_unchanged()?;
    Ok(DigestReport {
        schema_version: SCHEMA_VERSION,
        file: options.input.path().display().to_string(),
        digest: digest.sha256,
        tensors: input.tensors().len(),
        nbytes: input.tensors().iter().fold(0, |sum, (_, tensor)| tensor.nbytes().saturating_add(sum)),
        notes: input.model.notes,
        lines: digest.lines,
        contents: digest.contents,
    })
}

//! The small documents next to a checkpoint: each is read once, and only when it is asked for.
//!
//! Facts: Meta's `params.json`, the `config.json` of `transformers`, the `adapter_config.json` of `peft`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::{Error, Result};

/// The most bytes of a document that are read. An index of 100,000 tensors has about 10 MB.
pub const DOCUMENT_MAX: u64 = 64 << 20;

/// The documents next to a checkpoint. The default has none.
#[derive(Debug, Default)]
pub struct Documents {
    checkpoint: Option<PathBuf>,
    params: OnceLock<Option<String>>,
    config: OnceLock<Option<String>>,
    adapter: OnceLock<Option<String>>,
}

impl Documents {
    /// The documents in the folder of `path`.
    pub fn next_to(path: &Path) -> Self {
        Self { checkpoint: Some(path.to_owned()), ..Self::default() }
    }

    /// The text of `params.json`; `None` when there is no such file.
    ///
    /// # Errors
    /// When the file cannot be read, or has more than [`DOCUMENT_MAX`] bytes.
    pub fn params(&self) -> Result<Option<&str>> {
        self.once(&self.params, "params.json")
    }

    /// The text of `config.json`; `None` when there is no such file.
    ///
    /// # Errors
    /// When the file cannot be read, or has more than [`DOCUMENT_MAX`] bytes.
    pub fn config(&self) -> Result<Option<&str>> {
        self.once(&self.config, "config.json")
    }

    /// The text of `adapter_config.json`; `None` when there is no such file.
    ///
    /// # Errors
    /// When the file cannot be read, or has more than [`DOCUMENT_MAX`] bytes.
    pub fn adapter(&self) -> Result<Option<&str>> {
        self.once(&self.adapter, "adapter_config.json")
    }

    fn once<'d>(&self, text: &'d OnceLock<Option<String>>, name: &str) -> Result<Option<&'d str>> {
        if let Some(text) = text.get() {
            return Ok(text.as_deref());
        }
        let path = self.checkpoint.as_ref().map(|checkpoint| checkpoint.with_file_name(name));
        let path = path.filter(|path| path.is_file());
        let read = path.map(|path| read_document(&path, DOCUMENT_MAX)).transpose()?;
        Ok(text.get_or_init(|| read).as_deref())
    }
}

/// The text of the small document at `path`.
///
/// # Errors
/// When the file cannot be read, or has more than `limit` bytes.
pub fn read_document(path: &Path, limit: u64) -> Result<String> {
    let io = |reason: io::Error| Error::Io { path: path.to_owned(), reason };
    let mut text = String::new();
    let file = File::open(path).map_err(io)?;
    let len = file.metadata().map_err(io)?.len();
    let too_large = |len| Error::DocumentTooLarge { path: path.to_owned(), len, limit };
    if len > limit {
        return Err(too_large(len));
    }
    // The file may grow while it is read.
    file.take(limit.saturating_add(1)).read_to_string(&mut text).map_err(io)?;
    let len = text.len() as u64;
    if len > limit { Err(too_large(len)) } else { Ok(text) }
}

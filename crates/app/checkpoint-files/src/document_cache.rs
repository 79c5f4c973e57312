//! Small documents next to a checkpoint; each is read once, on first use.
//!
//! Facts: Meta's `params.json`, the `config.json` of `transformers`, the `adapter_config.json` of `peft`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use byte_source::SourceFolder;

use crate::{Error, Result};

/// Maximum size of a document in bytes. An index of 100,000 tensors has about 10 MB.
pub const DOCUMENT_MAX: u64 = 64 << 20;

/// Model documents in the folder of a checkpoint, read on first use. The default value has no folder and no documents.
#[derive(Debug, Default)]
pub struct DocumentCache {
    checkpoint: Option<PathBuf>,
    /// The folder, if it is not on this machine.
    remote: Option<Arc<dyn SourceFolder>>,
    params: OnceLock<Option<String>>,
    config: OnceLock<Option<String>>,
    adapter: OnceLock<Option<String>>,
}

impl DocumentCache {
    /// Creates the documents of the folder that contains `path`, without reading them.
    pub fn next_to(path: &Path) -> Self {
        Self { checkpoint: Some(path.to_owned()), ..Self::default() }
    }

    /// Creates the documents of a folder that is not on this machine, without reading them.
    pub(crate) fn of_remote(folder: &Arc<dyn SourceFolder>) -> Self {
        Self { remote: Some(Arc::clone(folder)), ..Self::default() }
    }

    /// Returns the text of `params.json`; `None` if the file does not exist.
    ///
    /// # Errors
    /// When the file cannot be read, or has more than [`DOCUMENT_MAX`] bytes.
    pub fn params(&self) -> Result<Option<&str>> {
        self.read_once(&self.params, "params.json")
    }

    /// Returns the text of `config.json`; `None` if the file does not exist.
    ///
    /// # Errors
    /// When the file cannot be read, or has more than [`DOCUMENT_MAX`] bytes.
    pub fn config(&self) -> Result<Option<&str>> {
        self.read_once(&self.config, "config.json")
    }

    /// Returns the text of `adapter_config.json`; `None` if the file does not exist.
    ///
    /// # Errors
    /// When the file cannot be read, or has more than [`DOCUMENT_MAX`] bytes.
    pub fn adapter(&self) -> Result<Option<&str>> {
        self.read_once(&self.adapter, "adapter_config.json")
    }

    /// Returns the text of another document, which is read each time; `None` if the file does not exist.
    ///
    /// # Errors
    /// When the file cannot be read, or has more than [`DOCUMENT_MAX`] bytes.
    pub fn read(&self, name: &str) -> Result<Option<String>> {
        if let Some(folder) = self.remote.as_ref().filter(|folder| folder.contains(name)) {
            return read_remote_document(&**folder, name, DOCUMENT_MAX).map(Some);
        }
        let path = self.checkpoint.as_ref().map(|checkpoint| checkpoint.with_file_name(name));
        path.filter(|path| path.is_file()).map(|path| read_document(&path, DOCUMENT_MAX)).transpose()
    }

    /// Replaces the text of `config.json`, without writing a file.
    pub fn replace_config(&mut self, text: String) {
        self.config = OnceLock::from(Some(text));
    }

    /// Replaces the text of `params.json`, without writing a file.
    pub fn replace_params(&mut self, text: String) {
        self.params = OnceLock::from(Some(text));
    }

    fn read_once<'d>(&self, text: &'d OnceLock<Option<String>>, name: &str) -> Result<Option<&'d str>> {
        if let Some(text) = text.get() {
            return Ok(text.as_deref());
        }
        let read = self.read(name)?;
        Ok(text.get_or_init(|| read).as_deref())
    }
}

/// Reads a text file of a folder that is not on this machine.
pub(crate) fn read_remote_document(folder: &dyn SourceFolder, name: &str, limit: u64) -> Result<String> {
    let path = folder.path_of(name);
    let bytes = folder.read(name, limit).map_err(|reason| Error::remote(&path, reason))?;
    String::from_utf8(bytes.into()).map_err(|_| {
        let reason = io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8");
        Error::Io { path, reason }
    })
}

/// Reads the text file at `path`, which has at most `limit` bytes.
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
    // The file may grow between the check of its length and the read.
    file.take(limit.saturating_add(1)).read_to_string(&mut text).map_err(io)?;
    let len = text.len() as u64;
    if len > limit { Err(too_large(len)) } else { Ok(text) }
}

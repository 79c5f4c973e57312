//! Small documents next to a checkpoint; each is read once, on first use.
//!
//! Facts: Meta's `params.json`, the `config.json` of `transformers`, the `adapter_config.json` of `peft`.

use std::fs::File;
use std::io::{self, Read};
use std::sync::OnceLock;

use byte_source::Location;

use crate::files::{Error, Problem, Result};

/// Maximum size of a document in bytes. An index of 100,000 tensors has about 10 MB.
pub const DOCUMENT_MAX: u64 = 64 << 20;

/// Model documents in the folder of a checkpoint, read on first use. The default value has no folder and no documents.
#[derive(Debug, Default)]
pub struct DocumentCache {
    checkpoint: Option<Location>,
    params: OnceLock<Option<String>>,
    config: OnceLock<Option<String>>,
    adapter: OnceLock<Option<String>>,
}

impl DocumentCache {
    /// Creates the documents of the folder that contains `checkpoint`, without reading them.
    pub fn next_to(checkpoint: &Location) -> Self {
        Self { checkpoint: Some(checkpoint.clone()), ..Self::default() }
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
        let Some(checkpoint) = &self.checkpoint else { return Ok(None) };
        let document = checkpoint.at(checkpoint.path().with_file_name(name));
        if document.is_file() { read_document(&document, DOCUMENT_MAX).map(Some) } else { Ok(None) }
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

/// Reads a text file, which has at most `limit` bytes.
///
/// # Errors
/// When the file cannot be read, or has more than `limit` bytes.
pub fn read_document(document: &Location, limit: u64) -> Result<String> {
    let path = document.path();
    let io = |error: io::Error| Error::from(error).in_file(path);
    let too_large = |len| Err(Problem::DocumentTooLarge { path: path.to_owned(), len, limit }.into());
    let bytes = if document.is_local() {
        let file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        if len > limit {
            return too_large(len);
        }
        // A file may grow, and a pipe has no length.
        let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(io)?;
        bytes
    } else {
        let source = document.open()?;
        let len = source.len();
        if len > limit {
            return too_large(len);
        }
        source.read_range(0..len)?.into()
    };
    let len = bytes.len() as u64;
    if len > limit {
        return too_large(len);
    }
    decode_text(bytes)
        .ok_or_else(|| io(io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8")))
}

/// Decodes a text, which is UTF-8 unless it starts with the byte order mark of UTF-16. Drops the mark, which Windows writes.
fn decode_text(bytes: Vec<u8>) -> Option<String> {
    let units = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, odd) = rest.as_chunks::<2>();
        odd.is_empty().then(|| pairs.iter().map(|pair| unit(*pair)).collect::<Vec<u16>>())
    };
    match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => String::from_utf16(&units(rest, u16::from_le_bytes)?).ok(),
        [0xfe, 0xff, rest @ ..] => String::from_utf16(&units(rest, u16::from_be_bytes)?).ok(),
        [0xef, 0xbb, 0xbf, rest @ ..] => str::from_utf8(rest).ok().map(str::to_owned),
        _ => String::from_utf8(bytes).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::decode_text;

    #[test]
    fn a_byte_order_mark_means_nothing() {
        for bytes in [&b"{}"[..], b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b"\xfe\xff\0{\0}"] {
            assert_eq!(decode_text(bytes.to_vec()).as_deref(), Some("{}"), "{bytes:?}");
        }
        for bytes in [&b"\xff\xfe{"[..], b"\xff", b"\xff\xfe\0\xd8"] {
            assert_eq!(decode_text(bytes.to_vec()), None, "{bytes:?}");
        }
    }
}

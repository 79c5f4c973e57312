//! Documents next to a model.

use byte_source::Result;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::vocabulary::damaged;

/// Function that reads the file with a name; `None` if there is no such file.
pub type ReadDocument<'r> = dyn Fn(&str) -> Result<Option<Vec<u8>>> + 'r;

/// Documents next to a model, by their names.
pub struct Documents<'r> {
    read: &'r ReadDocument<'r>,
    /// Names and texts of templates of chats besides `chat_template.jinja`.
    pub(crate) templates: Vec<(String, String)>,
}

impl<'r> Documents<'r> {
    /// Creates documents that a function reads.
    pub fn new(read: &'r ReadDocument<'r>) -> Self {
        Self { read, templates: Vec::new() }
    }

    /// Adds templates of chats, by their names, to `chat_template.jinja`.
    #[must_use]
    pub fn templates(self, templates: impl IntoIterator<Item = (String, String)>) -> Self {
        let templates = templates.into_iter().map(|(name, text)| (name, with_newlines(&text)));
        Self { templates: templates.collect(), ..self }
    }

    pub(crate) fn bytes(&self, name: &str) -> Result<Option<Bytes>> {
        Ok((self.read)(name)?.map(Bytes::from))
    }

    /// Returns a text, without the mark of its byte order, with lines that end as on Unix.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>> {
        let Some(bytes) = (self.read)(name)? else { return Ok(None) };
        let text = String::from_utf8(bytes).map_err(|_| damaged(name, "it is not UTF-8"))?;
        Ok(Some(with_newlines(text.strip_prefix('\u{feff}').unwrap_or(&text))))
    }

    /// Returns a JSON object.
    ///
    /// # Errors
    /// When the document is something else.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Map<String, Value>>> {
        let Some(bytes) = (self.read)(name)? else { return Ok(None) };
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        serde_json::from_slice(bytes).map(Some).map_err(|error| damaged(name, error))
    }
}

fn with_newlines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

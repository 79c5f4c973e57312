//! Keys of a file: those that were read, by their names, and those that are written, in their order. A key that is set again keeps its
//! place.

use std::collections::BTreeMap;

use byte_source::Result;
use gguf_format::{GgufArray, GgufValue};
use serde_json::{Value, json};

use crate::config::{GgufConfig, invalid};

/// Keys of a file, by their names.
pub type GgufKeys = BTreeMap<String, GgufValue>;

/// Maximum number of layers that are read from a list of all layers.
pub(crate) const LAYERS_MAX: usize = 1 << 16;

/// Converts a number, in the shortest form of its digits.
pub(crate) fn json_of(value: &GgufValue) -> Option<Value> {
    Some(match value {
        GgufValue::UInt32(number) => json!(number),
        GgufValue::Int32(number) => json!(number),
        GgufValue::UInt64(number) => json!(number),
        GgufValue::Bool(is_set) => json!(is_set),
        GgufValue::Float32(number) => json!(number.to_string().parse::<f64>().ok()?),
        GgufValue::Text(_) => Value::String(value.text()?.into_owned()),
        _ => return None,
    })
}

#[derive(Debug)]
pub(crate) struct Keys {
    /// Name of the architecture, with which many keys begin.
    architecture: &'static str,
    pub(crate) entries: Vec<(String, GgufValue)>,
}

impl Keys {
    pub(crate) fn new(architecture: &'static str) -> Self {
        let mut keys = Self { architecture, entries: Vec::new() };
        keys.text("general.architecture", architecture);
        keys
    }

    /// Sets a key; one that starts with a dot is the architecture's.
    pub(crate) fn set(&mut self, key: &str, value: GgufValue) {
        let key = if key.starts_with('.') { format!("{}{key}", self.architecture) } else { key.to_owned() };
        match self.entries.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.entries.push((key, value)),
        }
    }

    /// Sets a key to a text. Those that are empty are left out.
    pub(crate) fn text(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.set(key, GgufValue::Text(text.to_owned().into()));
        }
    }

    pub(crate) fn text_if(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    pub(crate) fn texts<T: AsRef<[u8]>>(&mut self, key: &str, texts: impl IntoIterator<Item = T>) {
        let array = GgufArray::from_texts(texts);
        if !array.is_empty() {
            self.set(key, GgufValue::Array(array));
        }
    }

    pub(crate) fn number(&mut self, key: &str, number: u32) {
        self.set(key, GgufValue::UInt32(number));
    }

    #[expect(clippy::cast_possible_truncation, reason = "the format has float32")]
    pub(crate) fn float(&mut self, key: &str, number: f64) {
        self.set(key, GgufValue::Float32(number as f32));
    }

    pub(crate) fn flag(&mut self, key: &str, is_set: bool) {
        self.set(key, GgufValue::Bool(is_set));
    }

    /// Sets a key to a whole number of a document.
    ///
    /// # Errors
    /// When it is not a number of 32 bits.
    pub(crate) fn number_of(&mut self, key: &str, (name, value): (&str, &Value)) -> Result<()> {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        self.number(key, number.ok_or_else(|| invalid(name, Some(value), "a number of 32 bits"))?);
        Ok(())
    }

    /// Sets a key to a number of a document.
    ///
    /// # Errors
    /// When it is not a number.
    pub(crate) fn float_of(&mut self, key: &str, (name, value): (&str, &Value)) -> Result<()> {
        self.float(key, value.as_f64().ok_or_else(|| invalid(name, Some(value), "a number"))?);
        Ok(())
    }

    /// Sets a key to a whole number that the model needs.
    ///
    /// # Errors
    /// When it is missing, or not a number of 32 bits.
    pub(crate) fn needed(&mut self, key: &str, config: &GgufConfig, name: &str) -> Result<()> {
        let value = config.get(name).ok_or_else(|| invalid(name, None, "a number of 32 bits"))?;
        self.number_of(key, (name, value))
    }
}

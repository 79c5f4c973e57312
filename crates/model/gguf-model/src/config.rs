//! Hyperparameters of a model: those of its config.json, over the defaults of its class in `transformers`.
//!
//! Facts: `load_hparams` and `TextModel` of llama.cpp's converter, which read the configuration through `transformers` 5.23. There,
//! `rope_theta`, `rope_scaling` and the like become one object.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use byte_source::Result;
use serde_json::{Map, Value};

use crate::Problem;
use crate::architecture::{Architecture, of_class};

static DEFAULTS: LazyLock<BTreeMap<String, Map<String, Value>>> =
    LazyLock::new(|| serde_json::from_str(include_str!("defaults.json")).expect("a table of classes"));

/// Largest number of layers, heads and experts, and of tokens.
const COUNT_MAX: u64 = 1 << 16;
const VOCABULARY_MAX: u64 = 1 << 22;

#[derive(Debug)]
pub(crate) struct GgufConfig {
    pub(crate) architecture: &'static Architecture,
    /// The document itself.
    pub(crate) written: Map<String, Value>,
    values: Map<String, Value>,
    rope: Map<String, Value>,
}

impl GgufConfig {
    /// Reads a config.json.
    ///
    /// # Errors
    /// When it is not JSON, or of an architecture that is not written.
    pub(crate) fn from_json(text: &str) -> Result<Self> {
        let written: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| Problem::Config(error.to_string()))?;
        let mut values = written.clone();
        // A model of several parts has its text model in an object, which is all that counts.
        if let Some(Value::Object(part)) = written.get("text_config") {
            values.extend(part.clone());
        }
        let class = class_name(&written).or_else(|| class_name(&values)).unwrap_or_default();
        let model_type = values.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let architecture = of_class(&class, model_type)?;
        let defaults = DEFAULTS.get(architecture.model_type).cloned().unwrap_or_default();
        let rope = rope_of(&values, &defaults);
        let is_computed = defaults.get("head_dim").is_some_and(Value::is_string);
        for (key, value) in defaults {
            values.entry(key).or_insert(value);
        }
        let mut config = Self { architecture, written, values, rope };
        if let (None, Some(heads)) =
            (config.get("num_key_value_heads"), config.get("num_attention_heads").cloned())
        {
            config.values.insert("num_key_value_heads".to_owned(), heads);
        }
        if is_computed && config.get("head_dim").is_none_or(Value::is_string) {
            let dim = config.size("hidden_size")?.checked_div(config.size("num_attention_heads")?);
            config.values.insert("head_dim".to_owned(), dim.unwrap_or_default().into());
        }
        Ok(config)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// Returns the first key that has a value, with it.
    pub(crate) fn find<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &Value)> {
        keys.iter().find_map(|key| Some((*key, self.get(key)?)))
    }

    /// Returns a number that the model needs.
    ///
    /// # Errors
    /// When it is missing or not a positive number.
    pub(crate) fn size(&self, key: &str) -> Result<u64> {
        match self.get(key).and_then(Value::as_u64) {
            Some(size) if size > 0 => Ok(size),
            _ => Err(invalid(key, self.get(key), "a positive number")),
        }
    }

    /// Returns a number of layers, heads or experts.
    ///
    /// # Errors
    /// When it is missing, not positive, or too large.
    pub(crate) fn count(&self, key: &str) -> Result<u64> {
        let count = self.size(key)?;
        if count <= COUNT_MAX { Ok(count) } else { Err(invalid(key, self.get(key), "a smaller number")) }
    }

    pub(crate) fn layers(&self) -> Result<u64> {
        self.count("num_hidden_layers")
    }

    /// Returns the size of a head, if the configuration has it.
    pub(crate) fn head_dim(&self) -> Result<u64> {
        match self.get("head_dim") {
            Some(_) => self.size("head_dim"),
            None => Ok(self
                .size("hidden_size")?
                .checked_div(self.count("num_attention_heads")?)
                .unwrap_or_default()),
        }
    }

    /// Returns the number of tokens.
    ///
    /// # Errors
    /// When it is larger than any vocabulary.
    pub(crate) fn vocabulary(&self) -> Result<usize> {
        let size = self.size("vocab_size")?;
        match usize::try_from(size) {
            Ok(size_here) if size <= VOCABULARY_MAX => Ok(size_here),
            _ => Err(invalid("vocab_size", self.get("vocab_size"), "at most 4194304")),
        }
    }

    /// Returns the settings of rotary embeddings: those of layers that attend to everything, if there are several.
    pub(crate) fn rope(&self) -> &Map<String, Value> {
        self.rope.get("full_attention").and_then(Value::as_object).unwrap_or(&self.rope)
    }

    /// Returns the base of the rotary embeddings in layers with a window, if it is another.
    pub(crate) fn window_theta(&self) -> Option<&Value> {
        self.rope.get("sliding_attention")?.get("rope_theta")
    }
}

pub(crate) fn invalid(key: &str, found: Option<&Value>, expected: &'static str) -> byte_source::Error {
    let found = found.map_or_else(|| "missing or null".to_owned(), |value| shortened(&value.to_string()));
    Problem::Key { key: key.to_owned(), found, expected }.into()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns the first class, of the text model if it has one of its own.
fn class_name(config: &Map<String, Value>) -> Option<String> {
    let own = config.get("text_config").and_then(|part| part.get("architectures"));
    let classes = own.filter(|own| !own.is_null()).or_else(|| config.get("architectures"))?;
    Some(classes.as_array()?.first()?.as_str()?.to_owned())
}

/// Returns the settings of rotary embeddings as one object.
fn rope_of(values: &Map<String, Value>, defaults: &Map<String, Value>) -> Map<String, Value> {
    let object = |key| values.get(key).and_then(Value::as_object);
    let given = object("rope_scaling").or_else(|| object("rope_parameters"));
    let mut rope =
        given.or_else(|| defaults.get("rope_parameters")?.as_object()).cloned().unwrap_or_default();
    let named = |key: &str| values.get(key).filter(|it| !it.is_null()).or_else(|| defaults.get(key)).cloned();
    let finish = |rope: &mut Map<String, Value>, theta: Option<Value>| {
        if let Some(theta) = theta {
            rope.entry("rope_theta").or_insert(theta);
        }
        let kind = rope.get("type").cloned().unwrap_or_else(|| "default".into());
        rope.entry("rope_type").or_insert(kind);
        for key in ["partial_rotary_factor", "original_max_position_embeddings"] {
            if let Some(value) = named(key) {
                rope.entry(key).or_insert(value);
            }
        }
    };
    let has_two = |rope: &Map<String, Value>| rope.contains_key("full_attention");
    if !has_two(&rope) && values.get("model_type").and_then(Value::as_str) != Some("gemma3_text") {
        finish(&mut rope, named("rope_theta"));
        return rope;
    }
    let local = values.get("rope_local_base_freq").cloned().unwrap_or_else(|| 10_000.0.into());
    let part = |name: &str| rope.get(name).and_then(Value::as_object).cloned();
    let (mut full, mut sliding) = (part("full_attention"), part("sliding_attention").unwrap_or_default());
    if !has_two(&rope) {
        full = Some(rope.clone());
    }
    let mut full = full.unwrap_or_default();
    finish(&mut full, named("rope_theta"));
    finish(&mut sliding, Some(local));
    [("full_attention", full), ("sliding_attention", sliding)]
        .map(|(name, part)| (name.to_owned(), Value::Object(part)))
        .into_iter()
        .collect()
}

//! A model's configuration with the defaults of its class.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::indices::Indices;
use crate::size::Size;

/// Largest number of layers, and of experts, that a configuration may give.
const COUNT_MAX: u64 = 1 << 16;

/// A class of configurations, as `tests/conformance/class_defaults.py` writes it.
#[derive(Debug, Default, Deserialize)]
struct Class {
    /// Attribute that each alias stands for.
    #[serde(default)]
    aliases: BTreeMap<String, String>,
    /// Values of the keys that a file leaves out.
    values: Map<String, Value>,
    /// Model types of the parts.
    #[serde(default)]
    parts: BTreeMap<String, String>,
    /// Class of a causal language model.
    #[serde(default)]
    causal: Option<String>,
    /// Base of the rotary embeddings.
    #[serde(default)]
    theta: Option<f64>,
}

static CLASSES: LazyLock<BTreeMap<String, Class>> =
    LazyLock::new(|| serde_json::from_str(include_str!("class_defaults.json")).expect("a table of classes"));

/// A class of configurations in `transformers`, with the values that its configurations have if a file leaves them out.
///
/// ```
/// use families::ConfigClass;
/// use serde_json::json;
///
/// let class = ConfigClass::of("gpt2").expect("it is known");
/// assert_eq!(class.own_name("hidden_size"), "n_embd");
/// let written = json!({"n_embd": 64});
/// let values = class.with_defaults(written.as_object().expect("an object"));
/// assert_eq!((&values["n_embd"], &values["n_layer"]), (&json!(64), &json!(12)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ConfigClass {
    model_type: &'static str,
    class: &'static Class,
}

impl ConfigClass {
    /// Returns the class of a model type; `None` if the type is not known.
    pub fn of(model_type: &str) -> Option<Self> {
        CLASSES.get_key_value(model_type).map(|(model_type, class)| Self { model_type, class })
    }

    /// Returns true if a configuration of the class has the key, under this or another name.
    pub fn has(&self, key: &str) -> bool {
        self.class.values.contains_key(self.own_name(key))
    }

    /// Returns the name that the class has for a key of many classes.
    pub fn own_name<'k>(&self, key: &'k str) -> &'k str
    where
        Self: 'k,
    {
        self.class.aliases.get(key).map_or(key, String::as_str)
    }

    /// Returns the keys of a file, and those that it leaves out.
    pub fn with_defaults(&self, written: &Map<String, Value>) -> Map<String, Value> {
        let absent = RefCell::new(None);
        let mut all = written.clone();
        let config =
            Config { model_type: self.model_type.to_owned(), written, class: self.class, absent: &absent };
        for key in self.class.values.keys().filter(|key| !written.contains_key(*key)) {
            all.extend(config.value(key).map(|value| (key.clone(), value.clone())));
        }
        all
    }

    /// Returns the base of the rotary embeddings that the class has.
    pub fn theta(&self) -> Option<f64> {
        self.class.theta
    }

    /// Returns the name of the class of a causal language model; `None` if the type has none.
    pub fn causal_class(&self) -> Option<&'static str> {
        self.class.causal.as_deref()
    }
}

/// Configuration of a model or of one of its parts.
#[derive(Debug)]
pub(crate) struct Config<'a> {
    pub(crate) model_type: String,
    written: &'a Map<String, Value>,
    class: &'static Class,
    /// First key that is needed and that neither the file nor the class has.
    absent: &'a RefCell<Option<String>>,
}

static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

impl<'a> Config<'a> {
    /// Creates the configuration of a model type that the table of classes has.
    pub(crate) fn new(
        model_type: &str,
        written: &'a Map<String, Value>,
        absent: &'a RefCell<Option<String>>,
    ) -> Option<Self> {
        let class = CLASSES.get(model_type)?;
        Some(Self { model_type: model_type.to_owned(), written, class, absent })
    }

    /// Returns the name of the class of a causal language model; `None` if the type has none.
    pub(crate) fn causal_class(&self) -> Option<&'static str> {
        self.class.causal.as_deref()
    }

    /// Returns the base of the rotary embeddings that the class has.
    pub(crate) fn theta(&self) -> Option<f64> {
        self.class.theta
    }

    /// Returns the keys of the configurations of parts.
    pub(crate) fn part_keys(&self) -> impl Iterator<Item = &'static str> {
        self.class.parts.keys().map(String::as_str)
    }

    /// Returns what the file gives.
    pub(crate) fn map(&self) -> &'a Map<String, Value> {
        self.written
    }

    /// Returns the names of a key, of which the first that is there counts.
    fn names<'k>(&self, key: &'k str) -> impl Iterator<Item = &'k str>
    where
        'a: 'k,
    {
        // The class takes this name before its own.
        let older = match (self.model_type.as_str(), key) {
            ("bloom" | "falcon", "hidden_size") => Some("n_embed"),
            ("nemotron_h", "conv_kernel") => Some("mamba_d_conv"),
            ("nemotron_h", "n_groups") => Some("mamba_n_groups"),
            ("nemotron_h", "use_conv_bias") => Some("mamba_conv_bias"),
            _ => None,
        };
        let aliases = &self.class.aliases;
        let alias = aliases.get(key).map(String::as_str);
        let others = aliases.iter().filter(move |(_, real)| *real == key).map(|(alias, _)| alias.as_str());
        // The class sets its fields first and other names after them, so those win.
        let is_field = |name: &&str| self.class.values.contains_key(*name);
        let all = std::iter::once(key).chain(alias).chain(others);
        let fields = all.clone().filter(move |name| is_field(name));
        older.into_iter().chain(all.filter(move |name| !is_field(name))).chain(fields)
    }

    /// Returns the value that the file gives, under one of its names.
    pub(crate) fn written(&self, key: &str) -> Option<&'a Value> {
        self.names(key).find_map(|name| self.written.get(name))
    }

    /// Returns the value; `None` if it is null or absent.
    pub(crate) fn value(&self, key: &str) -> Option<&'a Value> {
        let default = || self.names(key).find_map(|name| self.class.values.get(name));
        self.written(key).or_else(default).filter(|value| !value.is_null())
    }

    /// Returns a number that the model needs.
    pub(crate) fn size(&self, key: &str) -> Size {
        self.number(key).unwrap_or_else(|| {
            self.absent.borrow_mut().get_or_insert_with(|| key.to_owned());
            Size(0)
        })
    }

    /// Returns a number, or `None` if it is null, absent or no number.
    pub(crate) fn number(&self, key: &str) -> Option<Size> {
        let value = self.value(key)?;
        value.as_u64().or_else(|| value.as_array()?.first()?.as_u64()).map(Size)
    }

    /// Returns true if the class has the key, and its value is true.
    pub(crate) fn flag(&self, key: &str) -> bool {
        let is_known = self.names(key).any(|name| self.class.values.contains_key(name));
        is_known && self.value(key).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(crate) fn text(&self, key: &str) -> &'a str {
        self.value(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn texts(&self, key: &str) -> Option<Vec<&'a str>> {
        self.value(key)?.as_array()?.iter().map(Value::as_str).collect()
    }

    pub(crate) fn numbers(&self, key: &str) -> Option<Vec<u64>> {
        self.value(key)?.as_array()?.iter().map(Value::as_u64).collect()
    }

    /// Returns a count of layers or experts, which a file cannot make larger than a model.
    pub(crate) fn count(&self, key: &str) -> u64 {
        let count = self.size(key).0;
        if count > COUNT_MAX {
            self.absent.borrow_mut().get_or_insert_with(|| key.to_owned());
        }
        count.min(COUNT_MAX)
    }

    pub(crate) fn layers(&self) -> Indices {
        Indices::below(self.count("num_hidden_layers"))
    }

    /// Returns the configuration of a part. A part that the file leaves out has the defaults of its class, and the text model of
    /// older files is the whole file.
    pub(crate) fn part(&self, key: &str) -> Option<Config<'a>> {
        let default = self.class.parts.get(key).map(String::as_str);
        let written = match self.written(key) {
            Some(Value::Object(map)) => map,
            None if key == "text_config" && self.written.contains_key("num_hidden_layers") => self.written,
            _ if default.is_none() => return None,
            _ => &EMPTY,
        };
        let given = written.get("model_type").and_then(Value::as_str);
        let given = given
            .filter(|given| *given != self.model_type)
            .and_then(|given| Config::new(given, written, self.absent));
        let known = match (key, self.model_type.as_str()) {
            ("vision_config", "gemma4") => Some("gemma4_vision"),
            ("audio_config", "gemma4") => Some("gemma4_audio"),
            _ => default,
        };
        given.or_else(|| Config::new(known?, written, self.absent))
    }

    /// Returns the number of labels of a classifier.
    pub(crate) fn labels(&self) -> Size {
        let labels = self.value("id2label").and_then(Value::as_object).map(|labels| labels.len() as u64);
        labels.or_else(|| self.value("num_labels")?.as_u64()).map_or(Size(2), Size)
    }
}

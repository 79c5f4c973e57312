//! `config.json`, as Hugging Face's `transformers` writes it.
//!
//! Facts: `LlamaConfig`, `MistralConfig` and `Qwen2Config` in `transformers` 5.23.

use serde_json::{Map, Value};

use super::rope::{Rope, Scaling};
use super::{Biases, HUGGING_FACE, Said, Windows};
use crate::code::{Asked, agreed, text};
use crate::{Error, Fact, Result};

/// The name of the file.
pub(in crate::code) const FILE: &str = "config.json";
/// Keys that are read, or say nothing about the result.
const KNOWN: &[&str] = &[
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "eos_token_id",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "id2label",
    "initializer_range",
    "intermediate_size",
    "is_encoder_decoder",
    "label2id",
    "max_position_embeddings",
    "max_sequence_length",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "original_max_position_embeddings",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "partial_rotary_factor",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "tie_word_embeddings",
    "torch_dtype",
    "transformers_version",
    "unk_token_id",
    "use_cache",
    "vocab_size",
];

/// The document, or an object in it.
#[derive(Clone, Debug)]
pub(in crate::code) struct Config {
    pub(super) file: &'static str,
    /// The key under which the object stands, and a dot.
    prefix: String,
    map: Map<String, Value>,
}

impl Config {
    /// Reads the text of a `config.json`.
    pub(in crate::code) fn from_json(text: &str) -> Result<Self> {
        let map = serde_json::from_str(text).map_err(|error| Error::Document { file: FILE, error })?;
        Ok(Self { file: FILE, prefix: String::new(), map })
    }

    /// What is said where there is no `config.json`.
    pub(in crate::code) fn of_heads(head_dim: Option<u64>) -> Self {
        let map = head_dim.map(|head_dim| ("head_dim".to_owned(), head_dim.into())).into_iter().collect();
        Self { file: FILE, prefix: String::new(), map }
    }

    /// The value at `key`; `null` is none.
    pub(in crate::code) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether the key is there, be its value `null`.
    pub(in crate::code) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Value> {
        self.map.values()
    }

    pub(super) fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    pub(in crate::code) fn wrong(&self, key: &str, found: &impl ToString, expected: String) -> Error {
        Error::Param { file: Some(self.file), key: self.path(key), found: found.to_string(), expected }
    }

    pub(in crate::code) fn unknown(&self, key: &str) -> Error {
        Error::UnknownParam { file: self.file, key: self.path(key) }
    }

    fn read<'v, T>(
        &'v self,
        key: &str,
        as_type: impl Fn(&'v Value) -> Option<T>,
        expected: &str,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        as_type(value).map(Some).ok_or_else(|| self.wrong(key, &shortened(value), expected.to_owned()))
    }

    /// A natural number.
    pub(in crate::code) fn size(&self, key: &str) -> Result<Option<u64>> {
        self.read(key, |value| value.as_u64().filter(|size| *size > 0), "a whole number of at least 1")
    }

    /// A natural number, or 0.
    pub(in crate::code) fn count(&self, key: &str) -> Result<Option<u64>> {
        self.read(key, Value::as_u64, "a whole number")
    }

    /// A number above 0.
    pub(in crate::code) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.read(key, |value| value.as_f64().filter(|number| *number > 0.0), "a number above 0")
    }

    pub(in crate::code) fn flag(&self, key: &str) -> Result<bool> {
        Ok(self.read(key, Value::as_bool, "true or false")?.unwrap_or(false))
    }

    pub(in crate::code) fn text(&self, key: &str) -> Result<Option<&str>> {
        self.read(key, Value::as_str, "a text")
    }

    pub(super) fn object(&self, key: &str) -> Result<Self> {
        let map = self.read(key, Value::as_object, "an object")?.cloned().unwrap_or_default();
        Ok(Self { file: self.file, prefix: format!("{}{key}.", self.prefix), map })
    }

    /// By layer, whether `layer_types` gives it a window; `None` where it is not said.
    pub(in crate::code) fn windowed(&self) -> Result<Option<Vec<bool>>> {
        let Some(types) = self.read("layer_types", Value::as_array, "a list")? else { return Ok(None) };
        let windowed = types.iter().map(|kind| match kind.as_str() {
            Some("full_attention") => Ok(false),
            Some("sliding_attention") => Ok(true),
            _ => Err(self.wrong(
                "layer_types",
                &shortened(kind),
                "\"full_attention\" and \"sliding_attention\"".to_owned(),
            )),
        });
        windowed.collect::<Result<_>>().map(Some)
    }

    /// Puts what a person says where the document says nothing; whether only the person says how many heads.
    ///
    /// # Errors
    /// When the document says something else.
    pub(in crate::code) fn ask(&mut self, asked: &Asked) -> Result<bool> {
        let (heads, eps) = (HUGGING_FACE.keys.n_heads, "rms_norm_eps");
        let heads_asked = asked.n_heads.is_some() && self.get(heads).is_none();
        let n_heads = agreed(Fact::Heads, self.file, asked.n_heads, self.size(heads)?)?;
        let norm_eps = agreed(Fact::NormEps, self.file, asked.norm_eps, self.number(eps)?)?;
        let theta = agreed(Fact::RopeTheta, self.file, asked.rope_theta, Rope::theta(self)?)?;
        if let Some(factor) = asked.rope_factor {
            self.stretch(factor)?;
        }
        for (key, value) in [
            (heads, n_heads.map(Value::from)),
            (eps, norm_eps.map(Value::from)),
            ("rope_theta", theta.map(Value::from)),
        ] {
            if let Some(value) = value {
                self.map.insert(key.to_owned(), value);
            }
        }
        Ok(heads_asked)
    }

    /// Scales positions by what a person says, with Meta's constants where the document has none.
    fn stretch(&mut self, factor: f64) -> Result<()> {
        let fact = Fact::RopeFactor;
        let key = Rope::key(self).unwrap_or("rope_scaling");
        let mut within = self.object(key)?;
        let (type_key, kind) = Rope::kind(&within)?;
        if let Some(other) = kind.filter(|kind| *kind != "llama3") {
            let said = format!("`{}` {other:?}", within.path(type_key));
            return Err(Error::Contradiction { fact, asked: text(factor), file: self.file, said });
        }
        agreed(fact, self.file, Some(factor), within.number("factor")?)?;
        let by = Scaling::by(factor);
        let mut filled = vec![("factor", Value::from(by.factor))];
        if kind.is_none() {
            // An object for each kind of layer is no place for one factor.
            Rope::of(self)?;
            filled.extend([
                ("rope_type", "llama3".into()),
                ("low_freq_factor", by.low.into()),
                ("high_freq_factor", by.high.into()),
                ("original_max_position_embeddings", by.old.into()),
            ]);
        }
        for (name, value) in filled {
            if within.get(name).is_none() {
                within.map.insert(name.to_owned(), value);
            }
        }
        self.map.insert(key.to_owned(), Value::Object(within.map));
        Ok(())
    }

    /// What all decoders say alike; `own` are the keys that the architecture reads beside them.
    pub(in crate::code) fn said(&self, own: &[&str]) -> Result<Said> {
        if self.get("quantization_config").is_some() {
            return Err(self.unknown("quantization_config"));
        }
        if let Some(act) = self.text("hidden_act")?.filter(|act| !matches!(*act, "silu" | "swish")) {
            return Err(self.wrong("hidden_act", &format!("{act:?}"), "\"silu\"".to_owned()));
        }
        let vocab = match self.get("vocab_size").and_then(Value::as_i64) {
            Some(-1) => None,
            _ => self.size("vocab_size")?,
        };
        let unused = self.map.iter().filter(|(key, value)| {
            !KNOWN.contains(&key.as_str()) && !own.contains(&key.as_str()) && !value.is_null()
        });
        let unused: Vec<String> = unused.map(|(key, _)| format!("`{}`", key.escape_debug())).collect();
        let verb = if unused.len() == 1 { "is" } else { "are" };
        let note =
            (!unused.is_empty()).then(|| format!("{}: {} {verb} not used", self.file, unused.join(", ")));
        Ok(Said {
            dim: self.size("hidden_size")?,
            n_layers: self.size("num_hidden_layers")?,
            n_heads: self.size(HUGGING_FACE.keys.n_heads)?,
            n_kv_heads: self.size("num_key_value_heads")?,
            head_dim: self.size("head_dim")?,
            hidden: self.size("intermediate_size")?,
            vocab,
            norm_eps: self.number("rms_norm_eps")?.unwrap_or(1e-6),
            rope: Rope::of(self)?,
            document: true,
            heads_asked: false,
            tied: self.flag("tie_word_embeddings")?,
            windows: Windows::default(),
            biases: Biases::default(),
            notes: note.into_iter().collect(),
        })
    }
}

/// A value as JSON, cut where it is long.
fn shortened(value: &Value) -> String {
    const SHOWN: usize = 40;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

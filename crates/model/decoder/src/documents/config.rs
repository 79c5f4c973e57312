//! Reader of `config.json`, as Hugging Face's `transformers` writes it.
//!
//! Facts: `configuration_utils.py` and the configuration files of the architectures in `transformers` 5.23.

use serde_json::{Map, Value};
use tensor::Dtype;

use crate::block::Block;
use crate::config_defaults::{ACTIVATIONS, ConfigDefaults};
use crate::feed_forward::Activation;
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters, WindowedLayers};
use crate::layout::LayoutOwner;
use crate::overrides::reconcile;
use crate::{DecoderNote, Error, HyperparameterKind, Overrides, Problem, Result};

/// Keys of all classes that are read or that do not change the result.
const KNOWN_KEYS: &[&str] = &[
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
    FREQUENCIES_KEY,
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

/// Key of the rotary frequency tensors, with their dtypes, that Meta's file of the model had. Other programs ignore it.
pub(crate) const FREQUENCIES_KEY: &str = "rope_freqs";

#[derive(Clone, Debug)]
pub(crate) struct ConfigJson {
    pub(crate) file: &'static str,
    /// Path of the object in the document, with a dot at the end; empty for the document itself.
    prefix: String,
    pub(crate) map: Map<String, Value>,
    layers: u64,
}

impl ConfigJson {
    pub(crate) fn from_json(text: &str) -> Result<Self> {
        let file = LayoutOwner::HuggingFace.file();
        let map = serde_json::from_str(text).map_err(|error| Problem::Document { file, error })?;
        Ok(Self { file, prefix: String::new(), map, layers: 0 })
    }

    /// Returns a substitute for a missing `config.json`, with at most the size of a head.
    pub(crate) fn from_head_dim(head_dim: Option<u64>) -> Self {
        let map = head_dim.map(|head_dim| ("head_dim".to_owned(), head_dim.into())).into_iter().collect();
        Self { file: LayoutOwner::HuggingFace.file(), prefix: String::new(), map, layers: 0 }
    }

    /// Sets the number of layers in the checkpoint, which is the length of per-layer lists.
    pub(crate) fn with_layers(self, layers: u64) -> Self {
        Self { layers, ..self }
    }

    pub(crate) fn layers(&self) -> std::ops::Range<u64> {
        0..self.layers
    }

    /// Returns the value at `key`, unless it is `null`.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Returns true if the key is present, even with the value `null`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(crate) fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Builds the error that the value at `key` is `found` instead of `expected`.
    pub(crate) fn invalid_value(&self, key: &str, found: &impl ToString, expected: String) -> Error {
        Problem::InvalidParam {
            file: Some(self.file),
            key: self.path(key),
            found: found.to_string(),
            expected,
        }
        .into()
    }

    /// Builds the error that `key` selects a model without a forward implementation.
    pub(crate) fn unsupported_key(&self, key: &str) -> Error {
        Problem::UnsupportedParam { file: self.file, key: self.path(key) }.into()
    }

    fn read<'v, T>(
        &'v self,
        key: &str,
        as_type: impl Fn(&'v Value) -> Option<T>,
        expected: &str,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        as_type(value)
            .map(Some)
            .ok_or_else(|| self.invalid_value(key, &truncated_json(value), expected.to_owned()))
    }

    /// Reads the integer at `key`, at least 1.
    pub(crate) fn size(&self, key: &str) -> Result<Option<u64>> {
        self.read(key, |value| value.as_u64().filter(|size| *size > 0), "a whole number of at least 1")
    }

    /// Reads the integer at `key`, at least 1. A missing key gives `default`, the value of the configuration class; `null`
    /// gives `None`.
    pub(crate) fn size_or(&self, key: &str, default: Option<u64>) -> Result<Option<u64>> {
        if self.has(key) { self.size(key) } else { Ok(default) }
    }

    /// Reads the integer at `key`, at least 0.
    pub(crate) fn count(&self, key: &str) -> Result<Option<u64>> {
        self.read(key, Value::as_u64, "a whole number")
    }

    /// Reads the number at `key`, above 0.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.read(key, |value| value.as_f64().filter(|number| *number > 0.0), "a number above 0")
    }

    /// Reads the number at `key`, above 0. A missing key gives `default`, the value of the configuration class; `null` gives
    /// `None`.
    pub(crate) fn number_or(&self, key: &str, default: Option<f64>) -> Result<Option<f64>> {
        if self.has(key) { self.number(key) } else { Ok(default) }
    }

    /// Reads the number at `key`, above 0; 0 gives `None`, as a missing key does.
    pub(crate) fn nonzero_number(&self, key: &str) -> Result<Option<f64>> {
        if self.get(key).and_then(Value::as_f64) == Some(0.0) { Ok(None) } else { self.number(key) }
    }

    /// Reads the list of numbers at `key`, each above 0.
    pub(crate) fn numbers(&self, key: &'static str) -> Result<Vec<f64>> {
        let expected = "a list of numbers above 0";
        let number = |value: &Value| value.as_f64().filter(|number| *number > 0.0);
        let list = |value: &Value| value.as_array()?.iter().map(number).collect();
        let missing = || Problem::MissingKey { file: self.file, key: self.path(key) };
        Ok(self.read(key, list, expected)?.ok_or_else(missing)?)
    }

    /// Reads the list of non-negative integers at `key`.
    pub(crate) fn counts(&self, key: &str) -> Result<Option<Vec<u64>>> {
        self.read(
            key,
            |value| value.as_array()?.iter().map(Value::as_u64).collect(),
            "a list of whole numbers",
        )
    }

    /// Reads the flag at `key`; `false` if the key is missing.
    pub(crate) fn flag(&self, key: &str) -> Result<bool> {
        self.flag_or(key, false)
    }

    /// Reads the flag at `key`. A missing key gives `default`, the value of the configuration class.
    pub(crate) fn flag_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.read(key, Value::as_bool, "true or false")?.unwrap_or(default))
    }

    /// Refuses a model whose flag at `key` is set, because no forward supports it.
    ///
    /// # Errors
    /// Returns an error if the flag is true or is not a boolean.
    pub(crate) fn refuse_flag(&self, key: &str) -> Result<()> {
        if self.flag(key)? { Err(self.unsupported_key(key)) } else { Ok(()) }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>> {
        self.read(key, Value::as_str, "a string")
    }

    pub(crate) fn object(&self, key: &str) -> Result<Self> {
        let map = self.read(key, Value::as_object, "an object")?.cloned().unwrap_or_default();
        let prefix = format!("{}{key}.", self.prefix);
        Ok(Self { file: self.file, prefix, map, layers: self.layers })
    }

    /// Returns the object at `key`, or a copy of this one if there is none.
    pub(crate) fn part(&self, key: &str) -> Result<Self> {
        if self.get(key).is_some() { self.object(key) } else { Ok(self.clone()) }
    }

    /// Sets the value at `key` if there is none.
    pub(crate) fn set_default(&mut self, key: &str, value: Option<Value>) {
        if let (None, Some(value)) = (self.get(key), value) {
            self.map.insert(key.to_owned(), value);
        }
    }

    /// Returns an object without keys.
    pub(crate) fn empty(&self) -> Self {
        Self { file: self.file, prefix: self.prefix.clone(), map: Map::new(), layers: self.layers }
    }

    /// Reads `layer_types`: one flag per layer, true for sliding-window attention; `None` without that key.
    pub(crate) fn windowed_layers(&self) -> Result<Option<Vec<bool>>> {
        self.layers_of("sliding_attention")
    }

    /// Reads `layer_types`: one flag per layer, true for layers without attention; `None` without that key.
    pub(crate) fn linear_layers(&self) -> Result<Option<Vec<bool>>> {
        self.layers_of("linear_attention")
    }

    fn layers_of(&self, other: &str) -> Result<Option<Vec<bool>>> {
        let Some(types) = self.read("layer_types", Value::as_array, "a list")? else { return Ok(None) };
        let windowed = types.iter().map(|kind| match kind.as_str() {
            Some("full_attention") => Ok(false),
            Some(kind) if kind == other => Ok(true),
            _ => Err(self.invalid_value(
                "layer_types",
                &truncated_json(kind),
                format!("\"full_attention\" and {other:?}"),
            )),
        });
        windowed.collect::<Result<_>>().map(Some)
    }

    /// Reads the sliding windows of all layers: those in `layer_types`, or else those for which `default` is true. `size` is
    /// the default window in tokens.
    pub(crate) fn windows(
        &self,
        size: Option<u64>,
        default: impl Fn(u64) -> bool,
    ) -> Result<AttentionWindows> {
        let key = "sliding_window";
        let size = self.size_or(key, size)?;
        let layers = self.windowed_layers()?.unwrap_or_else(|| self.layers().map(default).collect());
        if size.is_none() && layers.contains(&true) {
            return Err(self.invalid_value(
                key,
                &"null",
                "a number, since layers have \"sliding_attention\"".to_owned(),
            ));
        }
        Ok(AttentionWindows { size, layers: WindowedLayers::Listed(layers) })
    }

    fn activation(&self, class: &ConfigDefaults) -> Result<Activation> {
        let (key, default) = class.activation;
        let Some(name) = self.text(key)? else { return Ok(default) };
        // xIELU needs weights, which only some classes have.
        let has = |activation| activation != Activation::Xielu || default == Activation::Xielu;
        let all = || ACTIVATIONS.iter().filter(|(_, activation)| has(*activation));
        let known = all().find(|(known, _)| *known == name);
        known.map(|(_, activation)| *activation).ok_or_else(|| {
            let names: Vec<String> = all().map(|(known, _)| format!("{known:?}")).collect();
            self.invalid_value(key, &format!("{name:?}"), names.join(" or "))
        })
    }

    /// Fills in the numbers that the document omits. Returns true if the caller gives the number of heads and the document
    /// does not.
    ///
    /// # Errors
    /// Returns an error if the document has another number than `given`.
    pub(crate) fn override_config(&mut self, given: &Overrides, class: &ConfigDefaults) -> Result<bool> {
        let (heads, eps) = (LayoutOwner::HuggingFace.keys().n_heads, class.norm_eps.0);
        let heads_given = given.n_heads.is_some() && self.get(heads).is_none();
        let n_heads = reconcile(HyperparameterKind::Heads, self.file, given.n_heads, self.size(heads)?)?;
        let norm_eps = reconcile(HyperparameterKind::NormEps, self.file, given.norm_eps, self.number(eps)?)?;
        let theta =
            reconcile(HyperparameterKind::RopeTheta, self.file, given.rope_theta, self.rope_theta()?)?;
        if let Some(factor) = given.rope_factor {
            self.scale_rope(factor)?;
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
        Ok(heads_given)
    }

    pub(crate) fn frequencies(&self) -> Result<Vec<(String, Dtype)>> {
        let recorded = self.object(FREQUENCIES_KEY)?;
        let entry = |(name, dtype): (&String, &Value)| {
            let float = |dtype: &Dtype| {
                matches!(dtype, Dtype::Float64 | Dtype::Float32 | Dtype::Float16 | Dtype::BFloat16)
            };
            let known = dtype.as_str().and_then(Dtype::from_name).filter(float);
            match known {
                Some(dtype) if LayoutOwner::Meta.names_frequencies(name) => Ok((name.clone(), dtype)),
                _ => {
                    let expected = "\"rope.freqs\" and the name of a floating-point dtype".to_owned();
                    Err(self.invalid_value(
                        FREQUENCIES_KEY,
                        &format!("{name:?}: {}", truncated_json(dtype)),
                        expected,
                    ))
                }
            }
        };
        recorded.map.iter().map(entry).collect()
    }

    /// Rejects a model with quantized weights. The methods and their keys are those in `utils/quantization_config.py` of
    /// `transformers`; files of older versions have the flags of bitsandbytes and no method.
    pub(crate) fn reject_quantized(&self) -> Result<()> {
        const KEY: &str = "quantization_config";
        if self.get(KEY).is_none() {
            return Ok(());
        }
        let inner = self.object(KEY)?;
        let is_set = |flag: &str| inner.get(flag).and_then(Value::as_bool).unwrap_or(false);
        let flags = [("load_in_4bit", 4), ("load_in_8bit", 8)].into_iter().find(|(flag, _)| is_set(flag));
        let method = inner.get("quant_method").and_then(Value::as_str);
        let Some(method) = method.or_else(|| flags.map(|_| "bitsandbytes")) else {
            return Err(self.unsupported_key(KEY));
        };
        let bits = flags.map(|(_, bits)| bits).or_else(|| inner.get("bits").and_then(Value::as_u64));
        Err(Problem::Quantized { file: self.file, method: truncated_text(method), bits }.into())
    }

    pub(crate) fn common_hyperparameters(&self, class: &ConfigDefaults) -> Result<Hyperparameters> {
        self.reject_quantized()?;
        let vocab = match self.get("vocab_size").and_then(Value::as_i64) {
            Some(-1) => None,
            _ => self.size("vocab_size")?,
        };
        let read = [class.activation.0, class.norm_eps.0];
        let is_known = |key: &str| [KNOWN_KEYS, class.own_keys, &read].iter().any(|keys| keys.contains(&key));
        let unused = self.map.iter().filter(|(key, value)| !is_known(key) && !value.is_null());
        let keys: Vec<String> = unused.map(|(key, _)| key.clone()).collect();
        let note = (!keys.is_empty()).then_some(DecoderNote::UnusedKeys { file: self.file, keys });
        Ok(Hyperparameters {
            dim: self.size("hidden_size")?,
            n_layers: self.size("num_hidden_layers")?,
            n_heads: self.size(LayoutOwner::HuggingFace.keys().n_heads)?,
            n_kv_heads: self.size("num_key_value_heads")?,
            head_dim: self.size("head_dim")?.or(class.head_dim),
            hidden: self.size("intermediate_size")?,
            vocab,
            norm_eps: self.number(class.norm_eps.0)?.unwrap_or(class.norm_eps.1),
            rope: self.rope(class)?,
            has_document: true,
            heads_from_caller: false,
            tied: self.flag_or("tie_word_embeddings", class.tied)?,
            windows: AttentionWindows::default(),
            biases: Biases::default(),
            block: Block { activation: self.activation(class)?, ..Block::default() },
            rotated: self.rotated(class)?,
            more_ropes: Vec::new(),
            rope_of_layer: None,
            skipped_layers: Vec::new(),
            other_embeddings: 0,
            notes: note.into_iter().collect(),
        })
    }
}

/// Returns a value as JSON, truncated if it is long.
fn truncated_json(value: &Value) -> String {
    truncated_text(&value.to_string())
}

fn truncated_text(text: &str) -> String {
    const SHOWN: usize = 40;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_defaults::DEFAULTS;
    use crate::rope::{Llama3, Rope, RopeScaling};

    #[test]
    fn rope_scaling_and_rope_parameters_mean_the_same() {
        let rope = |text: &str| {
            let config = ConfigJson::from_json(&format!("{{{text}}}")).expect("valid JSON");
            config.common_hyperparameters(&DEFAULTS).expect("valid values").rope
        };
        let llama3 = r#"{"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192"#;
        assert_eq!(rope(r#""rope_theta": 5e5"#), Rope { theta: 5e5, scaling: None });
        let older = rope(&format!(r#""rope_theta": 5e5, "rope_scaling": {llama3}}}"#));
        let newer = rope(&format!(r#""rope_parameters": {llama3}, "rope_theta": 5e5}}"#));
        assert_eq!(older, newer);
        assert_eq!(older.scaling, Some(RopeScaling::Llama3(Llama3::with_factor(32.0))));
        assert_eq!(
            rope(r#""rope_scaling": null, "rope_parameters": {"rope_theta": 7, "rope_type": "default"}"#),
            Rope { theta: 7.0, scaling: None }
        );
        assert_eq!(rope(r#""rope_scaling": {}"#), Rope { theta: 10_000.0, scaling: None });
    }
}

//! Hyperparameters of a model: those of its config.json, over the defaults of its class in `transformers`.
//!
//! Facts: `load_hparams` and `TextModel` of llama.cpp's converter, which read the configuration through `transformers` 5.23. There,
//! `rope_theta`, `rope_scaling` and the like become one object.

use byte_source::Result;
use families::ConfigClass;
use serde_json::{Map, Value, json};
use tensor::Tensor;

use crate::Problem;
use crate::architecture::{Architecture, of_class};
use crate::names::numbered_mtp;

/// Classes that set the size of a head from the others.
const COMPUTED_HEADS: &[&str] = &["arcee", "hunyuan_v1_dense", "llama", "mistral"];

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
    /// Number of layers that predict further tokens.
    pub(crate) mtp_layers: u64,
}

impl GgufConfig {
    /// Reads the config.json of a model.
    ///
    /// # Errors
    /// When it is not JSON, or of an architecture that is not written.
    pub(crate) fn from_json(text: &str, tensors: &[(String, Tensor)]) -> Result<Self> {
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
        let class = ConfigClass::of(architecture.model_type);
        if let Some(class) = class {
            values = class.with_defaults(&values);
        }
        let rope = rope_of(&values, architecture.model_type, class.and_then(|class| class.theta()));
        let mut config = Self { architecture, written, values, rope, mtp_layers: 0 };
        config.mtp_layers = config.count_mtp_layers(tensors).min(COUNT_MAX);
        if let (None, Some(heads)) = (config.get("num_key_value_heads"), config.get("num_attention_heads")) {
            let heads = heads.clone();
            config.values.insert("num_key_value_heads".to_owned(), heads);
        }
        if COMPUTED_HEADS.contains(&architecture.model_type) && config.get("head_dim").is_none() {
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

    /// Returns the number of layers, with those that predict further tokens.
    ///
    /// # Errors
    /// When it is missing, not positive, or too large.
    pub(crate) fn layers(&self) -> Result<u64> {
        Ok(self.own_layers()?.saturating_add(self.mtp_layers))
    }

    /// Returns the number of layers without those that predict further tokens.
    ///
    /// # Errors
    /// When it is missing, not positive, or too large.
    pub(crate) fn own_layers(&self) -> Result<u64> {
        self.count(self.key(&["num_hidden_layers", "n_layer"]))
    }

    /// Counts the layers that predict further tokens. Qwen's are missing in files that `transformers` saved, whose configurations still
    /// have their number, and there are configurations without it.
    fn count_mtp_layers(&self, tensors: &[(String, Tensor)]) -> u64 {
        let number = |key: &str| self.get(key).and_then(Value::as_u64).unwrap_or_default();
        match self.architecture {
            architecture if !architecture.has_mtp() => 0,
            architecture if !architecture.has_delta_net() => number("num_nextn_predict_layers"),
            _ => {
                let names = tensors.iter().filter_map(|(name, _)| numbered_mtp(name, 0));
                let layers = names.filter_map(|name| name.split('.').nth(2)?.parse::<u64>().ok());
                let found = layers.max().map_or(0, |last| last.saturating_add(1));
                if found == 0 { 0 } else { found.max(number("mtp_num_hidden_layers")) }
            }
        }
    }

    /// Returns the number of heads.
    ///
    /// # Errors
    /// When it is missing, not positive, or too large.
    pub(crate) fn heads(&self) -> Result<u64> {
        self.count(self.key(&["num_attention_heads", "n_head"]))
    }

    /// Returns the number of heads of keys.
    ///
    /// # Errors
    /// When it is missing, not positive, or too large.
    pub(crate) fn kv_heads(&self) -> Result<u64> {
        let is_set = |key: &str| self.get(key) == Some(&Value::Bool(true));
        match self.architecture.model_type {
            "falcon" if is_set("new_decoder_architecture") => {
                self.count(self.key(&["num_kv_heads", "num_attention_heads"]))
            }
            "falcon" if is_set("multi_query") => Ok(1),
            "bloom" | "falcon" | "gpt_neox" => self.heads(),
            _ => self.count("num_key_value_heads"),
        }
    }

    /// Returns the first key that has a value, else the first one.
    fn key<'k>(&self, keys: &[&'k str]) -> &'k str {
        let first = keys.first().copied().unwrap_or_default();
        self.find(keys).map_or(first, |(key, _)| key)
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

    /// Returns the number of dimensions of a head that are rotated.
    pub(crate) fn rotated_of_head(&self) -> Result<u64> {
        let rotated = self.rotated(self.size("hidden_size")?)?;
        Ok(rotated.checked_div(self.count("num_attention_heads")?).unwrap_or_default())
    }

    /// Returns how many of some dimensions are rotated.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "Python rounds it too"
    )]
    pub(crate) fn rotated(&self, dims: u64) -> Result<u64> {
        let (name, rope) = ("partial_rotary_factor", self.rope());
        match rope.get(name).map(Value::as_f64) {
            None => Ok(dims),
            Some(Some(part)) if (0.0..=1.0).contains(&part) => Ok((part * dims as f64) as u64),
            Some(_) => Err(invalid(name, rope.get(name), "a number between 0 and 1")),
        }
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

/// Returns the settings of rotary embeddings that a class has.
fn default_rope(model_type: &str) -> Map<String, Value> {
    let rope = match model_type {
        "apertus" => json!({
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }),
        "gpt_oss" => json!({
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
        }),
        "gemma4_text" => json!({
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        }),
        "ministral3" => json!({
            "type": "yarn",
            "rope_theta": 1_000_000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 16384,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        }),
        _ => Value::Null,
    };
    rope.as_object().cloned().unwrap_or_default()
}

/// Returns the part of a head that the layers of a class rotate.
fn default_rotated(model_type: &str) -> Option<f64> {
    match model_type {
        "glm" | "glm4" | "glm4_moe" | "minimax_m2" | "phi" => Some(0.5),
        "gpt_neox" | "qwen3_next" | "qwen3_5_text" | "qwen3_5_moe_text" | "stablelm" => Some(0.25),
        _ => None,
    }
}

/// Returns the settings of rotary embeddings as one object.
fn rope_of(values: &Map<String, Value>, model_type: &str, theta: Option<f64>) -> Map<String, Value> {
    let object = |key| values.get(key).and_then(Value::as_object);
    let given = object("rope_scaling").or_else(|| object("rope_parameters"));
    let mut rope = given.cloned().unwrap_or_else(|| default_rope(model_type));
    let named = |key: &str| values.get(key).filter(|it| !it.is_null()).cloned();
    let is_gemma = model_type == "gemma3_text";
    let theta = named("rope_theta")
        .or_else(|| named("rotary_emb_base"))
        .or_else(|| theta.or(is_gemma.then_some(1_000_000.0)).map(Value::from));
    let rotated = named("partial_rotary_factor")
        .or_else(|| named("rotary_pct"))
        .or_else(|| default_rotated(model_type).map(Value::from));
    let finish = |rope: &mut Map<String, Value>, theta: Option<Value>| {
        if let Some(theta) = theta {
            rope.entry("rope_theta").or_insert(theta);
        }
        let kind = rope.get("type").cloned().unwrap_or_else(|| "default".into());
        rope.entry("rope_type").or_insert(kind);
        let length = named("original_max_position_embeddings");
        for (key, value) in
            [("partial_rotary_factor", &rotated), ("original_max_position_embeddings", &length)]
        {
            if let Some(value) = value {
                rope.entry(key).or_insert_with(|| value.clone());
            }
        }
    };
    let has_two = rope.contains_key("full_attention");
    if !has_two && !is_gemma && model_type != "olmo3" {
        finish(&mut rope, theta);
        return rope;
    }
    let local = if is_gemma {
        values.get("rope_local_base_freq").cloned().or(Some(10_000.0.into()))
    } else {
        theta.clone()
    };
    let part = |name: &str| rope.get(name).and_then(Value::as_object).cloned();
    let mut full = if has_two { part("full_attention").unwrap_or_default() } else { rope.clone() };
    if is_gemma && !has_two {
        // Of Gemma 3, the older name `type` does not count.
        full.entry("rope_type").or_insert_with(|| "default".into());
    }
    let mut sliding = part("sliding_attention").unwrap_or_default();
    finish(&mut full, theta);
    finish(&mut sliding, local);
    [("full_attention", full), ("sliding_attention", sliding)]
        .map(|(name, part)| (name.to_owned(), Value::Object(part)))
        .into_iter()
        .collect()
}

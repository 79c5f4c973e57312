//! What the documents next to a checkpoint say about the quantization of its weights.
//!
//! Facts: `quantization_config` and the older `compression_config` in the `config.json` of `transformers` 5.23,
//! `hf_quant_config.json` of NVIDIA's ModelOpt, `quanto_qmap.json` of `optimum-quanto` 0.2.7, `quantize_config.json` of `auto-gptq` 0.7 and
//! `quant_config.json` of `autoawq` 0.1, which are older than `quantization_config`.

use serde_json::{Map, Value};
use tensor::Dtype;

use crate::{Error, Problem, Result};

/// Names of the documents that only describe the quantization, and mean nothing without it.
pub const QUANTIZATION_DOCUMENTS: &[&str] = &[MODELOPT_FILE, QUANTO_FILE, GPTQ_FILE, AWQ_FILE];

pub(crate) const CONFIG_FILE: &str = "config.json";
pub(crate) const MODELOPT_FILE: &str = "hf_quant_config.json";
pub(crate) const QUANTO_FILE: &str = "quanto_qmap.json";
pub(crate) const GPTQ_FILE: &str = "quantize_config.json";
pub(crate) const AWQ_FILE: &str = "quant_config.json";
/// Members of `config.json` that describe the quantization.
const MEMBERS: &[&str] = &["quantization_config", "compression_config"];
/// Member of `config.json` in which MLX describes the quantization, and has a copy in `quantization_config`.
const MLX_MEMBER: &str = "quantization";
/// Method of auto-round, and the key under which it says how codes are packed.
pub(crate) const AUTO_ROUND: &str = "auto-round";
pub(crate) const PACKING_FORMAT: &str = "packing_format";
/// Members of `config.json` with the configuration of the language model in a larger one.
const INNER_CONFIGS: &[&str] = &["text_config", "llm_config", "language_config"];

/// Key in the header of a file under which ComfyUI describes its layers.
pub const COMFY_KEY: &str = "_quantization_metadata";
/// Key in the header of a file under which ModelOpt describes the quantization.
pub const MODELOPT_KEY: &str = "quantization_config";

/// Texts of the documents next to a checkpoint that may describe the quantization of its weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuantizationDocuments {
    /// Text of `config.json`.
    pub config: Option<String>,
    /// Text of `hf_quant_config.json`.
    pub modelopt: Option<String>,
    /// Text of `quanto_qmap.json`.
    pub quanto: Option<String>,
    /// Text of `quantize_config.json`.
    pub gptq: Option<String>,
    /// Text of `quant_config.json`.
    pub awq: Option<String>,
    /// Text of ComfyUI's `_quantization_metadata` in the header of a file.
    pub comfy: Option<String>,
    /// True if the header of a file has ModelOpt's `quantization_config`.
    pub has_modelopt_header: bool,
}

/// Quantization of a model, as its documents describe it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct QuantizationConfig {
    pub(crate) method: String,
    pub(crate) members: Map<String, Value>,
    pub(crate) file: &'static str,
    pub(crate) hidden_size: Option<u64>,
    pub(crate) model_type: Option<String>,
}

impl QuantizationDocuments {
    /// Returns the description of the quantization; `None` if no document has one.
    pub(crate) fn quantization(&self) -> Result<Option<QuantizationConfig>> {
        let config = parse(self.config.as_deref(), CONFIG_FILE)?;
        let inner = INNER_CONFIGS.iter().filter_map(|key| config.get(*key)?.as_object());
        let objects: Vec<&Map<String, Value>> = std::iter::once(&config).chain(inner).collect();
        let hidden_size = objects.iter().find_map(|object| object.get("hidden_size")?.as_u64());
        let model_type = config.get("model_type").and_then(Value::as_str).map(str::to_owned);
        if let Some(members) = config.get(MLX_MEMBER).filter(|value| is_mlx(value)).and_then(Value::as_object)
        {
            let mut members = members.clone();
            // auto-round describes itself next to it.
            let packing = MEMBERS.iter().find_map(|key| config.get(*key)?.as_object()?.get(PACKING_FORMAT));
            members.extend(packing.map(|packing| (PACKING_FORMAT.to_owned(), packing.clone())));
            let method = if packing.is_some() { AUTO_ROUND } else { "mlx" }.to_owned();
            return Ok(Some(QuantizationConfig {
                method,
                members,
                file: CONFIG_FILE,
                hidden_size,
                model_type,
            }));
        }
        let described = objects.iter().find_map(|object| {
            MEMBERS
                .iter()
                .find_map(|key| object.get(*key).filter(|value| !value.is_null()).map(|it| (*key, it)))
        });
        if let Some((key, value)) = described {
            let members = value.as_object().ok_or_else(|| Problem::Document {
                file: CONFIG_FILE,
                problem: format!("`{key}` is not an object"),
            })?;
            let method = method(members, key);
            let (members, file) = (members.clone(), CONFIG_FILE);
            return Ok(Some(QuantizationConfig { method, members, file, hidden_size, model_type }));
        }
        let modelopt = parse(self.modelopt.as_deref(), MODELOPT_FILE)?;
        if let Some(members) = modelopt.get("quantization").and_then(Value::as_object) {
            let method = "modelopt".to_owned();
            let (members, file) = (members.clone(), MODELOPT_FILE);
            return Ok(Some(QuantizationConfig { method, members, file, hidden_size, model_type }));
        }
        if self.comfy.is_some() {
            let members = parse(self.comfy.as_deref(), COMFY_KEY)?;
            if self.has_modelopt_header {
                let problem =
                    "next to it is a `quantization_config`, as of ModelOpt, whose codes have another order"
                        .to_owned();
                return Err(Problem::Document { file: COMFY_KEY, problem }.into());
            }
            let method = "comfyui".to_owned();
            return Ok(Some(QuantizationConfig {
                method,
                members,
                file: COMFY_KEY,
                hidden_size,
                model_type,
            }));
        }
        for (text, file, method) in [
            (&self.quanto, QUANTO_FILE, "quanto"),
            (&self.gptq, GPTQ_FILE, "gptq"),
            (&self.awq, AWQ_FILE, "awq"),
        ] {
            if text.is_some() {
                let members = parse(text.as_deref(), file)?;
                let named = members.get("quant_method").and_then(Value::as_str);
                let method = named.unwrap_or(method).to_owned();
                return Ok(Some(QuantizationConfig { method, members, file, hidden_size, model_type }));
            }
        }
        Ok(None)
    }

    /// Returns the dtype that `config.json` gives for the weights.
    pub fn dtype(&self) -> Option<Dtype> {
        let config = parse(self.config.as_deref(), CONFIG_FILE).ok()?;
        let inner = INNER_CONFIGS.iter().filter_map(|key| config.get(*key)?.as_object());
        let name = std::iter::once(&config)
            .chain(inner)
            .find_map(|object| ["dtype", "torch_dtype"].iter().find_map(|key| object.get(*key)?.as_str()))?;
        Dtype::from_name(name.strip_prefix("torch.").unwrap_or(name))
            .filter(|dtype| dtype.is_floating_point())
    }

    /// Returns the text of `config.json` without the members that describe the quantization.
    ///
    /// # Errors
    /// When the document is not a JSON object.
    pub fn config_without_quantization(&self) -> Result<Option<String>> {
        let Some(text) = &self.config else { return Ok(None) };
        let mut config = parse(Some(text), CONFIG_FILE)?;
        let mut is_changed = remove_members(&mut config);
        for key in INNER_CONFIGS {
            if let Some(inner) = config.get_mut(*key).and_then(Value::as_object_mut) {
                is_changed |= remove_members(inner);
            }
        }
        if !is_changed {
            return Ok(Some(text.clone()));
        }
        let text = serde_json::to_string_pretty(&config).unwrap_or_default();
        Ok(Some(text + "\n"))
    }
}

/// Returns the text of a `config.json` whose weights have the dtype `dtype`; `None` if it says so already, or names no dtype. Its own
/// member and those of the models in it are changed, so that `transformers` loads the weights as they are.
pub fn config_with_dtype(text: &str, dtype: Dtype) -> Option<String> {
    let mut config = parse(Some(text), CONFIG_FILE).ok()?;
    let mut is_changed = set_dtype(&mut config, dtype);
    for (_, inner) in config.iter_mut().filter(|(key, _)| key.ends_with("_config") && !is_member(key)) {
        is_changed |= inner.as_object_mut().is_some_and(|inner| set_dtype(inner, dtype));
    }
    is_changed.then(|| serde_json::to_string_pretty(&config).unwrap_or_default() + "\n")
}

fn set_dtype(object: &mut Map<String, Value>, dtype: Dtype) -> bool {
    let mut is_changed = false;
    for key in ["dtype", "torch_dtype"] {
        let Some(Value::String(name)) = object.get_mut(key) else { continue };
        let is_other = name.strip_prefix("torch.").unwrap_or(name) != dtype.name();
        if is_other {
            dtype.name().clone_into(name);
        }
        is_changed |= is_other;
    }
    is_changed
}

fn is_member(key: &str) -> bool {
    MEMBERS.contains(&key)
}

/// Returns true if a member of `config.json` has the settings of MLX.
fn is_mlx(value: &Value) -> bool {
    value.as_object().is_some_and(is_set_of_mlx)
}

fn is_set_of_mlx(members: &Map<String, Value>) -> bool {
    members.contains_key("group_size")
        && members.contains_key("bits")
        && !members.contains_key("quant_method")
}

/// Returns true if a `config.json` describes weights that MLX quantized, next to which an index may be that of other files.
pub fn is_mlx_config(text: &str) -> bool {
    let config = parse(Some(text), CONFIG_FILE).unwrap_or_default();
    [MLX_MEMBER, "quantization_config"].iter().any(|key| config.get(*key).is_some_and(is_mlx))
}

fn remove_members(object: &mut Map<String, Value>) -> bool {
    let before = object.len();
    object.retain(|key, value| !(is_member(key) || key == MLX_MEMBER && is_mlx(value)));
    object.len() < before
}

/// Returns the name of the method. Old files of bitsandbytes have flags instead, and those of ModelOpt a producer.
fn method(members: &Map<String, Value>, key: &str) -> String {
    let text = |key: &str| members.get(key).and_then(Value::as_str);
    let is_set = |flag: &str| members.get(flag).and_then(Value::as_bool) == Some(true);
    if let Some(method) = text("quant_method") {
        return method.to_owned();
    }
    if is_set("load_in_4bit") || is_set("load_in_8bit") {
        return "bitsandbytes".to_owned();
    }
    if is_set_of_mlx(members) {
        return "mlx".to_owned();
    }
    if text("quant_algo").is_some() {
        return "modelopt".to_owned();
    }
    if members.contains_key("config_groups") || key == "compression_config" {
        return "compressed-tensors".to_owned();
    }
    String::new()
}

fn parse(text: Option<&str>, file: &'static str) -> Result<Map<String, Value>> {
    let Some(text) = text else { return Ok(Map::new()) };
    let document = |problem: String| Problem::Document { file, problem };
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(document("it is not an object".to_owned()).into()),
        Err(error) => Err(document(error.to_string()).into()),
    }
}

impl QuantizationConfig {
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.members.get(key)?.as_str()
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.members.get(key)?.as_u64()
    }

    pub(crate) fn unsupported(&self, key: &str, expected: &str) -> Error {
        let found = self.members.get(key).map_or_else(|| "missing".to_owned(), ToString::to_string);
        let found =
            if found.chars().count() > 60 { found.chars().take(60).chain(['…']).collect() } else { found };
        Problem::Unsupported {
            method: self.method.clone(),
            key: key.to_owned(),
            found,
            expected: expected.to_owned(),
        }
        .into()
    }
}

//! The way back: tensors of a GGUF file in the names of `transformers`, with the configuration that its keys describe.
//!
//! Each rule is that of the way out, undone: rows of queries and keys are permuted back, 1 is taken from norms, and the experts of a
//! layer are numbered. What no key says has the value that the class of `transformers` has by default.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use byte_source::Result;
use gguf_format::GgufValue;
use serde_json::{Map, Value, json};
use tensor::Tensor;

use crate::Problem;
use crate::architecture::{Architecture, of_name};
use crate::names::{ModuleNames, SplitName};
use crate::rope::{llama3_factors, numbers};
use crate::tensors::{expert_role, shifted};

/// Keys of a file, by their names.
pub type GgufKeys = BTreeMap<String, GgufValue>;

/// A model in the names of `transformers`.
#[derive(Debug)]
#[non_exhaustive]
pub struct HuggingFaceModel {
    pub tensors: Vec<(String, Tensor)>,
    /// Place of the tensor in the file of which each tensor is a part.
    pub places: Vec<usize>,
    /// The keys of `config.json`.
    pub config: Map<String, Value>,
    /// Names in the file of tensors that have no such name.
    pub unknown: Vec<String>,
    architecture: &'static Architecture,
    names: ModuleNames,
}

impl HuggingFaceModel {
    /// Returns the name of the architecture in llama.cpp.
    pub fn architecture(&self) -> &'static str {
        self.architecture.name
    }

    /// Returns what llama.cpp calls a tensor with a name of `transformers`; several experts have the same. `None` if it has no name for
    /// it.
    pub fn name_in_file(&self, name: &str) -> Option<String> {
        let split = SplitName::new(name)?;
        Some(split.in_layer(self.names.known(split)?.0, split.end))
    }
}

/// Whole numbers and floats: the key, and what a configuration calls it.
const KEYS: &[(&str, &str)] = &[
    (".context_length", "max_position_embeddings"),
    (".embedding_length", "hidden_size"),
    (".block_count", "num_hidden_layers"),
    (".feed_forward_length", "intermediate_size"),
    (".attention.head_count", "num_attention_heads"),
    (".attention.head_count_kv", "num_key_value_heads"),
    (".attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    (".attention.layer_norm_epsilon", "layer_norm_eps"),
    (".attention.key_length", "head_dim"),
    (".attention.sliding_window", "sliding_window"),
    (".attention.scale", "attention_multiplier"),
    (".rope.freq_base", "rope_theta"),
    (".rope.freq_base_swa", "rope_local_base_freq"),
    (".expert_count", "num_experts"),
    (".expert_used_count", "num_experts_per_tok"),
    (".expert_feed_forward_length", "moe_intermediate_size"),
    (".expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    (".attn_logit_softcapping", "attn_logit_softcapping"),
    (".final_logit_softcapping", "final_logit_softcapping"),
    (".embedding_scale", "embedding_multiplier"),
    (".residual_scale", "residual_multiplier"),
    (".logit_scale", "logits_scaling"),
    (".use_parallel_residual", "use_parallel_residual"),
    (".vocab_size", "vocab_size"),
    ("tokenizer.ggml.bos_token_id", "bos_token_id"),
    ("tokenizer.ggml.eos_token_id", "eos_token_id"),
    ("tokenizer.ggml.padding_token_id", "pad_token_id"),
];
/// Settings of scaled rotary embeddings.
const SCALING: &[(&str, &str)] = &[
    (".rope.scaling.type", "rope_type"),
    (".rope.scaling.factor", "factor"),
    (".rope.scaling.original_context_length", "original_max_position_embeddings"),
    (".rope.scaling.yarn_attn_factor", "attention_factor"),
    (".rope.scaling.yarn_beta_fast", "beta_fast"),
    (".rope.scaling.yarn_beta_slow", "beta_slow"),
    (".rope.scaling.yarn_log_multiplier", "mscale_all_dim"),
    (".attention.temperature_scale", "llama_4_scaling_beta"),
];

/// Returns the tensors of a file in the names of `transformers`, and their configuration.
///
/// # Errors
/// When the architecture has no such class, a tensor has another shape than its role, or factors of rotary embeddings are
/// those of no configuration.
pub fn hugging_face_model(keys: &GgufKeys, tensors: &[(String, Tensor)]) -> Result<HuggingFaceModel> {
    let name = keys.get("general.architecture").and_then(GgufValue::text).unwrap_or_default();
    let has_experts = keys.contains_key(&format!("{name}.expert_count"));
    let architecture = of_name(&name, has_experts)?;
    let mut config = config(keys, architecture);
    let rows = |name: &str| -> Option<u64> {
        tensors.iter().find(|(known, _)| known == name)?.1.shape().first().copied()
    };
    let vocabulary = rows("token_embd.weight").map(|rows| ("vocab_size", rows));
    // The keys of Phi are four times the width and the number of all heads, whatever the layers have.
    let is_phi = architecture.model_type == "phi";
    let width = rows("blk.0.ffn_up.weight").filter(|_| is_phi).map(|rows| ("intermediate_size", rows));
    let heads = config.get("num_attention_heads").and_then(Value::as_u64).filter(|_| is_phi);
    let head_dim = heads.zip(rows("blk.0.attn_q.weight")).and_then(|(heads, rows)| rows.checked_div(heads));
    let kv_heads = head_dim.zip(rows("blk.0.attn_k.weight")).and_then(|(dim, rows)| rows.checked_div(dim));
    let kv_heads = kv_heads.map(|heads| ("num_key_value_heads", heads));
    for (key, size) in [vocabulary, width, kv_heads].into_iter().flatten() {
        config.insert(key.to_owned(), size.into());
    }
    let is_tied = tensors.iter().all(|(name, _)| name != "output.weight");
    config.insert("tie_word_embeddings".to_owned(), is_tied.into());
    let names = ModuleNames::of(architecture);
    let mut back = Back { architecture, names, config, tensors: Vec::new(), places: Vec::new() };
    back.set_biases(tensors);
    let mut unknown = Vec::new();
    for (place, (name, tensor)) in tensors.iter().enumerate() {
        match back.add(place, name, tensor, tensors) {
            Err(error) if matches!(error.detail(), Some(Problem::NoOtherName { .. })) => {
                unknown.push(name.clone());
            }
            added => added?,
        }
    }
    let Back { tensors, places, config, names, .. } = back;
    Ok(HuggingFaceModel { tensors, places, config, unknown, architecture, names })
}

/// Converts a number, in the shortest form of its digits.
fn json_of(value: &GgufValue) -> Option<Value> {
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

fn config(keys: &GgufKeys, architecture: &Architecture) -> Map<String, Value> {
    let get = |key: &str| {
        let key = if key.starts_with('.') { format!("{}{key}", architecture.name) } else { key.to_owned() };
        keys.get(&key).and_then(json_of)
    };
    let rows = |rows: &[(&str, &str)]| -> Map<String, Value> {
        rows.iter().filter_map(|(key, name)| Some(((*name).to_owned(), get(key)?))).collect()
    };
    let mut config = rows(KEYS);
    let class = architecture.classes.first().copied().unwrap_or_default();
    config.insert("architectures".to_owned(), json!([format!("{class}ForCausalLM")]));
    config.insert("model_type".to_owned(), architecture.model_type.into());
    if architecture.model_type == "starcoder2"
        && let Some(epsilon) = config.remove("layer_norm_eps")
    {
        config.insert("norm_epsilon".to_owned(), epsilon);
    }
    if architecture.model_type == "cohere"
        && let Some(scale) = config.remove("logits_scaling")
    {
        config.insert("logit_scale".to_owned(), scale);
    }
    if architecture.model_type == "gpt_oss" {
        config.remove("moe_intermediate_size");
    }
    if matches!(architecture.model_type, "mixtral" | "gpt_oss")
        && let Some(count) = config.remove("num_experts")
    {
        config.insert("num_local_experts".to_owned(), count);
    }
    if config.get("sliding_window") == Some(&json!(0)) {
        config.insert("sliding_window".to_owned(), Value::Null);
    }
    let heads = |name: &str| config.get(name).and_then(Value::as_u64);
    let whole = heads("hidden_size").zip(heads("num_attention_heads"));
    let whole = whole.and_then(|(dim, heads)| dim.checked_div(heads));
    let rotated =
        get(".rope.dimension_count").and_then(|dims| dims.as_u64()).filter(|dims| Some(*dims) != whole);
    if let (Some(whole), Some(rotated)) = (whole, rotated) {
        if ["stablelm", "phi", "phi3"].contains(&architecture.model_type) {
            #[expect(clippy::cast_precision_loss, reason = "sizes of heads are small")]
            config.insert("partial_rotary_factor".to_owned(), json!(rotated as f64 / whole as f64));
        } else {
            config.entry("head_dim").or_insert(rotated.into());
        }
    }
    let mut scaling = rows(SCALING);
    scaling.retain(|key, value| key != "rope_type" || value != "none");
    if let Some(length) =
        scaling.get("original_max_position_embeddings").filter(|_| architecture.name == "phi3")
    {
        config.insert("original_max_position_embeddings".to_owned(), length.clone());
    }
    if scaling.contains_key("rope_type") {
        if let Some(theta) = config.get("rope_theta") {
            scaling.insert("rope_theta".to_owned(), theta.clone());
        }
        config.insert("rope_scaling".to_owned(), scaling.into());
    }
    config
}

struct Back {
    architecture: &'static Architecture,
    names: ModuleNames,
    config: Map<String, Value>,
    tensors: Vec<(String, Tensor)>,
    places: Vec<usize>,
}

impl Back {
    fn push(&mut self, place: usize, name: String, tensor: Tensor) {
        self.tensors.push((name, tensor));
        self.places.push(place);
    }

    fn size(&self, key: &'static str) -> Result<u64> {
        let found = self.config.get(key);
        let size = found.and_then(Value::as_u64).filter(|size| *size > 0);
        size.ok_or_else(|| crate::config::invalid(key, found, "a positive number"))
    }

    /// Records which biases there are, where the class needs to know.
    fn set_biases(&mut self, tensors: &[(String, Tensor)]) {
        let has = |name: &str| tensors.iter().any(|(known, _)| known == name);
        if self.architecture.model_type == "starcoder2" {
            self.config.insert("use_bias".to_owned(), has("blk.0.attn_q.bias").into());
            return;
        }
        for (key, name) in [
            ("attention_bias", "blk.0.attn_q.bias"),
            ("mlp_bias", "blk.0.ffn_up.bias"),
            ("use_qkv_bias", "blk.0.attn_q.bias"),
            ("qk_layernorm", "blk.0.attn_q_norm.weight"),
            ("use_qk_norm", "blk.0.attn_q_norm.weight"),
        ] {
            let is_stablelm = self.architecture.model_type == "stablelm";
            let is_of_stablelm = ["use_qkv_bias", "qk_layernorm"].contains(&key);
            // Qwen 2 and Phi always have biases.
            let is_fixed = ["qwen2", "phi"].iter().any(|kind| self.architecture.model_type.starts_with(kind));
            let is_of_cohere = self.architecture.model_type == "cohere";
            let is_known = is_stablelm == is_of_stablelm && (key != "use_qk_norm" || is_of_cohere);
            if is_known && !is_fixed && has(name) {
                self.config.insert(key.to_owned(), true.into());
            }
        }
    }

    fn add(&mut self, place: usize, name: &str, tensor: &Tensor, all: &[(String, Tensor)]) -> Result<()> {
        let no_name =
            || Problem::NoOtherName { tensor: name.to_owned(), architecture: self.architecture.name };
        match name {
            "rope_freqs.weight" => return self.set_llama3(tensor),
            "rope_factors_long.weight" | "rope_factors_short.weight" => {
                let key = if name.contains("long") { "long_factor" } else { "short_factor" };
                let factors = numbers(tensor)?;
                let list: Vec<f64> = factors.iter().filter_map(|it| it.to_string().parse().ok()).collect();
                let scaling =
                    self.config.entry("rope_scaling").or_insert_with(|| json!({"rope_type": "longrope"}));
                if let Value::Object(scaling) = scaling {
                    scaling.insert(key.to_owned(), json!(list));
                }
                return Ok(());
            }
            _ => {}
        }
        let end = [".weight", ".bias"].into_iter().find(|end| name.ends_with(end)).ok_or_else(no_name)?;
        let known = name.strip_suffix(end).unwrap_or_default();
        let Some((layer, weight)) = known.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
            let module = self.names.module(known).ok_or_else(no_name)?;
            let (name, changed) = (format!("{module}{end}"), self.changed(known, tensor)?);
            self.push(place, name, changed);
            return Ok(());
        };
        let prefix = format!("model.layers.{layer}.");
        if let ("gpt_oss", Some(role)) = (self.architecture.model_type, expert_role(weight)) {
            return self.add_fused(place, &prefix, (role, end), tensor, all);
        }
        let module = self.names.module(weight).ok_or_else(no_name)?.to_owned();
        if module.contains("{}") {
            for number in 0..tensor.shape().first().copied().unwrap_or_default() {
                let module = module.replacen("{}", &number.to_string(), 1);
                self.push(place, format!("{prefix}{module}{end}"), row(tensor, number)?);
            }
            return Ok(());
        }
        let end = if module == "self_attn.sinks" { "" } else { end };
        let changed = self.changed(weight, tensor)?;
        self.push(place, format!("{prefix}{module}{end}"), changed);
        Ok(())
    }

    /// Permutes the rows of queries and keys back, and takes 1 from norms.
    fn changed(&self, known: &str, tensor: &Tensor) -> Result<Tensor> {
        if self.architecture.shifts_norms && known.ends_with("norm") {
            return Ok(shifted(tensor, -1.0).unwrap_or_else(|| tensor.clone()));
        }
        let heads = match known {
            "attn_q" if self.architecture.permutes => "num_attention_heads",
            "attn_k" if self.architecture.permutes => "num_key_value_heads",
            _ => return Ok(tensor.clone()),
        };
        let heads = self.size(heads)?;
        let rows = tensor.shape().first().copied().unwrap_or_default();
        let half = rows.checked_div(heads.saturating_mul(2)).and_then(NonZeroU64::new);
        Ok(tensor.with_grid_transposed(heads, half.unwrap_or(NonZeroU64::MIN))?)
    }

    /// Joins the gates and the rows of the experts of gpt-oss, which alternate.
    fn add_fused(
        &mut self,
        place: usize,
        prefix: &str,
        (role, end): (&str, &str),
        tensor: &Tensor,
        all: &[(String, Tensor)],
    ) -> Result<()> {
        let suffix = if end == ".bias" { "_bias" } else { "" };
        let across =
            |tensor: &Tensor| if end == ".bias" { Some(tensor.clone()) } else { tensor.transpose(1, 2) };
        let wrong = |name: &str, tensor: &Tensor| Problem::Shape {
            tensor: name.to_owned(),
            shape: tensor.shape().to_vec(),
            expected: "those of experts".to_owned(),
        };
        match role {
            "down" => {
                let tensor = across(tensor).ok_or_else(|| wrong("ffn_down_exps", tensor))?;
                self.push(place, format!("{prefix}mlp.experts.down_proj{suffix}"), tensor);
            }
            "gate" => {
                let layer = prefix.trim_start_matches("model.layers.");
                let partner = format!("blk.{layer}ffn_up_exps{end}");
                let up = all.iter().find(|(name, _)| *name == partner).map(|(_, up)| up);
                let up = up.ok_or_else(|| wrong(&partner, tensor))?;
                let pair: Option<Vec<Tensor>> = [tensor, up].iter().map(|part| part.unsqueeze(2)).collect();
                let joined = Tensor::concat(2, &pair.ok_or_else(|| wrong(&partner, tensor))?)?;
                let mut shape = tensor.shape().to_vec();
                shape.get_mut(1).into_iter().for_each(|rows| *rows = rows.saturating_mul(2));
                let joined = joined.reshaped(&shape)?;
                let joined = across(&joined).ok_or_else(|| wrong(&partner, tensor))?;
                self.push(place, format!("{prefix}mlp.experts.gate_up_proj{suffix}"), joined);
            }
            _ => {}
        }
        Ok(())
    }

    /// Finds the settings of Llama 3's scaling whose factors these are.
    fn set_llama3(&mut self, tensor: &Tensor) -> Result<()> {
        let found = numbers(tensor)?;
        let factor = found.iter().copied().fold(1.0_f32, f32::max);
        let theta = self.config.get("rope_theta").and_then(Value::as_f64).unwrap_or(10_000.0);
        let dim = (found.len() as u64).saturating_mul(2);
        let [low, high] = [1.0, 4.0];
        // That of all models by Meta first.
        let contexts = [8192_u32].into_iter().chain((5..21).map(|power| 1 << power));
        for context in contexts {
            let factors = llama3_factors(dim, theta, (f64::from(factor), low, high, context.into()));
            let is_close = |(ours, theirs): (&f32, &f32)| (ours - theirs).abs() <= theirs * 1e-5;
            if factors.iter().zip(&found).all(is_close) {
                let scaling = json!({
                    "rope_type": "llama3",
                    "factor": f64::from(factor),
                    "low_freq_factor": low,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": context,
                });
                self.config.insert("rope_scaling".to_owned(), scaling);
                return Ok(());
            }
        }
        Err(Problem::Factors.into())
    }
}

/// Returns one item along the first dimension.
fn row(tensor: &Tensor, number: u64) -> Result<Tensor> {
    let (shape, stride) = (tensor.shape().get(1..), tensor.stride().get(1..));
    let step = tensor.stride().first().copied().unwrap_or_default();
    let offset = tensor.storage_offset().saturating_add(number.saturating_mul(step));
    Ok(Tensor::new(
        tensor.dtype(),
        shape.unwrap_or_default().to_vec(),
        stride.unwrap_or_default().to_vec(),
        offset,
        tensor.storage().clone(),
    )?)
}

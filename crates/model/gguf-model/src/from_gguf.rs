//! The way back: tensors of a GGUF file in the names of `transformers`, with the configuration that its keys describe.
//!
//! Each rule is that of the way out, undone: rows of queries and keys are permuted back, 1 is taken from norms, and the experts of a
//! layer are numbered. What no key says has the value that the class of `transformers` has by default.

use std::collections::HashMap;
use std::num::NonZeroU64;

use byte_source::Result;
use families::ConfigClass;
use gguf_format::GgufValue;
use serde_json::{Map, Value, json};
use tensor::Tensor;

use crate::Problem;
use crate::architecture::{Architecture, JoinedTensor, of_name};
use crate::keys::{GgufKeys, json_of};
use crate::names::{ModuleNames, bare_end};
use crate::rope::{llama3_factors, numbers};
use crate::tensors::shifted;
use crate::views::{Heads, items};
use crate::xielu;

/// Tensors of a file, by their names.
type ByName<'t> = HashMap<&'t str, &'t Tensor>;

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
        let split = self.names.split(name)?;
        let known = self.names.known(split)?.0;
        Some(split.in_layer(known, bare_end(known).unwrap_or(split.end)))
    }
}

/// Numbers and flags: the key, and what configurations call it. The class of a model has one of the names, or the first.
const KEYS: &[(&str, &[&str])] = &[
    (".context_length", &["max_position_embeddings"]),
    (".embedding_length", &["hidden_size"]),
    (".block_count", &["num_hidden_layers"]),
    (".feed_forward_length", &["intermediate_size"]),
    (".attention.head_count", &["num_attention_heads"]),
    (".attention.head_count_kv", &["num_key_value_heads", "num_kv_heads"]),
    (".attention.layer_norm_rms_epsilon", &["rms_norm_eps"]),
    (".attention.layer_norm_epsilon", &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"]),
    (".attention.key_length", &["head_dim"]),
    (".attention.sliding_window", &["sliding_window"]),
    (".attention.scale", &["attention_multiplier"]),
    (".rope.freq_base", &["rope_theta"]),
    (".rope.freq_base_swa", &["rope_local_base_freq"]),
    (".expert_count", &["num_experts", "num_local_experts", "n_routed_experts"]),
    (".expert_used_count", &["num_experts_per_tok"]),
    (".expert_group_count", &["n_group"]),
    (".expert_group_used_count", &["topk_group"]),
    (".expert_feed_forward_length", &["moe_intermediate_size"]),
    (".expert_shared_count", &["n_shared_experts"]),
    (".expert_shared_feed_forward_length", &["shared_expert_intermediate_size", "shared_intermediate_size"]),
    (".expert_weights_scale", &["routed_scaling_factor"]),
    (".expert_weights_norm", &["norm_topk_prob"]),
    (".leading_dense_block_count", &["first_k_dense_replace"]),
    (".nextn_predict_layers", &["num_nextn_predict_layers"]),
    (".attn_logit_softcapping", &["attn_logit_softcapping"]),
    (".final_logit_softcapping", &["final_logit_softcapping"]),
    (".embedding_scale", &["embedding_multiplier"]),
    (".residual_scale", &["residual_multiplier"]),
    (".logit_scale", &["logits_scaling", "logit_scale"]),
    (".use_parallel_residual", &["use_parallel_residual"]),
    (".vocab_size", &["vocab_size"]),
    ("tokenizer.ggml.bos_token_id", &["bos_token_id"]),
    ("tokenizer.ggml.eos_token_id", &["eos_token_id"]),
    ("tokenizer.ggml.padding_token_id", &["pad_token_id"]),
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
    let architecture = of_name(&name, |key| keys.contains_key(&format!("{name}.{key}")))?;
    let class = ConfigClass::of(architecture.model_type);
    let mut config = config(keys, architecture, class);
    let by_name: ByName<'_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    set_sizes(&mut config, architecture.model_type, &by_name);
    let names = ModuleNames::of(architecture);
    let mut back = Back { architecture, names, config, tensors: Vec::new(), places: Vec::new() };
    back.set_parts(class, &by_name);
    let lists =
        if architecture.name == "apertus" { xielu::Lists::read(keys) } else { xielu::Lists::default() };
    let mut unknown = Vec::new();
    for (place, (name, tensor)) in tensors.iter().enumerate() {
        // The numbers of an activation come with a weight of their layer.
        if let Some(layer) = name.strip_prefix("blk.").and_then(|rest| rest.strip_suffix(".ffn_up.weight")) {
            for (module, number) in lists.of_layer(layer)? {
                back.push(place, format!("{}{module}", back.names.layer(layer)), number);
            }
        }
        match back.add(place, name, tensor, &by_name) {
            Err(error) if matches!(error.detail(), Some(Problem::NoOtherName { .. })) => {
                unknown.push(name.clone());
            }
            added => added?,
        }
    }
    let Back { tensors, places, mut config, names, .. } = back;
    if let Some(class) = class {
        config = config.into_iter().map(|(key, value)| (class.own_name(&key).to_owned(), value)).collect();
    }
    Ok(HuggingFaceModel { tensors, places, config, unknown, architecture, names })
}

/// Sets what only the shapes of tensors tell.
fn set_sizes(config: &mut Map<String, Value>, model_type: &str, tensors: &ByName<'_>) {
    let rows = |name: &str| tensors.get(name)?.shape().first().copied();
    let mut set = |key: &str, value: Option<Value>| config.extend(value.map(|value| (key.to_owned(), value)));
    set("vocab_size", rows("token_embd.weight").map(Value::from));
    set("tie_word_embeddings", Some(rows("output.weight").is_none().into()));
    let inner = rows("blk.0.ffn_up.weight").map(Value::from);
    match model_type {
        // The keys of Phi are four times the width and the number of all heads, whatever the layers have.
        "phi" => set("intermediate_size", inner),
        "falcon" => set("ffn_hidden_size", inner),
        "gpt2" => set("n_inner", inner),
        _ => {}
    }
    let number = |config: &Map<String, Value>, key: &str| config.get(key).and_then(Value::as_u64);
    let heads = number(config, "num_attention_heads");
    match model_type {
        "phi" => {
            let head_dim =
                heads.zip(rows("blk.0.attn_q.weight")).and_then(|(heads, rows)| rows.checked_div(heads));
            let kv_heads =
                head_dim.zip(rows("blk.0.attn_k.weight")).and_then(|(dim, rows)| rows.checked_div(dim));
            config.extend(kv_heads.map(|heads| ("num_key_value_heads".to_owned(), heads.into())));
        }
        "falcon" => {
            let is_new = number(config, "num_kv_heads").is_some_and(|heads| heads != 1);
            let norms = if rows("blk.0.attn_norm_2.weight").is_some() { 2 } else { 1 };
            config.insert("new_decoder_architecture".to_owned(), is_new.into());
            config.insert("multi_query".to_owned(), true.into());
            if is_new {
                config.insert("num_ln_in_parallel_attn".to_owned(), norms.into());
            }
        }
        "glm4_moe" => {
            let more = number(config, "num_nextn_predict_layers").unwrap_or_default();
            let all = number(config, "num_hidden_layers").map(|all| all.saturating_sub(more));
            config.extend(all.map(|layers| ("num_hidden_layers".to_owned(), layers.into())));
        }
        _ => {}
    }
}

fn config(keys: &GgufKeys, architecture: &Architecture, class: Option<ConfigClass>) -> Map<String, Value> {
    let get = |key: &str| {
        let key = if key.starts_with('.') { format!("{}{key}", architecture.name) } else { key.to_owned() };
        keys.get(&key).and_then(json_of)
    };
    let own = |names: &[&'static str]| {
        let known = names.iter().find(|name| class.is_some_and(|class| class.has(name)));
        known.or(names.first()).copied().unwrap_or_default()
    };
    let values = KEYS.iter().filter_map(|(key, names)| Some((own(names).to_owned(), get(key)?)));
    let mut config: Map<String, Value> = values.collect();
    let name = class.and_then(|class| class.causal_class()).unwrap_or_default();
    config.insert("architectures".to_owned(), json!([name]));
    config.insert("model_type".to_owned(), architecture.model_type.into());
    // Their keys are there even if the class computes them.
    let is_always = |key: &str| key.ends_with("intermediate_size") || key == "num_key_value_heads";
    config.retain(|key, _| !is_always(key) || class.is_none_or(|class| class.has(key)));
    if config.get("sliding_window") == Some(&json!(0)) {
        config.insert("sliding_window".to_owned(), Value::Null);
    }
    let heads = |name: &str| config.get(name).and_then(Value::as_u64);
    let whole = heads("hidden_size").zip(heads("num_attention_heads"));
    let whole = whole.and_then(|(dim, heads)| dim.checked_div(heads));
    let rotated =
        get(".rope.dimension_count").and_then(|dims| dims.as_u64()).filter(|dims| Some(*dims) != whole);
    if let (Some(whole), Some(rotated)) = (whole, rotated) {
        let is_part = ["glm4", "glm4_moe", "gpt_neox", "minimax_m2", "phi", "phi3", "phimoe", "stablelm"];
        if is_part.contains(&architecture.model_type) {
            let whole = heads("head_dim").unwrap_or(whole);
            let key =
                if architecture.model_type == "gpt_neox" { "rotary_pct" } else { "partial_rotary_factor" };
            #[expect(clippy::cast_precision_loss, reason = "sizes of heads are small")]
            config.insert(key.to_owned(), json!(rotated as f64 / whole as f64));
            if architecture.model_type == "minimax_m2" {
                config.insert("rotary_dim".to_owned(), rotated.into());
            }
        } else {
            config.entry("head_dim").or_insert(rotated.into());
        }
    }
    let scaling = SCALING.iter().filter_map(|(key, name)| Some(((*name).to_owned(), get(key)?)));
    let mut scaling: Map<String, Value> = scaling.collect();
    if architecture.model_type == "phimoe"
        && let Some(scale) = get(".rope.scaling.attn_factor")
    {
        // Its class has one for each list of factors.
        scaling.insert("short_mscale".to_owned(), scale.clone());
        scaling.insert("long_mscale".to_owned(), scale);
        scaling.insert("rope_type".to_owned(), "longrope".into());
    }
    scaling.retain(|key, value| key != "rope_type" || value != "none");
    if let Some(length) =
        scaling.get("original_max_position_embeddings").filter(|_| architecture.has_factors())
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

    /// Records which biases and norms there are, where the class needs to know.
    fn set_parts(&mut self, class: Option<ConfigClass>, tensors: &ByName<'_>) {
        let has = |name: &str| tensors.contains_key(name);
        // All layers of Phi have biases of their own.
        let Some(class) = class.filter(|_| self.architecture.model_type != "phi") else { return };
        let has_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
        for (key, is_set) in [
            ("attention_bias", has_bias),
            ("use_bias", has_bias),
            ("bias", has_bias),
            ("qkv_bias", has_bias),
            ("use_qkv_bias", has_bias),
            ("attention_out_bias", has("blk.0.attn_output.bias")),
            ("mlp_bias", has("blk.0.ffn_up.bias")),
            ("lm_head_bias", has("output.bias")),
            ("qk_layernorm", has("blk.0.attn_q_norm.weight")),
            ("use_qk_norm", has("blk.0.attn_q_norm.weight")),
        ] {
            if class.has(key) {
                self.config.insert(key.to_owned(), is_set.into());
            }
        }
    }

    fn add(&mut self, place: usize, name: &str, tensor: &Tensor, all: &ByName<'_>) -> Result<()> {
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
        let prefix = self.names.layer(layer);
        let joined = self.architecture.joined.iter().find(|joined| joined.parts.contains(&weight));
        if let Some(joined) = joined {
            return match joined.parts.iter().position(|part| *part == weight) {
                Some(0) => self.add_joined(place, (&prefix, layer), (joined, end), tensor, all),
                // It is added with the first part.
                _ => Ok(()),
            };
        }
        let module = match weight {
            "attn_norm" if self.config.get("num_ln_in_parallel_attn") == Some(&2.into()) => "ln_mlp",
            _ => self.names.module(weight).ok_or_else(no_name)?,
        };
        let module = module.to_owned();
        if module.contains("{}") {
            for number in 0..tensor.shape().first().copied().unwrap_or_default() {
                let module = module.replacen("{}", &number.to_string(), 1);
                self.push(place, format!("{prefix}{module}{end}"), row(tensor, number)?);
            }
            return Ok(());
        }
        let end = if bare_end(weight).is_some() { "" } else { end };
        let changed = self.changed(weight, tensor)?;
        self.push(place, format!("{prefix}{module}{end}"), changed);
        Ok(())
    }

    /// Permutes the rows of queries and keys back, and takes 1 from norms.
    fn changed(&self, known: &str, tensor: &Tensor) -> Result<Tensor> {
        if self.architecture.shifts_norms && known.ends_with("norm") {
            return Ok(shifted(tensor, -1.0).unwrap_or_else(|| tensor.clone()));
        }
        if self.architecture.transposes(known) && tensor.shape().len() == 2 {
            return Ok(tensor.transpose(0, 1).unwrap_or_else(|| tensor.clone()));
        }
        if self.architecture.mixes_heads && known == "attn_qkv" {
            let queries = self.size("num_attention_heads")?;
            let keys = self.size("num_kv_heads").or_else(|_| self.size("num_key_value_heads"));
            let heads = Heads { queries, keys: keys.unwrap_or(queries) };
            let mixed = heads.mixed(tensor).ok_or_else(|| Problem::Shape {
                tensor: known.to_owned(),
                shape: tensor.shape().to_vec(),
                expected: format!("{} heads, and twice {}", heads.queries, heads.keys),
            })?;
            return Ok(mixed?);
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

    /// Joins the parts that are one tensor in the files of the class. Those of gpt-oss alternate, and their matrices are transposed.
    fn add_joined(
        &mut self,
        place: usize,
        (prefix, layer): (&str, &str),
        (joined, end): (&JoinedTensor, &str),
        tensor: &Tensor,
        all: &ByName<'_>,
    ) -> Result<()> {
        let is_gpt_oss = self.architecture.name == "gpt-oss";
        let module_end = match end {
            _ if !is_gpt_oss => end,
            ".bias" => "_bias",
            _ => "",
        };
        let wrong = |name: &str, tensor: &Tensor| Problem::Shape {
            tensor: name.to_owned(),
            shape: tensor.shape().to_vec(),
            expected: "those of experts".to_owned(),
        };
        let mut whole = tensor.clone();
        if let [_, second] = joined.parts {
            let partner = format!("blk.{layer}.{second}{end}");
            let up = all.get(partner.as_str()).copied();
            let pair = [tensor, up.ok_or_else(|| wrong(&partner, tensor))?];
            let dim = usize::from(second.ends_with("_exps"));
            let mut shape = tensor.shape().to_vec();
            shape.get_mut(dim).into_iter().for_each(|rows| *rows = rows.saturating_mul(2));
            whole = if is_gpt_oss {
                let pair: Option<Vec<Tensor>> = pair.iter().map(|part| part.unsqueeze(2)).collect();
                let pair = pair.ok_or_else(|| wrong(&partner, tensor))?;
                Tensor::concat(2, &pair)?.reshaped(&shape)?
            } else {
                Tensor::concat(dim, &pair.map(Clone::clone))?
            };
        }
        if is_gpt_oss && end != ".bias" {
            whole = whole.transpose(1, 2).ok_or_else(|| wrong(joined.module, tensor))?;
        }
        self.push(place, format!("{prefix}{}{module_end}", joined.module), whole);
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
    let item = items(tensor, 0, (number, 1, 1))?;
    Ok(item.reshaped(tensor.shape().get(1..).unwrap_or_default())?)
}

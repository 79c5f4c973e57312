//! The configuration that the keys of a file describe.

use families::ConfigClass;
use gguf_format::GgufValue;
use serde_json::{Map, Value, json};

use super::ByName;
use crate::architecture::Architecture;
use crate::keys::{GgufKeys, LAYERS_MAX, json_of};

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
    (".expert_used_count", &["num_experts_per_tok", "top_k_experts"]),
    (".expert_group_count", &["n_group"]),
    (".expert_group_used_count", &["topk_group"]),
    (".expert_feed_forward_length", &["moe_intermediate_size"]),
    (".expert_shared_count", &["n_shared_experts"]),
    (".expert_shared_feed_forward_length", &["shared_expert_intermediate_size", "shared_intermediate_size"]),
    (".expert_weights_scale", &["routed_scaling_factor"]),
    (".expert_weights_norm", &["norm_topk_prob"]),
    (".leading_dense_block_count", &["first_k_dense_replace"]),
    (".nextn_predict_layers", &["num_nextn_predict_layers"]),
    (".full_attention_interval", &["full_attention_interval"]),
    (".ssm.conv_kernel", &["linear_conv_kernel_dim"]),
    (".ssm.state_size", &["linear_key_head_dim"]),
    (".ssm.group_count", &["linear_num_key_heads"]),
    (".ssm.time_step_rank", &["linear_num_value_heads"]),
    (".ssm.inner_size", &["linear_value_head_dim"]),
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

/// Sets what only the shapes of tensors tell.
pub(super) fn set_sizes(config: &mut Map<String, Value>, model_type: &str, tensors: &ByName<'_>) {
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
        _ => {}
    }
}

/// Sets the keys of layers: how many do not predict further tokens, and what those of Qwen's linear attention are.
fn set_layers(config: &mut Map<String, Value>, keys: &GgufKeys, architecture: &Architecture) {
    let number = |config: &Map<String, Value>, key: &str| config.get(key).and_then(Value::as_u64);
    let more = number(config, "num_nextn_predict_layers").unwrap_or_default();
    let layers = number(config, "num_hidden_layers").map(|all| all.saturating_sub(more));
    if architecture.has_mtp() {
        config.extend(layers.map(|layers| ("num_hidden_layers".to_owned(), layers.into())));
    }
    if !architecture.has_delta_net() {
        return;
    }
    if let Some(more) = config.remove("num_nextn_predict_layers") {
        config.insert("mtp_num_hidden_layers".to_owned(), more);
    }
    let heads = number(config, "linear_num_value_heads");
    let size =
        number(config, "linear_value_head_dim").zip(heads).and_then(|(all, heads)| all.checked_div(heads));
    config.extend(size.map(|size| ("linear_value_head_dim".to_owned(), size.into())));
    let Some(GgufValue::Array(recurrent)) =
        keys.get(&format!("{}.attention.recurrent_layers", architecture.name))
    else {
        return;
    };
    let count = layers.and_then(|layers| usize::try_from(layers).ok()).unwrap_or_default().min(LAYERS_MAX);
    let kind = |value| if value == GgufValue::Bool(true) { "linear_attention" } else { "full_attention" };
    let types: Vec<&str> = recurrent.iter().take(count).map(kind).collect();
    config.insert("layer_types".to_owned(), json!(types));
}

/// Returns the dimensions that time, height and width rotate.
fn sections(keys: &GgufKeys, architecture: &Architecture) -> Option<Value> {
    let key = format!("{}.rope.dimension_sections", architecture.name);
    let GgufValue::Array(sections) = keys.get(&key)? else { return None };
    let numbers: Vec<Value> = sections.iter().take(3).filter_map(|section| json_of(&section)).collect();
    Some(numbers.into())
}

/// Returns what the keys say.
pub(super) fn config(
    keys: &GgufKeys,
    architecture: &Architecture,
    class: Option<ConfigClass>,
) -> Map<String, Value> {
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
    set_layers(&mut config, keys, architecture);
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
        let is_part =
            ["glm", "glm4", "glm4_moe", "gpt_neox", "minimax_m2", "phi", "phi3", "phimoe", "stablelm"];
        if is_part.contains(&architecture.model_type) || architecture.has_delta_net() {
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
    if let Some(sections) = sections(keys, architecture).filter(|_| architecture.has_delta_net()) {
        scaling.insert("mrope_section".to_owned(), sections);
        scaling.entry("rope_type").or_insert_with(|| "default".into());
    }
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

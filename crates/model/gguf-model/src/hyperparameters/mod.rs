//! Keys of hyperparameters, in the order in which llama.cpp's converter writes them for each architecture.
//!
//! Facts: `set_gguf_parameters` of its classes.

mod own;

use byte_source::Result;
use gguf_format::{GgufArray, GgufValue};
use serde_json::Value;

use crate::architecture::KeyRule;
use crate::config::{GgufConfig, invalid};
use crate::gemma4::set_keys as set_gemma4_keys;
use crate::keys::Keys;
use own::{bloom, falcon, gpt_neox, gpt2, phi2, phi3, phimoe, qwen3_next, qwen3_vl, stablelm};

/// Sets the keys of an architecture, with the number of the file type where the converter has it.
///
/// # Errors
/// When a value is missing or is not one that llama.cpp reads.
pub(crate) fn set_keys(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    let set = match config.architecture.keys {
        KeyRule::Common => common,
        KeyRule::Bloom => bloom,
        KeyRule::Cohere => cohere,
        KeyRule::Cohere2 => cohere2,
        KeyRule::Exaone4 => exaone4,
        KeyRule::Falcon => falcon,
        KeyRule::Gemma => gemma,
        KeyRule::Gemma2 => gemma2,
        KeyRule::Gemma3 => gemma3,
        KeyRule::Gemma4 => gemma4,
        KeyRule::Glm4 => glm4,
        KeyRule::Glm4Moe => glm4_moe,
        KeyRule::Gpt2 => gpt2,
        KeyRule::GptNeox => gpt_neox,
        KeyRule::GptOss => gpt_oss,
        KeyRule::Granite => granite,
        KeyRule::Hunyuan => hunyuan,
        KeyRule::Llama => llama,
        KeyRule::MinimaxM2 => minimax_m2,
        KeyRule::Ministral3 => ministral3,
        KeyRule::Olmo2 => olmo2,
        KeyRule::Olmoe => olmoe,
        KeyRule::Phi2 => phi2,
        KeyRule::Phi3 => phi3,
        KeyRule::Phimoe => phimoe,
        KeyRule::QwenMoe => qwen_moe,
        KeyRule::Qwen3Next => qwen3_next,
        KeyRule::Qwen3Vl => qwen3_vl,
        KeyRule::Stablelm => stablelm,
    };
    set(keys, config, file_type)
}

const FILE_TYPE: &str = "general.file_type";

/// Whole numbers of most architectures: the key, and the names of a configuration.
const SIZES: &[(&str, &[&str])] = &[
    (
        ".context_length",
        &[
            "max_position_embeddings",
            "n_ctx",
            "n_positions",
            "max_length",
            "max_sequence_length",
            "model_max_length",
        ],
    ),
    (".embedding_length", &["hidden_size", "n_embd", "dim"]),
    (
        ".feed_forward_length",
        &[
            "prefix_dense_intermediate_size",
            "dense_intermediate_size",
            "intermediate_size",
            "n_inner",
            "hidden_dim",
        ],
    ),
    (".attention.head_count", &["num_attention_heads", "n_head", "n_heads"]),
    (".attention.head_count_kv", &["num_key_value_heads", "n_kv_heads"]),
];
const NORMS: &[(&str, &[&str])] = &[
    (".attention.layer_norm_rms_epsilon", &["rms_norm_eps", "norm_eps"]),
    (".attention.layer_norm_epsilon", &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"]),
];
const EXPERTS: &[(&str, &[&str])] = &[
    (".expert_count", &["num_local_experts", "num_experts", "n_routed_experts"]),
    (".expert_used_count", &["num_experts_per_tok", "num_experts_per_token", "top_k_experts"]),
    (".expert_group_count", &["n_group"]),
    (".expert_group_used_count", &["topk_group"]),
];
/// Names of the function that weighs experts, of which the first counts, and its numbers in llama.cpp.
const GATING: &[&str] = &[
    "score_function",
    "scoring_func",
    "score_func",
    "moe_router_activation",
    "moe_router_activation_func",
    "expert_selection_fn",
];
const GATING_FUNCTIONS: [(&str, u32); 3] = [("softmax", 1), ("sigmoid", 2), ("sqrtsoftplus", 4)];
/// Keys of `YaRN`, and their names; of two names, the first counts.
const YARN: &[(&str, &[&str])] = &[
    (".rope.scaling.yarn_ext_factor", &["extrapolation_factor"]),
    (".rope.scaling.yarn_attn_factor", &["attention_factor", "attn_factor"]),
    (".rope.scaling.yarn_beta_fast", &["beta_fast"]),
    (".rope.scaling.yarn_beta_slow", &["beta_slow"]),
];

/// Sets the keys that most architectures have, and no others.
fn common(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    let head_dim = config.get("head_dim");
    common_with(keys, config, file_type, head_dim)
}

fn common_with(keys: &mut Keys, config: &GgufConfig, file_type: u32, head_dim: Option<&Value>) -> Result<()> {
    keys.number_of(".block_count", ("num_hidden_layers", &config.layers()?.into()))?;
    let numbers = |keys: &mut Keys, rows: &[(&str, &[&str])]| {
        rows.iter()
            .try_for_each(|(key, names)| config.find(names).map_or(Ok(()), |it| keys.number_of(key, it)))
    };
    numbers(keys, SIZES)?;
    if config.get("is_causal") == Some(&Value::Bool(false)) {
        keys.flag(".attention.causal", false);
    }
    rope(keys, config)?;
    for (key, names) in NORMS {
        config.find(names).map_or(Ok(()), |found| keys.float_of(key, found))?;
    }
    numbers(keys, EXPERTS)?;
    if let Some((name, function)) = config.find(GATING) {
        let known = GATING_FUNCTIONS.iter().find(|(known, _)| function.as_str() == Some(known));
        let (_, number) =
            known.ok_or_else(|| invalid(name, Some(function), "softmax, sigmoid or sqrtsoftplus"))?;
        keys.number(".expert_gating_func", *number);
    }
    if let Some(head_dim) = head_dim {
        keys.number_of(".attention.key_length", ("head_dim", head_dim))?;
        keys.number_of(".attention.value_length", ("head_dim", head_dim))?;
    }
    keys.number(FILE_TYPE, file_type);
    Ok(())
}

fn rope(keys: &mut Keys, config: &GgufConfig) -> Result<()> {
    let rope = config.rope();
    let get = |key: &'static str| rope.get(key).filter(|value| !value.is_null()).map(|value| (key, value));
    let kind = rope.get("rope_type").and_then(Value::as_str).unwrap_or_default();
    let factor = get("factor");
    match (kind, factor) {
        ("linear" | "yarn", Some(factor)) => {
            keys.text(".rope.scaling.type", kind);
            keys.float_of(".rope.scaling.factor", factor)?;
        }
        ("su" | "longrope", _) => keys.text(".rope.scaling.type", "longrope"),
        _ => {}
    }
    if let ("yarn", Some(_)) = (kind, factor) {
        let name = "original_max_position_embeddings";
        let longest = || config.get("max_position_embeddings").map(|length| (name, length));
        let length = get(name).or_else(longest);
        let length = length.ok_or_else(|| invalid(name, None, "a number of 32 bits"))?;
        keys.number_of(".rope.scaling.original_context_length", length)?;
        for (key, names) in YARN {
            let first = names.iter().find_map(|name| Some((*name, rope.get(*name)?)));
            first.filter(|(_, value)| !value.is_null()).map_or(Ok(()), |found| keys.float_of(key, found))?;
        }
    }
    if let Some((name, sections)) = get("mrope_section") {
        let numbers = sections.as_array().map(|list| list.iter().map(|it| i32::try_from(it.as_i64()?).ok()));
        let numbers: Option<Vec<i32>> = numbers.and_then(Iterator::collect);
        let numbers = numbers.ok_or_else(|| invalid(name, Some(sections), "a list of numbers of 32 bits"))?;
        let four = numbers.into_iter().chain([0; 4]).take(4);
        keys.set(".rope.dimension_sections", GgufValue::Array(GgufArray::from_int32(four)));
    }
    get("rope_theta").map_or(Ok(()), |theta| keys.float_of(".rope.freq_base", theta))?;
    let window = config.window_theta().map(|theta| ("rope_theta", theta));
    window.map_or(Ok(()), |theta| keys.float_of(".rope.freq_base_swa", theta))
}

fn llama(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    llama_sizes(keys, config, config.head_dim()?)
}

fn llama_sizes(keys: &mut Keys, config: &GgufConfig, head_dim: u64) -> Result<()> {
    keys.needed(".vocab_size", config, "vocab_size")?;
    keys.number_of(".rope.dimension_count", ("head_dim", &head_dim.into()))
}

fn granite(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common_with(keys, config, file_type, None)?;
    let heads = config.count("num_attention_heads")?;
    llama_sizes(keys, config, config.size("hidden_size")?.checked_div(heads).unwrap_or_default())?;
    for (key, name) in [
        (".attention.scale", "attention_multiplier"),
        (".embedding_scale", "embedding_multiplier"),
        (".residual_scale", "residual_multiplier"),
        (".logit_scale", "logits_scaling"),
    ] {
        let set = config.get(name).filter(|value| value.as_f64() != Some(0.0));
        set.map_or(Ok(()), |value| keys.float_of(key, (name, value)))?;
    }
    let shared = config.get("shared_intermediate_size").filter(|size| size.as_u64() != Some(0));
    let shared = shared.filter(|_| config.architecture.name == "granitemoe");
    let key = ".expert_shared_feed_forward_length";
    shared.map_or(Ok(()), |size| keys.number_of(key, ("shared_intermediate_size", size)))
}

fn ministral3(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    llama(keys, config, file_type)?;
    let rope = config.rope();
    if rope.get("rope_type").and_then(Value::as_str) != Some("yarn") {
        return Err(invalid("rope_parameters.rope_type", rope.get("rope_type"), "yarn"));
    }
    for (key, name) in [
        (".rope.scaling.yarn_log_multiplier", "mscale_all_dim"),
        (".attention.temperature_scale", "llama_4_scaling_beta"),
    ] {
        let value = rope.get(name).ok_or_else(|| invalid(name, None, "a number"))?;
        keys.float_of(key, (name, value))?;
    }
    Ok(())
}

fn qwen_moe(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    for (key, name) in [
        (".expert_feed_forward_length", "moe_intermediate_size"),
        (".expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ] {
        config.get(name).map_or(Ok(()), |value| keys.number_of(key, (name, value)))?;
    }
    Ok(())
}

fn gpt_oss(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    keys.needed(".attention.sliding_window", config, "sliding_window")?;
    keys.needed(".expert_feed_forward_length", config, "intermediate_size")
}

fn olmo2(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    windows(keys, config)
}

fn exaone4(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    keys.needed(".vocab_size", config, "vocab_size")?;
    windows(keys, config)
}

/// Sets the window and the layers that have it: all but each fourth, unless the configuration lists them.
fn windows(keys: &mut Keys, config: &GgufConfig) -> Result<()> {
    let Some(window) = config.get("sliding_window") else { return Ok(()) };
    keys.number_of(".attention.sliding_window", ("sliding_window", window))?;
    let windowed: Vec<bool> = match config.get("layer_types").and_then(Value::as_array) {
        Some(types) => types.iter().map(|kind| kind.as_str() == Some("sliding_attention")).collect(),
        None => (1..=config.layers()?).map(|layer| !layer.is_multiple_of(4)).collect(),
    };
    keys.set(".attention.sliding_window_pattern", GgufValue::Array(GgufArray::from_flags(windowed)));
    Ok(())
}

fn olmoe(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    keys.float(".attention.layer_norm_rms_epsilon", 1e-5);
    Ok(())
}

/// Sets the keys that all versions of Gemma begin with.
fn gemma(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    for (key, name) in [
        (".context_length", "max_position_embeddings"),
        (".embedding_length", "hidden_size"),
        (".block_count", "num_hidden_layers"),
        (".feed_forward_length", "intermediate_size"),
        (".attention.head_count", "num_attention_heads"),
        (".attention.head_count_kv", "num_key_value_heads"),
    ] {
        keys.needed(key, config, name)?;
    }
    float(keys, config, ".attention.layer_norm_rms_epsilon", "rms_norm_eps")?;
    keys.needed(".attention.key_length", config, "head_dim")?;
    keys.needed(".attention.value_length", config, "head_dim")?;
    keys.number(FILE_TYPE, file_type);
    Ok(())
}

fn gemma2(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    gemma(keys, config, file_type)?;
    float(keys, config, ".attn_logit_softcapping", "attn_logit_softcapping")?;
    float(keys, config, ".final_logit_softcapping", "final_logit_softcapping")?;
    keys.needed(".attention.sliding_window", config, "sliding_window")
}

fn gemma3(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    if let Some(cap) = config.get("attn_logit_softcapping") {
        return Err(invalid("attn_logit_softcapping", Some(cap), "null"));
    }
    let cap = config.get("final_logit_softcapping").filter(|cap| cap.as_f64() != Some(0.0));
    cap.map_or(Ok(()), |cap| keys.float_of(".final_logit_softcapping", ("final_logit_softcapping", cap)))?;
    if config.get("sliding_window_pattern").and_then(Value::as_u64) == Some(1) {
        return Ok(());
    }
    keys.needed(".attention.sliding_window", config, "sliding_window")
}

fn gemma4(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    gemma3(keys, config, file_type)?;
    set_gemma4_keys(keys, config)
}

fn cohere(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    // Some configurations have the length of a training, and next to it the one that is meant.
    if let Some(length) = config.get("model_max_length") {
        keys.number_of(".context_length", ("model_max_length", length))?;
    }
    float(keys, config, ".logit_scale", "logit_scale")?;
    keys.text(".rope.scaling.type", "none");
    Ok(())
}

fn cohere2(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    float(keys, config, ".logit_scale", "logit_scale")?;
    keys.needed(".attention.sliding_window", config, "sliding_window")?;
    keys.needed(".vocab_size", config, "vocab_size")?;
    let head_dim = config.size("hidden_size")?.checked_div(config.heads()?).unwrap_or_default();
    keys.number_of(".rope.dimension_count", ("hidden_size", &config.rotated(head_dim)?.into()))?;
    keys.text(".rope.scaling.type", "none");
    Ok(())
}

fn glm4(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    keys.number_of(".rope.dimension_count", ("head_dim", &config.rotated(config.head_dim()?)?.into()))
}

fn glm4_moe(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    glm4(keys, config, file_type)?;
    let mut number =
        |key: &str, name: &str| config.get(name).map_or(Ok(()), |value| keys.number_of(key, (name, value)));
    number(".expert_count", "n_routed_experts")?;
    number(".expert_feed_forward_length", "moe_intermediate_size")?;
    number(".expert_shared_count", "n_shared_experts")?;
    number(".leading_dense_block_count", "first_k_dense_replace")?;
    // Sigmoid, whatever the configuration says.
    keys.number(".expert_gating_func", 2);
    let (scale, norm) = ("routed_scaling_factor", "norm_topk_prob");
    config.get(scale).map_or(Ok(()), |value| keys.float_of(".expert_weights_scale", (scale, value)))?;
    if let Some(is_set) = config.get(norm).and_then(Value::as_bool) {
        keys.flag(".expert_weights_norm", is_set);
    }
    let mtp = "num_nextn_predict_layers";
    config.get(mtp).map_or(Ok(()), |value| keys.number_of(".nextn_predict_layers", (mtp, value)))
}

fn minimax_m2(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    keys.needed(".expert_feed_forward_length", config, "intermediate_size")?;
    let rotated = match config.get("rotary_dim") {
        Some(dims) => dims.clone(),
        None => config.rotated(config.head_dim()?)?.into(),
    };
    keys.number_of(".rope.dimension_count", ("rotary_dim", &rotated))
}

/// Context of the models of Hunyuan whose frequencies a factor scales; their configurations have another.
const HUNYUAN_CONTEXT: u32 = 1 << 18;

fn hunyuan(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    common(keys, config, file_type)?;
    let rope = config.rope();
    if rope.get("rope_type").and_then(Value::as_str) != Some("dynamic") {
        return Ok(());
    }
    let number = |key: &str, default: f64| rope.get(key).map_or(Some(default), Value::as_f64);
    let base = number("rope_theta", 10_000.0).filter(|base| (base - 10_000.0).abs() < 1e-9);
    let base = base.ok_or_else(|| invalid("rope_theta", rope.get("rope_theta"), "10000"))?;
    let alpha = number("alpha", 50.0).ok_or_else(|| invalid("alpha", rope.get("alpha"), "a number"))?;
    let length = config.get("max_position_embeddings");
    if ![Some(1 << 15), Some(1 << 18)].contains(&length.and_then(Value::as_u64)) {
        return Err(invalid("max_position_embeddings", length, "32768 or 262144"));
    }
    #[expect(clippy::cast_precision_loss, reason = "sizes of heads are small")]
    let dim = config.head_dim()? as f64;
    keys.float(".rope.freq_base", base * libm::pow(alpha, dim / (dim - 2.0)));
    keys.text(".rope.scaling.type", "none");
    keys.float(".rope.scaling.factor", 1.0);
    keys.number(".rope.scaling.original_context_length", HUNYUAN_CONTEXT);
    keys.number(".context_length", HUNYUAN_CONTEXT);
    Ok(())
}

fn float(keys: &mut Keys, config: &GgufConfig, key: &str, name: &'static str) -> Result<()> {
    let value = config.get(name).ok_or_else(|| invalid(name, None, "a number"))?;
    keys.float_of(key, (name, value))
}

//! Keys of architectures that have none in common with most others.

use byte_source::Result;
use gguf_format::{GgufArray, GgufValue};
use serde_json::Value;

use super::{FILE_TYPE, float, qwen_moe};
use crate::config::{GgufConfig, invalid};
use crate::keys::Keys;

/// Sets the sizes of a model whose feed-forward layers are four times as wide as the others.
fn four_times(keys: &mut Keys, config: &GgufConfig, width: &str) -> Result<()> {
    keys.needed(".embedding_length", config, width)?;
    let inner = config.size(width)?.saturating_mul(4);
    keys.number_of(".feed_forward_length", (width, &inner.into()))
}

pub(super) fn bloom(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    let length = if config.get("seq_length").is_some() { "seq_length" } else { "hidden_size" };
    keys.needed(".context_length", config, length)?;
    four_times(keys, config, "hidden_size")?;
    keys.needed(".block_count", config, "n_layer")?;
    keys.needed(".attention.head_count", config, "n_head")?;
    keys.needed(".attention.head_count_kv", config, "n_head")?;
    float(keys, config, ".attention.layer_norm_epsilon", "layer_norm_epsilon")?;
    keys.number(FILE_TYPE, file_type);
    Ok(())
}

/// Context of Falcon, which its configurations do not have.
const FALCON_CONTEXT: u32 = 2048;

pub(super) fn falcon(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    keys.number(".context_length", FALCON_CONTEXT);
    keys.text(".tensor_data_layout", "jploski");
    four_times(keys, config, "hidden_size")?;
    keys.needed(".block_count", config, "num_hidden_layers")?;
    keys.number_of(".attention.head_count", ("num_attention_heads", &config.heads()?.into()))?;
    keys.number_of(".attention.head_count_kv", ("num_kv_heads", &config.kv_heads()?.into()))?;
    float(keys, config, ".attention.layer_norm_epsilon", "layer_norm_epsilon")?;
    keys.number(FILE_TYPE, file_type);
    Ok(())
}

pub(super) fn gpt2(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    keys.needed(".block_count", config, "n_layer")?;
    let length = if config.get("n_ctx").is_some() { "n_ctx" } else { "n_positions" };
    keys.needed(".context_length", config, length)?;
    four_times(keys, config, "n_embd")?;
    keys.needed(".attention.head_count", config, "n_head")?;
    float(keys, config, ".attention.layer_norm_epsilon", "layer_norm_epsilon")?;
    keys.number(FILE_TYPE, file_type);
    Ok(())
}

/// Sets the sizes with which GPT-NeoX and `StableLM` begin.
fn neox_sizes(keys: &mut Keys, config: &GgufConfig) -> Result<()> {
    for (key, name) in [
        (".context_length", "max_position_embeddings"),
        (".embedding_length", "hidden_size"),
        (".block_count", "num_hidden_layers"),
        (".feed_forward_length", "intermediate_size"),
    ] {
        keys.needed(key, config, name)?;
    }
    Ok(())
}

/// Sets the keys of GPT-NeoX, which has none for the type.
pub(super) fn gpt_neox(keys: &mut Keys, config: &GgufConfig, _: u32) -> Result<()> {
    neox_sizes(keys, config)?;
    let head_dim = config.size("hidden_size")?.checked_div(config.heads()?).unwrap_or_default();
    keys.number_of(".rope.dimension_count", ("hidden_size", &config.rotated(head_dim)?.into()))?;
    keys.needed(".attention.head_count", config, "num_attention_heads")?;
    keys.flag(".use_parallel_residual", config.get("use_parallel_residual") != Some(&Value::Bool(false)));
    float(keys, config, ".attention.layer_norm_epsilon", "layer_norm_eps")
}

pub(super) fn phi2(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    let (dim, heads) = (config.size("hidden_size")?, config.count("num_attention_heads")?);
    keys.needed(".context_length", config, "max_position_embeddings")?;
    keys.needed(".embedding_length", config, "hidden_size")?;
    keys.number_of(".feed_forward_length", ("hidden_size", &dim.saturating_mul(4).into()))?;
    keys.needed(".block_count", config, "num_hidden_layers")?;
    keys.needed(".attention.head_count", config, "num_attention_heads")?;
    keys.needed(".attention.head_count_kv", config, "num_attention_heads")?;
    float(keys, config, ".attention.layer_norm_epsilon", "layer_norm_eps")?;
    let rotated = config.rotated(dim)?.checked_div(heads).unwrap_or_default();
    keys.number_of(".rope.dimension_count", ("hidden_size", &rotated.into()))?;
    keys.number(FILE_TYPE, file_type);
    keys.flag("tokenizer.ggml.add_bos_token", false);
    Ok(())
}

pub(super) fn phi3(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    keys.needed(".context_length", config, "max_position_embeddings")?;
    let (name, rope) = ("original_max_position_embeddings", config.rope());
    let original = rope.get(name).ok_or_else(|| invalid(name, None, "a number of 32 bits"))?;
    keys.number_of(".rope.scaling.original_context_length", (name, original))?;
    for (key, name) in [
        (".embedding_length", "hidden_size"),
        (".feed_forward_length", "intermediate_size"),
        (".block_count", "num_hidden_layers"),
        (".attention.head_count", "num_attention_heads"),
        (".attention.head_count_kv", "num_key_value_heads"),
    ] {
        keys.needed(key, config, name)?;
    }
    float(keys, config, ".attention.layer_norm_rms_epsilon", "rms_norm_eps")?;
    keys.number_of(".rope.dimension_count", ("hidden_size", &config.rotated_of_head()?.into()))?;
    let theta = rope.get("rope_theta").ok_or_else(|| invalid("rope_theta", None, "a number"))?;
    keys.float_of(".rope.freq_base", ("rope_theta", theta))?;
    keys.number(FILE_TYPE, file_type);
    let window = config.get("sliding_window").cloned().unwrap_or_else(|| 0.into());
    keys.number_of(".attention.sliding_window", ("sliding_window", &window))
}

pub(super) fn phimoe(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    phi3(keys, config, file_type)?;
    keys.needed(".expert_used_count", config, "num_experts_per_tok")?;
    keys.needed(".expert_count", config, "num_local_experts")
}

/// Layers from one with full attention to the next, and dimensions that time, height and width rotate, unless a configuration has others.
const FULL_ATTENTION_INTERVAL: u64 = 4;
const QWEN35_SECTIONS: [i32; 4] = [11, 11, 10, 0];

pub(super) fn qwen3_next(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    qwen_moe(keys, config, file_type)?;
    if config.mtp_layers > 0 {
        keys.number_of(".nextn_predict_layers", ("mtp_num_hidden_layers", &config.mtp_layers.into()))?;
    }
    for (key, name) in [
        (".ssm.conv_kernel", "linear_conv_kernel_dim"),
        (".ssm.state_size", "linear_key_head_dim"),
        (".ssm.group_count", "linear_num_key_heads"),
        (".ssm.time_step_rank", "linear_num_value_heads"),
    ] {
        keys.needed(key, config, name)?;
    }
    let name = "linear_value_head_dim";
    let inner = config.size(name)?.saturating_mul(config.count("linear_num_value_heads")?);
    keys.number_of(".ssm.inner_size", (name, &inner.into()))?;
    let interval = config.get("full_attention_interval").map(|_| config.count("full_attention_interval"));
    let interval = interval.transpose()?.unwrap_or(FULL_ATTENTION_INTERVAL);
    let layers = config.own_layers()?;
    let types = config.get("layer_types").and_then(Value::as_array);
    let mut recurrent: Vec<bool> = match types {
        Some(types) => types.iter().map(|kind| kind.as_str() == Some("linear_attention")).collect(),
        None => (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect(),
    };
    if recurrent.len() as u64 != layers {
        return Err(invalid("layer_types", config.get("layer_types"), "a type for each layer"));
    }
    recurrent.extend((0..config.mtp_layers).map(|_| false));
    keys.set(".attention.recurrent_layers", GgufValue::Array(GgufArray::from_flags(recurrent)));
    // transformers replaces the interval by types, and the converter then writes its default.
    let interval = if types.is_some() { interval } else { FULL_ATTENTION_INTERVAL };
    keys.number_of(".full_attention_interval", ("full_attention_interval", &interval.into()))?;
    keys.number_of(".rope.dimension_count", ("head_dim", &config.rotated(config.head_dim()?)?.into()))?;
    if config.architecture.name != "qwen3next" && !config.rope().contains_key("mrope_section") {
        let sections = GgufArray::from_int32(QWEN35_SECTIONS);
        keys.set(".rope.dimension_sections", GgufValue::Array(sections));
    }
    Ok(())
}

/// Number of layers whose results the tower for images is added to, if a configuration does not list them.
const DEEPSTACK_LAYERS: usize = 3;

pub(super) fn qwen3_vl(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    qwen_moe(keys, config, file_type)?;
    let listed =
        config.written.get("vision_config").and_then(|vision| vision.get("deepstack_visual_indexes"));
    let layers = listed.and_then(Value::as_array).map_or(DEEPSTACK_LAYERS, Vec::len);
    keys.number_of(".n_deepstack_layers", ("deepstack_visual_indexes", &layers.into()))
}

pub(super) fn stablelm(keys: &mut Keys, config: &GgufConfig, file_type: u32) -> Result<()> {
    neox_sizes(keys, config)?;
    let heads = config.count("num_attention_heads")?;
    let head_dim = config.size("hidden_size")?.checked_div(heads).unwrap_or_default();
    keys.number_of(".rope.dimension_count", ("hidden_size", &config.rotated(head_dim)?.into()))?;
    keys.needed(".attention.head_count", config, "num_attention_heads")?;
    keys.needed(".attention.head_count_kv", config, "num_key_value_heads")?;
    keys.flag(".use_parallel_residual", config.get("use_parallel_residual") != Some(&Value::Bool(false)));
    float(keys, config, ".attention.layer_norm_epsilon", "layer_norm_eps")?;
    keys.number(FILE_TYPE, file_type);
    Ok(())
}

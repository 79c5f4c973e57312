//! Gemma 4: layers of two kinds, each with heads of its own size, shared keys and values, inputs for each layer, and experts next to
//! dense layers.
//!
//! Facts: `Gemma4Model` in `conversion/gemma.py` of llama.cpp's converter, and `Gemma4TextConfig` of `transformers` 5.23. llama.cpp
//! divides the frequencies of rotary embeddings by factors, and those that do not rotate by a huge one.

use std::collections::HashMap;

use byte_source::Result;
use gguf_format::{GgufArray, GgufValue};
use serde_json::{Map, Value, json};
use tensor::Tensor;

use crate::config::{GgufConfig, invalid};
use crate::keys::{GgufKeys, Keys, LAYERS_MAX, json_of};
use crate::rope::{FACTORS_MAX, numbers, vector};

/// Layers from one with full attention to the next, unless a configuration lists them.
const INTERVAL: u64 = 6;
/// Factor of dimensions that are not rotated.
const UNROTATED: f32 = 1e30;
/// Settings of single layers, which `transformers` writes instead of those of all layers with full attention.
const PER_LAYER: &str = "per_layer_config";

/// Layers with full attention, and which they are.
struct FullLayers {
    is_windowed: Vec<bool>,
    head_dim: u64,
    /// Number of heads of keys, if it is another than in other layers.
    kv_heads: Option<u64>,
}

impl FullLayers {
    fn read(config: &GgufConfig) -> Result<Self> {
        let count = config.own_layers()?;
        let types = config.get("layer_types").and_then(Value::as_array);
        let mut is_windowed: Vec<bool> = match types {
            Some(types) => types.iter().map(|kind| kind.as_str() == Some("sliding_attention")).collect(),
            None => (1..=count).map(|layer| !layer.is_multiple_of(INTERVAL)).collect(),
        };
        if is_windowed.len() as u64 != count {
            return Err(invalid("layer_types", config.get("layer_types"), "a type for each layer"));
        }
        // As the class does.
        is_windowed.last_mut().into_iter().for_each(|last| *last = false);
        let Some(layers) = config.get(PER_LAYER).and_then(Value::as_object) else {
            let has_heads = config.get("attention_k_eq_v") == Some(&true.into());
            let (heads, dim) = ("num_global_key_value_heads", "global_head_dim");
            let kv_heads =
                config.get(heads).filter(|_| has_heads).map(|_| config.count(heads)).transpose()?;
            let head_dim = config.get(dim).map_or(Ok(512), |_| config.size(dim))?;
            return Ok(Self { is_windowed, head_dim, kv_heads });
        };
        let of_layers = |key: &str| {
            let full = is_windowed.iter().enumerate().filter(|(_, is_windowed)| !**is_windowed);
            let mut sizes: Vec<_> =
                full.map(|(layer, _)| layers.get(&layer.to_string())?.get(key)?.as_u64()).collect();
            sizes.dedup();
            match sizes.as_slice() {
                [size] => Ok(*size),
                _ => Err(invalid(PER_LAYER, config.get(PER_LAYER), "the same sizes in all layers of a kind")),
            }
        };
        let head_dim = of_layers("head_dim")?.map_or_else(|| config.head_dim(), Ok)?;
        let kv_heads = of_layers("num_key_value_heads")?;
        Ok(Self { is_windowed, head_dim, kv_heads })
    }
}

/// Sets the keys that Gemma 3 does not have, or has for all layers.
///
/// # Errors
/// When a value is missing or is not one that llama.cpp reads.
pub(crate) fn set_keys(keys: &mut Keys, config: &GgufConfig) -> Result<()> {
    let bidirectional = "use_bidirectional_attention";
    if let Some(all) = config.get(bidirectional).filter(|value| value.as_str() != Some("vision")) {
        return Err(invalid(bidirectional, Some(all), "null or \"vision\""));
    }
    let full = FullLayers::read(config)?;
    for (key, name) in [
        (".attention.shared_kv_layers", "num_kv_shared_layers"),
        (".embedding_length_per_layer_input", "hidden_size_per_layer_input"),
    ] {
        keys.number_of(key, (name, config.get(name).unwrap_or(&0.into())))?;
    }
    let windowed = GgufArray::from_flags(full.is_windowed.iter().copied());
    keys.set(".attention.sliding_window_pattern", GgufValue::Array(windowed));
    let (whole, usual) = (full.head_dim.into(), config.head_dim()?.into());
    for key in [".attention.key_length", ".attention.value_length"] {
        keys.number_of(key, ("global_head_dim", &whole))?;
    }
    for key in [".attention.key_length_swa", ".attention.value_length_swa"] {
        keys.number_of(key, ("head_dim", &usual))?;
    }
    let experts = "moe_intermediate_size";
    let width = config.get(experts);
    width.map_or(Ok(()), |width| keys.number_of(".expert_feed_forward_length", (experts, width)))?;
    let mut list = |key: &str, name: &str, sizes: &mut dyn Iterator<Item = u64>| {
        let numbers: Option<Vec<i32>> = sizes.map(|size| i32::try_from(size).ok()).collect();
        let numbers = numbers.ok_or_else(|| invalid(name, config.get(name), "a number of 32 bits"))?;
        keys.set(key, GgufValue::Array(GgufArray::from_int32(numbers)));
        Ok::<(), byte_source::Error>(())
    };
    let layers = full.is_windowed.iter();
    if config.get("use_double_wide_mlp") == Some(&true.into()) {
        let width = config.size("intermediate_size")?;
        let shared = config.get("num_kv_shared_layers").and_then(Value::as_u64).unwrap_or_default();
        let first = (full.is_windowed.len() as u64).saturating_sub(shared);
        let widths = (0_u64..).zip(layers.clone());
        let mut widths = widths.map(|(layer, _)| if layer < first { width } else { width.saturating_mul(2) });
        list(".feed_forward_length", "intermediate_size", &mut widths)?;
    }
    if let Some(heads) = full.kv_heads {
        let others = config.count("num_key_value_heads")?;
        let mut all = layers.map(|is_windowed| if *is_windowed { others } else { heads });
        list(".attention.head_count_kv", "num_key_value_heads", &mut all)?;
    }
    keys.number_of(".rope.dimension_count", ("global_head_dim", &whole))?;
    keys.number_of(".rope.dimension_count_swa", ("head_dim", &usual))
}

/// Returns the tensor that comes first: the factors of layers with full attention, which are huge for dimensions that are not rotated.
///
/// # Errors
/// When these layers have embeddings of another kind.
pub(crate) fn extra_tensors(config: &GgufConfig) -> Result<Vec<(String, Tensor)>> {
    let rope = config.rope();
    if rope.get("rope_type").and_then(Value::as_str) != Some("proportional") {
        let kind = rope.get("rope_type");
        return Err(invalid("rope_parameters.full_attention.rope_type", kind, "proportional"));
    }
    let dims = FullLayers::read(config)?.head_dim;
    if dims > FACTORS_MAX {
        return Err(invalid("global_head_dim", Some(&dims.into()), "a smaller number"));
    }
    let number = |key: &str, default: Option<f64>| {
        let found = rope.get(key);
        let number = found.map_or(default, Value::as_f64);
        number.ok_or_else(|| invalid(key, found, "a number"))
    };
    let (part, factor) = (number("partial_rotary_factor", None)?, number("factor", Some(1.0))?);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes of heads are small, and Python rounds them too"
    )]
    let (rotated, factor) = ((dims as f64 * part / 2.0) as u64, factor as f32);
    let factor_of = |pair| if pair < rotated { factor } else { UNROTATED };
    let factors: Vec<f32> = (0..dims / 2).map(factor_of).collect();
    Ok(vec![("rope_freqs.weight".to_owned(), vector(&factors)?)])
}

/// Sets the keys of a configuration that only Gemma 4 has, or has otherwise.
///
/// # Errors
/// When the factors of rotary embeddings cannot be read.
pub(crate) fn set_config(
    config: &mut Map<String, Value>,
    keys: &GgufKeys,
    tensors: &HashMap<&str, &Tensor>,
) -> Result<()> {
    let get = |key: &str| keys.get(&format!("gemma4.{key}"));
    let list = |key: &str| match get(key) {
        Some(GgufValue::Array(list)) => list.iter().take(LAYERS_MAX).filter_map(|it| json_of(&it)).collect(),
        _ => Vec::new(),
    };
    let is_windowed: Vec<bool> =
        list("attention.sliding_window_pattern").iter().map(|it| *it == Value::Bool(true)).collect();
    let mut set = |key: &str, value: Option<Value>| config.extend(value.map(|it| (key.to_owned(), it)));
    for (name, key) in [
        ("global_head_dim", "attention.key_length"),
        ("head_dim", "attention.key_length_swa"),
        ("hidden_size_per_layer_input", "embedding_length_per_layer_input"),
        ("num_kv_shared_layers", "attention.shared_kv_layers"),
    ] {
        set(name, get(key).and_then(json_of));
    }
    let kind = |is_windowed: &bool| if *is_windowed { "sliding_attention" } else { "full_attention" };
    set("layer_types", Some(is_windowed.iter().map(kind).collect()));
    let widths = list("feed_forward_length");
    set("use_double_wide_mlp", Some((!widths.is_empty()).into()));
    set("intermediate_size", widths.first().cloned());
    let heads = list("attention.head_count_kv");
    let heads_of = |wanted: bool| {
        let mut layers = is_windowed.iter().zip(&heads);
        layers.find(|(is_windowed, _)| **is_windowed == wanted).map(|(_, heads)| heads.clone())
    };
    set("num_key_value_heads", heads_of(true).or_else(|| heads_of(false)));
    set("num_global_key_value_heads", heads_of(false));
    let has =
        |layer: usize, weight: &str| tensors.contains_key(format!("blk.{layer}.{weight}.weight").as_str());
    let lacks_values = |layer| has(layer, "attn_k") && !has(layer, "attn_v");
    set("attention_k_eq_v", Some((0..is_windowed.len()).any(lacks_values).into()));
    set("enable_moe_block", Some(get("expert_count").is_some().into()));
    let inputs = tensors.get("per_layer_token_embd.weight");
    set(
        "vocab_size_per_layer_input",
        inputs.and_then(|table| table.shape().first().copied()).map(Value::from),
    );
    let sliding = json!({"rope_type": "default", "rope_theta": config.remove("rope_local_base_freq")});
    let mut full = json!({"rope_type": "proportional", "rope_theta": config.remove("rope_theta")});
    if let (Some(factors), Value::Object(full)) = (tensors.get("rope_freqs.weight"), &mut full) {
        let factors = numbers(factors)?;
        let rotated = factors.iter().filter(|factor| **factor < UNROTATED / 2.0).count();
        #[expect(clippy::cast_precision_loss, reason = "sizes of heads are small")]
        let part = rotated as f64 / factors.len().max(1) as f64;
        full.insert("partial_rotary_factor".to_owned(), part.into());
        let factor = factors.first().filter(|factor| rotated > 0 && factor.to_bits() != 1.0_f32.to_bits());
        full.extend(factor.map(|factor| ("factor".to_owned(), f64::from(*factor).into())));
    }
    let both = json!({"full_attention": full, "sliding_attention": sliding});
    config.insert("rope_parameters".to_owned(), both);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_with_full_attention_have_sizes_of_their_own() {
        let base = json!({
            "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "num_hidden_layers": 3, "intermediate_size": 20, "head_dim": 8,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "num_kv_shared_layers": 1, "use_double_wide_mlp": true,
            "num_key_value_heads": 4, "global_head_dim": 16,
        });
        let read = |more: Value| {
            let mut all = base.as_object().cloned().unwrap_or_default();
            all.extend(more.as_object().cloned().unwrap_or_default());
            let config = GgufConfig::from_json(&Value::from(all).to_string(), &[])?;
            let mut keys = Keys::new("gemma4");
            set_keys(&mut keys, &config)?;
            extra_tensors(&config)?;
            Ok::<_, byte_source::Error>(keys.entries.into_iter().collect::<GgufKeys>())
        };
        let list = |keys: &GgufKeys, key: &str| match keys.get(&format!("gemma4.{key}")) {
            Some(GgufValue::Array(list)) => list.iter().filter_map(|it| json_of(&it)).collect(),
            other => vec![json!(format!("{other:?}"))],
        };
        let keys = read(json!({"attention_k_eq_v": true, "num_global_key_value_heads": 2})).expect("a model");
        assert_eq!(list(&keys, "attention.sliding_window_pattern"), [false, true, false], "the last is full");
        assert_eq!(list(&keys, "feed_forward_length"), [20, 20, 40]);
        assert_eq!(list(&keys, "attention.head_count_kv"), [2, 4, 2]);
        let one = json!({"head_dim": 32, "num_key_value_heads": 1});
        let keys = read(json!({"per_layer_config": {"0": one, "2": one}})).expect("a model");
        assert_eq!(list(&keys, "attention.head_count_kv"), [1, 4, 1]);
        for refused in [
            json!({"per_layer_config": {"0": one}}),
            json!({"layer_types": ["full_attention"]}),
            json!({"use_bidirectional_attention": "all"}),
            json!({"global_head_dim": 1_u64 << 40}),
            json!({"rope_parameters": {"full_attention": {"rope_type": "default"}, "sliding_attention": {}}}),
        ] {
            read(refused.clone()).expect_err(&refused.to_string());
        }
    }
}

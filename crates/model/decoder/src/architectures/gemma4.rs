//! Gemma 4's text model: Gemma 3 with norms of weight, heads of two sizes, shared keys and values, inputs for each layer, and experts
//! next to dense layers.
//!
//! Facts: `configuration_gemma4.py` and `modeling_gemma4.py` in `transformers` 5.23.

use serde_json::Value;

use super::gemma::GEMMA;
use super::gemma3::rope_of_windowed;
use crate::architecture::Architecture;
use crate::block::{Block, Experts, HeadNormScope, NormPlace, Scales, Scores};
use crate::config_defaults::{ConfigDefaults, RopeScalingKind};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters, WindowedLayers};
use crate::layer_inputs::{LayerInputs, rounded_sqrt};
use crate::mixed_heads::MixedHeads;
use crate::multimodal::{Multimodal, TextVariant};
use crate::rope::{Rope, RopeScaling};
use crate::router::Router;
use crate::{Problem, Result};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gemma4_text",
    class: "Gemma4",
    works_without_config: false,
    config_defaults: &CONFIG,
    read_hyperparameters,
};

pub(super) static WITH_TOWERS: Multimodal = Multimodal {
    architecture: &Architecture { name: "gemma4", ..ARCHITECTURE },
    texts: &[TextVariant { model_type: "gemma4_text", architecture: &ARCHITECTURE, heads: 8 }],
    tied: Some(true),
};

const CONFIG: ConfigDefaults = ConfigDefaults {
    own_keys: OWN_KEYS,
    context: 131_072.0,
    has_layer_ropes: true,
    scalings: &[("default", RopeScalingKind::Unscaled), ("proportional", RopeScalingKind::Proportional)],
    ..GEMMA
};

/// Default interval of full-attention layers: every sixth layer.
const FULL_ATTENTION_INTERVAL: u64 = 6;

/// Keys of the configuration class.
const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "attention_k_eq_v",
    "enable_moe_block",
    "final_logit_softcapping",
    "global_head_dim",
    "hidden_size_per_layer_input",
    "layer_types",
    "moe_intermediate_size",
    "num_experts",
    "num_global_key_value_heads",
    "num_kv_shared_layers",
    PER_LAYER,
    "sliding_window",
    "top_k_experts",
    "use_bidirectional_attention",
    "use_double_wide_mlp",
    "vocab_size_per_layer_input",
];

/// Key of the settings of single layers, which `transformers` writes instead of those of all full-attention layers.
const PER_LAYER: &str = "per_layer_config";

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    const BIDIRECTIONAL: &str = "use_bidirectional_attention";
    match config.text(BIDIRECTIONAL)? {
        // Only the tokens of a picture attend to later ones.
        None | Some("vision") => {}
        Some("all") => return Err(config.unsupported_key(BIDIRECTIONAL)),
        Some(other) => {
            return Err(config.invalid_value(BIDIRECTIONAL, &format!("{other:?}"), "\"vision\"".to_owned()));
        }
    }
    let mut windows = config
        .windows(Some(512), |layer| !layer.saturating_add(1).is_multiple_of(FULL_ATTENTION_INTERVAL))?;
    if let WindowedLayers::Listed(layers) = &mut windows.layers
        && let Some(last) = layers.last_mut()
    {
        *last = false; // as the class does
    }
    let n_kv_heads = base.n_kv_heads.unwrap_or(4);
    let [rope, local] = ropes(config)?;
    let biased = config.flag("attention_bias")?;
    let block = Block {
        head_norm: Some(HeadNormScope::Head),
        norms: NormPlace::Both,
        scores: Scores { scale: Some(1.0), ..Scores::default() },
        scales: Scales {
            embedding: base.dim.map_or(1.0, rounded_sqrt),
            logits_soft_cap: config.number("final_logit_softcapping")?,
            ..Scales::default()
        },
        mixed_heads: Some(mixed_heads(config, &windows, [base.head_dim.unwrap_or(256), n_kv_heads])?),
        layer_inputs: layer_inputs(config)?,
        layer_scalars: true,
        experts: if config.flag("enable_moe_block")? { Some(experts(config)?) } else { None },
        ..base.block
    };
    Ok(Hyperparameters {
        n_heads: base.n_heads.or(Some(8)),
        n_kv_heads: Some(n_kv_heads),
        hidden: base.hidden.or(Some(9216)),
        rope_of_layer: rope_of_windowed(&windows, |windowed| Some(usize::from(windowed))),
        rope,
        more_ropes: vec![local],
        biases: Biases { qkv: biased, output: biased, ..Biases::default() },
        windows,
        block,
        ..base
    })
}

/// Reads the sizes of heads in full-attention layers, and what the last layers share. `usual` are the sizes in other layers.
fn mixed_heads(config: &ConfigJson, windows: &AttentionWindows, usual: [u64; 2]) -> Result<MixedHeads> {
    let keys_are_values = config.flag("attention_k_eq_v")?;
    let (mut head_dim, mut kv_heads) = (config.size("global_head_dim")?.unwrap_or(512), usual[1]);
    if keys_are_values {
        kv_heads = config.size("num_global_key_value_heads")?.unwrap_or(kv_heads);
    }
    if config.has(PER_LAYER) {
        (head_dim, kv_heads) = of_layers(config, windows, usual)?;
    }
    let shared = config.count("num_kv_shared_layers")?.unwrap_or(0);
    let layers = config.layers().end;
    let Some(first_shared) = layers.checked_sub(shared) else {
        let expected = format!("at most {layers}, the number of layers");
        return Err(config.invalid_value("num_kv_shared_layers", &shared, expected));
    };
    let doubles_hidden = config.flag("use_double_wide_mlp")?;
    Ok(MixedHeads { head_dim, kv_heads, keys_are_values, first_shared, doubles_hidden })
}

/// Reads the sizes of heads in full-attention layers from the settings of single layers, which must agree. `usual` are those of
/// layers without settings.
fn of_layers(config: &ConfigJson, windows: &AttentionWindows, usual: [u64; 2]) -> Result<(u64, u64)> {
    let all = config.object(PER_LAYER)?;
    let mut found = None;
    for layer in config.layers() {
        let key = layer.to_string();
        let settings = all.object(&key)?;
        let known = ["head_dim", "num_key_value_heads"];
        if let Some(other) = settings.map.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(settings.unsupported_key(other));
        }
        let [head_dim, kv_heads] = usual;
        let sizes = (
            settings.size("head_dim")?.unwrap_or(head_dim),
            settings.size("num_key_value_heads")?.unwrap_or(kv_heads),
        );
        let is_full = windows.window_of(layer).is_none();
        let expected = if is_full { *found.get_or_insert(sizes) } else { (head_dim, kv_heads) };
        if sizes != expected {
            let value = all.get(&key).map(Value::to_string).unwrap_or_default();
            return Err(all.invalid_value(&key, &value, "the same sizes in all layers of a kind".to_owned()));
        }
    }
    Ok(found.unwrap_or((usual[0], usual[1])))
}

/// Reads the rotary embeddings of full-attention layers and of sliding-window layers, in this order.
fn ropes(config: &ConfigJson) -> Result<[Rope; 2]> {
    const KEY: &str = "rope_parameters";
    if config.get(KEY).is_none() {
        let scaling = Some(RopeScaling::Proportional { part: 0.25, factor: 1.0 });
        return Ok([Rope { theta: 1_000_000.0, scaling }, Rope { theta: CONFIG.theta, scaling: None }]);
    }
    let parameters = config.object(KEY)?;
    let kinds = ["full_attention", "sliding_attention"];
    if let Some(other) = parameters.map.keys().find(|key| !kinds.contains(&key.as_str())) {
        return Err(parameters.unsupported_key(other));
    }
    let [full, sliding] = kinds.map(|kind| {
        let kind = parameters.object(kind)?;
        config.rope_from(&kind, CONFIG.theta, &CONFIG, false)
    });
    Ok([full?, sliding?])
}

/// Reads the inputs of layers; their class has them unless their width is 0.
fn layer_inputs(config: &ConfigJson) -> Result<Option<LayerInputs>> {
    let key = "hidden_size_per_layer_input";
    let width = if config.has(key) { config.count(key)?.unwrap_or(0) } else { 256 };
    let vocab = config.size("vocab_size_per_layer_input")?.unwrap_or(262_144);
    Ok((width > 0).then_some(LayerInputs { width, vocab }))
}

fn experts(config: &ConfigJson) -> Result<Experts> {
    let size = |key: &str| {
        let missing = || Problem::MissingKey { file: config.file, key: config.path(key) };
        Ok::<_, crate::Error>(config.size(key)?.ok_or_else(missing)?)
    };
    Ok(Experts {
        count: size("num_experts")?,
        per_token: size("top_k_experts")?,
        hidden: size("moe_intermediate_size")?,
        router: Router::Scaled,
        renormalised: true,
        beside_dense: true,
        biases: false,
        interleaved: false,
        shared: None,
        layers: config.layers().map(|_| true).collect(),
    })
}

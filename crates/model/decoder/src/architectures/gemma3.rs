//! Gemma 3's text model: Gemma 2 without soft caps, with norms of queries and keys, and with another RoPE base in
//! sliding-window layers.
//!
//! Facts: `configuration_gemma3.py` and `modeling_gemma3.py` in `transformers` 5.23.

use super::gemma::GEMMA;
use super::gemma2::{LAYOUT, apply_soft_caps};
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, HeadNorm};
use crate::config_defaults::ConfigDefaults;
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Hyperparameters, WindowedLayers};
use crate::rope::Rope;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gemma3_text",
    class: "Gemma3",
    works_without_config: false,
    layouts: &[&LAYOUT],
    config_defaults: &CONFIG,
    read_hyperparameters,
};

const CONFIG: ConfigDefaults = ConfigDefaults {
    own_keys: OWN_KEYS,
    theta: 1_000_000.0,
    context: 131_072.0,
    has_layer_ropes: true,
    ..GEMMA
};

/// Default RoPE base of sliding-window layers.
const LOCAL_THETA: f64 = 10_000.0;

/// Default interval of full-attention layers: every sixth layer.
const FULL_ATTENTION_INTERVAL: u64 = 6;

/// Keys of the configuration class. `cache_implementation` selects a cache type, which does not change results, and
/// `_sliding_window_pattern` repeats `layer_types`.
const OWN_KEYS: &[&str] = &[
    "_sliding_window_pattern",
    "attention_bias",
    "attn_logit_softcapping",
    "cache_implementation",
    "final_logit_softcapping",
    "layer_types",
    "query_pre_attn_scalar",
    "rope_local_base_freq",
    "sliding_window",
    "sliding_window_pattern",
    "use_bidirectional_attention",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let pattern = config.size("sliding_window_pattern")?.unwrap_or(FULL_ATTENTION_INTERVAL);
    let sees_all = |layer: u64| layer.saturating_add(1).is_multiple_of(pattern);
    let windows = config.windows(Some(4096), |layer| !sees_all(layer))?;
    let facts = apply_soft_caps(config, base, None, None)?;
    let [rope, local] = ropes(config)?;
    let rope_of_layer = match &windows.layers {
        WindowedLayers::Listed(layers) => {
            Some(layers.iter().map(|windowed| Some(usize::from(*windowed))).collect())
        }
        _ => None,
    };
    let block = Block { head_norm: Some(HeadNorm::Head), ..facts.block };
    Ok(Hyperparameters { block, rope, more_ropes: vec![local], rope_of_layer, windows, ..facts })
}

/// Reads the rotary embeddings of full-attention layers and of sliding-window layers, in this order. `rope_parameters` has
/// an object for each; older files have `rope_scaling` for full-attention layers, and `rope_theta` and
/// `rope_local_base_freq` as the two bases.
fn ropes(config: &ConfigJson) -> Result<[Rope; 2]> {
    let parameters = config.object("rope_parameters")?;
    let [mut full, sliding] = [parameters.object("full_attention")?, parameters.object("sliding_attention")?];
    if let Some(other) =
        parameters.map.keys().find(|key| !["full_attention", "sliding_attention"].contains(&key.as_str()))
    {
        return Err(parameters.unsupported_key(other));
    }
    full.map.extend(config.object("rope_scaling")?.map);
    for object in [&full, &sliding] {
        if object.number("partial_rotary_factor")?.is_some_and(|part| part < 1.0) {
            return Err(object.unsupported_key("partial_rotary_factor"));
        }
    }
    let theta = config.number("rope_theta")?.unwrap_or(CONFIG.theta);
    let local = config.number("rope_local_base_freq")?.unwrap_or(LOCAL_THETA);
    Ok([config.rope_from(&full, theta, &CONFIG, false)?, config.rope_from(&sliding, local, &CONFIG, false)?])
}

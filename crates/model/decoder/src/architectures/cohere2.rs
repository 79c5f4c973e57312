//! Command A and R7B: Command R with sliding windows in most layers, and no positions in the others.
//!
//! Facts: `configuration_cohere2.py` and `modeling_cohere2.py` in `transformers` 5.23.
use super::cohere::apply_cohere_block;
use super::gemma3::rope_of_windowed;
use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "cohere2",
    class: "Cohere2",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        rotates_halves: false,
        own_keys: OWN_KEYS,
        norm_eps: ("layer_norm_eps", 1e-5),
        context: 8192.0,
        tied: true,
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of published files. The class does not read those about layers, embeddings and rotation besides `layer_types` and
/// `sliding_window_pattern`.
const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "cache_implementation",
    "layer_switch",
    "layer_types",
    "logit_scale",
    "order_of_interleaved_layers",
    "position_embedding_type",
    "rotary_pct",
    "sliding_window",
    "sliding_window_pattern",
    "use_embedding_sharing",
    "use_gated_activation",
    "use_parallel_block",
    "use_parallel_embedding",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let pattern = config.size("sliding_window_pattern")?.unwrap_or(4);
    let windows = config.windows(Some(4096), |layer| !layer.saturating_add(1).is_multiple_of(pattern))?;
    let rope_of_layer = rope_of_windowed(&windows, |windowed| windowed.then_some(0));
    let facts = apply_cohere_block(config, base)?;
    // The class computes `head_dim`.
    Ok(Hyperparameters { head_dim: None, rope_of_layer, windows, ..facts })
}

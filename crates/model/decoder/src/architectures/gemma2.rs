//! Gemma 2: Gemma with norms before and after attention and the feed-forward layer, soft caps of attention scores and
//! logits, and sliding windows in every other layer.
//!
//! Facts: `configuration_gemma2.py` and `modeling_gemma2.py` in `transformers` 5.23.

use super::gemma::{GEMMA, apply_gemma_scaling};
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, NormPlace, Scales, Scores};
use crate::config_defaults::ConfigDefaults;
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gemma2",
    class: "Gemma2",
    works_without_config: false,
    config_defaults: &ConfigDefaults { own_keys: OWN_KEYS, ..GEMMA },
    read_hyperparameters,
};

/// Keys of the configuration class. `cache_implementation` selects a cache type, which does not change results.
const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "attn_logit_softcapping",
    "cache_implementation",
    "final_logit_softcapping",
    "layer_types",
    "query_pre_attn_scalar",
    "sliding_window",
    "use_bidirectional_attention",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let windows = config.windows(Some(4096), |layer| layer.is_multiple_of(2))?;
    let facts = apply_gemma2_block(config, base, Some(30.0))?;
    let soft_cap = config.number_or("attn_logit_softcapping", Some(50.0))?;
    let block = Block { scores: Scores { soft_cap, ..facts.block.scores }, ..facts.block };
    Ok(Hyperparameters { windows, block, ..facts })
}

/// Applies the settings common to Gemma 2 and 3: four norms, the scale of attention scores, and the soft cap of logits.
/// `logits_cap` is the default of that cap.
pub(super) fn apply_gemma2_block(
    config: &ConfigJson,
    base: Hyperparameters,
    logits_cap: Option<f64>,
) -> Result<Hyperparameters> {
    let facts = apply_gemma_scaling(config, base)?;
    let scale = libm::pow(config.number("query_pre_attn_scalar")?.unwrap_or(256.0), -0.5);
    let logits_soft_cap = config.number_or("final_logit_softcapping", logits_cap)?;
    let block = Block {
        norms: NormPlace::Both,
        scores: Scores { scale: Some(scale), ..Scores::default() },
        scales: Scales { logits_soft_cap, ..facts.block.scales },
        ..facts.block
    };
    Ok(Hyperparameters { block, ..facts })
}

//! Command R: attention and the feed-forward layer side by side after a norm without a bias, scaled logits, and rotated
//! neighbours.
//!
//! Facts: `configuration_cohere.py` and `modeling_cohere.py` in `transformers` 5.23.
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, HeadNormScope, NormKind, Scales};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "cohere",
    class: "Cohere",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        rotates_halves: false,
        own_keys: OWN_KEYS,
        norm_eps: ("layer_norm_eps", 1e-5),
        theta: 500_000.0,
        context: 8192.0,
        tied: true,
        ..DEFAULTS
    },
    read_hyperparameters,
};

const OWN_KEYS: &[&str] = &["attention_bias", "logit_scale", "use_qk_norm"];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let head_norm = config.flag("use_qk_norm")?.then_some(HeadNormScope::Heads);
    let facts = apply_cohere_block(config, base)?;
    Ok(Hyperparameters { block: Block { head_norm, ..facts.block }, ..facts })
}

/// Applies the settings common to all versions.
pub(super) fn apply_cohere_block(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, ..Biases::default() };
    let scales = Scales { logits: config.number("logit_scale")?.unwrap_or(0.0625), ..Scales::default() };
    let block = Block { norm: NormKind::LayerWithoutBias, parallel: true, scales, ..base.block };
    Ok(Hyperparameters { biases, block, ..base })
}

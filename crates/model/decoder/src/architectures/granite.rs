//! Granite 3: LLaMA with constant multipliers for embeddings, attention scores, residuals and logits.
//!
//! Facts: `configuration_granite.py` and `modeling_granite.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Scales, Scores};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "granite",
    class: "Granite",
    works_without_config: false,
    config_defaults: &ConfigDefaults { own_keys: OWN_KEYS, ..DEFAULTS },
    read_hyperparameters,
};

const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "attention_multiplier",
    "embedding_multiplier",
    "logits_scaling",
    "mlp_bias",
    "residual_multiplier",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let facts = apply_multipliers(config, base)?;
    let biases = Biases { feed_forward: config.flag("mlp_bias")?, ..facts.biases };
    Ok(Hyperparameters { biases, ..facts })
}

/// Applies the settings common to all Granite models: biases of attention and the constant multipliers.
pub(super) fn apply_multipliers(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, ..Biases::default() };
    let number = |key: &str| Ok::<_, crate::Error>(config.number(key)?.unwrap_or(1.0));
    let scales = Scales {
        embedding: number("embedding_multiplier")?,
        residual: number("residual_multiplier")?,
        logits: number("logits_scaling")?.recip(),
        logits_soft_cap: None,
    };
    let scores = Scores { scale: Some(number("attention_multiplier")?), ..Scores::default() };
    Ok(Hyperparameters { biases, block: Block { scores, scales, ..base.block }, ..base })
}

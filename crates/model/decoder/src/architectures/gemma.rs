//! Gemma: LLaMA whose norms multiply by `1 + weight`, with scaled embeddings and GELU.
//!
//! Facts: `configuration_gemma.py` and `modeling_gemma.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, NormKind, Scales};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::feed_forward::Activation;
use crate::hyperparameters::{Biases, Hyperparameters};
use crate::layer_inputs::rounded_sqrt;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gemma",
    class: "Gemma",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["attention_bias", "hidden_activation", "use_bidirectional_attention"],
        activation: ("hidden_act", Activation::GeluTanh),
        ..GEMMA
    },
    read_hyperparameters,
};

pub(super) const GEMMA: ConfigDefaults = ConfigDefaults {
    head_dim: Some(256),
    tied: true,
    activation: ("hidden_activation", Activation::GeluTanh),
    context: 8192.0,
    ..DEFAULTS
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let mut facts = apply_gemma_scaling(config, base)?;
    // Older files say `gelu` and mean the tanh approximation.
    if facts.block.activation == Activation::Gelu {
        facts.block.activation = Activation::GeluTanh;
    }
    Ok(facts)
}

/// Applies the settings common to all Gemma versions: scaled embeddings, norms with `1 + weight`, and attention biases.
pub(super) fn apply_gemma_scaling(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    config.refuse_flag("use_bidirectional_attention")?;
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, feed_forward: false, ..Biases::default() };
    let scales = Scales { embedding: base.dim.map_or(1.0, rounded_sqrt), ..Scales::default() };
    let block = Block { norm: NormKind::RmsPlusOne, scales, ..base.block };
    Ok(Hyperparameters { biases, block, ..base })
}

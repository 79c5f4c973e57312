//! Arcee: LLaMA whose feed-forward layer is a squared `ReLU` without a gate.
//!
//! Facts: `configuration_arcee.py` and `modeling_arcee.py` in `transformers` 5.23.
use crate::Result;
use crate::architecture::Architecture;
use crate::block::Block;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::feed_forward::{Activation, FeedForwardKind};
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "arcee",
    class: "Arcee",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["attention_bias", "mlp_bias"],
        norm_eps: ("rms_norm_eps", 1e-5),
        context: 4096.0,
        activation: ("hidden_act", Activation::ReluSquared),
        ..DEFAULTS
    },
    read_hyperparameters,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let feed_forward = config.flag("mlp_bias")?;
    let biases = Biases { qkv: attention, output: attention, feed_forward, ..Biases::default() };
    let block = Block { feed_forward: FeedForwardKind::Plain, ..base.block };
    Ok(Hyperparameters { biases, block, ..base })
}

//! `StarCoder2`: layer norms, a feed-forward layer without a gate, biases, and an optional sliding window.
//!
//! Facts: `configuration_starcoder2.py` and `modeling_starcoder2.py` in `transformers` 5.23.
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, NormKind};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::feed_forward::{Activation, FeedForwardKind};
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters, WindowedLayers};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "starcoder2",
    class: "Starcoder2",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        norm_eps: ("norm_epsilon", 1e-5),
        context: 4096.0,
        tied: true,
        activation: ("hidden_act", Activation::GeluTanh),
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of published files. The class does not read `mlp_type` and `norm_type`; the dropouts are for training.
const OWN_KEYS: &[&str] =
    &["embedding_dropout", "mlp_type", "norm_type", "residual_dropout", "sliding_window", "use_bias"];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let all = config.flag_or("use_bias", true)?;
    let biases = Biases { qkv: all, output: all, feed_forward: all, ..Biases::default() };
    let windows = AttentionWindows { size: config.size("sliding_window")?, layers: WindowedLayers::All };
    let block = Block { norm: NormKind::Layer, feed_forward: FeedForwardKind::Plain, ..base.block };
    Ok(Hyperparameters { windows, biases, block, ..base })
}

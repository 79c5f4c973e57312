//! Phi-1 to Phi-2: attention and a feed-forward layer without a gate side by side after one layer norm, and biases of all
//! matrices.
//!
//! Facts: `configuration_phi.py` and `modeling_phi.py` in `transformers` 5.23.
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, HeadNormScope, NormKind};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::feed_forward::{Activation, FeedForwardKind};
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "phi",
    class: "Phi",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["embd_pdrop", "qk_layernorm", "resid_pdrop"],
        norm_eps: ("layer_norm_eps", 1e-5),
        partial_rotary: Some(0.5),
        activation: ("hidden_act", Activation::GeluTanh),
        ..DEFAULTS
    },
    read_hyperparameters,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let head_norm = config.flag("qk_layernorm")?;
    let biases = Biases { qkv: true, output: true, feed_forward: true, head_norm, logits: true };
    let block = Block {
        norm: NormKind::Layer,
        head_norm: head_norm.then_some(HeadNormScope::Head),
        parallel: true,
        feed_forward: FeedForwardKind::Plain,
        ..base.block
    };
    Ok(Hyperparameters { biases, block, ..base })
}

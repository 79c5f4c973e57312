//! `StableLM` 2: LLaMA with layer norms and partial rotary embeddings. Some models normalise each head of queries and keys,
//! and some compute attention and the feed-forward layer in parallel.
//!
//! Facts: `configuration_stablelm.py` and `modeling_stablelm.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, HeadNormScope, NormKind};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "stablelm",
    class: "StableLm",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["hidden_dropout", "qk_layernorm", "use_parallel_residual", "use_qkv_bias"],
        norm_eps: ("layer_norm_eps", 1e-5),
        context: 4096.0,
        partial_rotary: Some(0.25),
        ..DEFAULTS
    },
    read_hyperparameters,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let biases = Biases { qkv: config.flag("use_qkv_bias")?, ..Biases::default() };
    let block = Block {
        norm: NormKind::Layer,
        head_norm: config.flag("qk_layernorm")?.then_some(HeadNormScope::EachHead),
        parallel: config.flag("use_parallel_residual")?,
        ..base.block
    };
    // The class does not read `head_dim`.
    let head_dim = None;
    Ok(Hyperparameters { head_dim, biases, block, ..base })
}

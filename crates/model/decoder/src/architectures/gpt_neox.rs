//! GPT-NeoX, Pythia: layer norms, attention and a feed-forward layer side by side with a norm each, queries, keys and values
//! fused by head, a quarter of each head rotated, and biases.
//!
//! Facts: `configuration_gpt_neox.py`, `modeling_gpt_neox.py` and `conversion_mapping.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, NormKind};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::feed_forward::{Activation, FeedForwardKind};
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gpt_neox",
    class: "GPTNeoX",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &[
            "attention_bias",
            "classifier_dropout",
            "hidden_dropout",
            "is_decoder",
            "rotary_emb_base",
            "rotary_pct",
            "use_parallel_residual",
        ],
        renamed: &[("partial_rotary_factor", "rotary_pct"), ("rope_theta", "rotary_emb_base")],
        norm_eps: ("layer_norm_eps", 1e-5),
        partial_rotary: Some(0.25),
        activation: ("hidden_act", Activation::Gelu),
        ..DEFAULTS
    },
    read_hyperparameters,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag_or("attention_bias", true)?;
    let parallel = config.flag_or("use_parallel_residual", true)?;
    let block = Block {
        norm: NormKind::Layer,
        fused_heads: true,
        parallel,
        parallel_norms: parallel,
        feed_forward: FeedForwardKind::Plain,
        ..base.block
    };
    let biases = Biases { qkv: attention, output: attention, feed_forward: true, ..Biases::default() };
    let n_heads = base.n_heads.or(Some(64));
    Ok(Hyperparameters { n_heads, n_kv_heads: n_heads, biases, block, ..base })
}

//! OPT: learned positions from the third row on, layer norms, biases, and `ReLU` without a gate.
//!
//! Facts: `configuration_opt.py` and `modeling_opt.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, NormKind};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::feed_forward::{Activation, FeedForwardKind};
use crate::hyperparameters::{Biases, Hyperparameters};
use crate::learned_positions::LearnedPositions;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "opt",
    class: "OPT",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        aliases: &[("intermediate_size", "ffn_dim")],
        // The class has no key for it: its layers have the value of PyTorch. This one is of `--norm-eps`.
        norm_eps: ("norm_eps", 1e-5),
        tied: true,
        activation: ("activation_function", Activation::Relu),
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class. Dropouts, `layerdrop` and `init_std` are for training, and `activation_dropout` and
/// `prefix` are not read.
const OWN_KEYS: &[&str] = &[
    "_remove_final_layer_norm",
    "activation_dropout",
    "do_layer_norm_before",
    "dropout",
    "enable_bias",
    "ffn_dim",
    "init_std",
    "layer_norm_elementwise_affine",
    "layerdrop",
    "prefix",
    "word_embed_proj_dim",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    config.refuse_flag("_remove_final_layer_norm")?;
    // OPT-350m has its norms after each sum, none at the end, and matrices around the layers.
    for key in ["do_layer_norm_before", "layer_norm_elementwise_affine"] {
        if !config.flag_or(key, true)? {
            return Err(config.unsupported_key(key));
        }
    }
    let key = "word_embed_proj_dim";
    if config.size(key)?.is_some_and(|size| Some(size) != base.dim) {
        return Err(config.unsupported_key(key));
    }
    let all = config.flag_or("enable_bias", true)?;
    let biases = Biases { qkv: all, output: all, feed_forward: all, ..Biases::default() };
    let count = config.size("max_position_embeddings")?.unwrap_or(2048);
    let block = Block {
        norm: NormKind::Layer,
        learned_positions: Some(LearnedPositions { count, offset: 2 }),
        feed_forward: FeedForwardKind::Plain,
        ..base.block
    };
    let rope_of_layer = Some(config.layers().map(|_| None).collect());
    let (n_kv_heads, head_dim) = (base.n_heads, None);
    Ok(Hyperparameters { n_kv_heads, head_dim, biases, block, rope_of_layer, ..base })
}

//! BLOOM: `ALiBi`, layer norms and one of the embeddings, queries, keys and values fused by head, a feed-forward layer without a
//! gate, and biases.
//!
//! Facts: `configuration_bloom.py` and `modeling_bloom.py` in `transformers` 5.23.

use crate::Result;
use crate::alibi::Alibi;
use crate::architecture::Architecture;
use crate::block::{Block, NormKind};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::feed_forward::{Activation, FeedForwardKind};
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "bloom",
    class: "Bloom",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        aliases: &[
            ("hidden_size", "n_embed"),
            ("num_attention_heads", "n_head"),
            ("num_hidden_layers", "n_layer"),
        ],
        norm_eps: ("layer_norm_epsilon", 1e-5),
        tied: true,
        // The class has no key for it.
        activation: ("", Activation::GeluTanh),
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class, and of older files. The two about the exact sum of a split matrix change only its
/// rounding.
const OWN_KEYS: &[&str] = &[
    "apply_residual_connection_post_layernorm",
    "attention_softmax_in_fp32",
    "bias_dropout_fusion",
    "hidden_dropout",
    "masked_softmax_fusion",
    "n_embed",
    "n_head",
    "n_inner",
    "n_layer",
    "offset_alibi",
    "seq_length",
    "skip_bias_add",
    "skip_bias_add_qkv",
    "slow_but_exact",
    "unk_token_id",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let block = Block {
        norm: NormKind::Layer,
        fused_heads: true,
        alibi: Some(Alibi::AfterScale),
        embedding_norm: true,
        adds_to_norms: config.flag("apply_residual_connection_post_layernorm")?,
        feed_forward: FeedForwardKind::Plain,
        ..base.block
    };
    let biases = Biases { qkv: true, output: true, feed_forward: true, ..Biases::default() };
    let (dim, n_heads) = (base.dim.or(Some(64)), base.n_heads.or(Some(8)));
    let hidden = dim.map(|dim| dim.saturating_mul(4));
    let rope_of_layer = Some(config.layers().map(|_| None).collect());
    Ok(Hyperparameters {
        dim,
        n_heads,
        n_kv_heads: n_heads,
        head_dim: None,
        hidden,
        rope_of_layer,
        biases,
        block,
        ..base
    })
}

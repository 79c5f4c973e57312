//! GPT-2: learned positions, layer norms, biases, a feed-forward layer without a gate, and matrices with their columns first.
//!
//! Facts: `configuration_gpt2.py` and `modeling_gpt2.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, NormKind, Scores};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::feed_forward::{Activation, FeedForwardKind};
use crate::hyperparameters::{Biases, Hyperparameters};
use crate::learned_positions::LearnedPositions;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gpt2",
    class: "GPT2",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        aliases: &[
            ("hidden_size", "n_embd"),
            ("intermediate_size", "n_inner"),
            ("max_position_embeddings", "n_positions"),
            ("num_attention_heads", "n_head"),
            ("num_hidden_layers", "n_layer"),
        ],
        norm_eps: ("layer_norm_epsilon", 1e-5),
        context: 1024.0,
        tied: true,
        activation: ("activation_function", Activation::GeluTanh),
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class. The dropouts are for training, and the summaries for other classes.
const OWN_KEYS: &[&str] = &[
    "add_cross_attention",
    "attn_pdrop",
    "embd_pdrop",
    "n_ctx",
    "n_embd",
    "n_head",
    "n_inner",
    "n_layer",
    "n_positions",
    "reorder_and_upcast_attn",
    "resid_pdrop",
    "scale_attn_by_inverse_layer_idx",
    "scale_attn_weights",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    config.refuse_flag("add_cross_attention")?;
    config.refuse_flag("scale_attn_by_inverse_layer_idx")?;
    let scale = if config.flag_or("scale_attn_weights", true)? { None } else { Some(1.0) };
    let count = config.size("max_position_embeddings")?.unwrap_or(1024);
    let block = Block {
        norm: NormKind::Layer,
        learned_positions: Some(LearnedPositions { count, offset: 0 }),
        scores: Scores { scale, ..Scores::default() },
        feed_forward: FeedForwardKind::Plain,
        ..base.block
    };
    let biases = Biases { qkv: true, output: true, feed_forward: true, ..Biases::default() };
    let (dim, n_heads) = (base.dim.or(Some(768)), base.n_heads.or(Some(12)));
    let hidden = base.hidden.or(dim.map(|dim| dim.saturating_mul(4)));
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

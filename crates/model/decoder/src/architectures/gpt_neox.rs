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
use crate::layout::{CheckpointLayout, HUGGING_FACE};
use crate::weight::LayerPart;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gpt_neox",
    class: "GPTNeoX",
    works_without_config: false,
    layouts: &[&LAYOUT],
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

static LAYOUT: CheckpointLayout = CheckpointLayout {
    embedding: "gpt_neox.embed_in",
    older_output: "embed_out",
    norm: "gpt_neox.final_layer_norm",
    layers: "gpt_neox.layers.",
    part_path: |part| match part {
        LayerPart::Wqkv => "attention.query_key_value",
        LayerPart::Wo => "attention.dense",
        LayerPart::W3 => "mlp.dense_h_to_4h",
        LayerPart::W2 => "mlp.dense_4h_to_h",
        part => (HUGGING_FACE.part_path)(part),
    },
    signature_part: LayerPart::Wqkv,
    unused: &[".attention.bias", ".attention.masked_bias", ".attention.rotary_emb.inv_freq"],
    ..HUGGING_FACE
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

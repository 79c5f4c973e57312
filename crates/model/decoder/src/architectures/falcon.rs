//! Falcon: layer norms, queries, keys and values fused by head of keys, of which there are one, some or all, rotary embeddings or
//! `ALiBi`, and a feed-forward layer without a gate, next to attention or after it.
//!
//! Facts: `configuration_falcon.py` and `modeling_falcon.py` in `transformers` 5.23.

use crate::Result;
use crate::alibi::Alibi;
use crate::architecture::Architecture;
use crate::block::{Block, NormKind};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::feed_forward::{Activation, FeedForwardKind};
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "falcon",
    class: "Falcon",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        aliases: &[("hidden_size", "n_embed"), ("intermediate_size", "ffn_hidden_size")],
        norm_eps: ("layer_norm_epsilon", 1e-5),
        tied: true,
        activation: ("activation", Activation::Gelu),
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class.
const OWN_KEYS: &[&str] = &[
    "alibi",
    "apply_residual_connection_post_layernorm",
    "auto_map",
    "bias",
    "ffn_hidden_size",
    "hidden_dropout",
    "multi_query",
    "n_embed",
    "new_decoder_architecture",
    "num_kv_heads",
    "num_ln_in_parallel_attn",
    "parallel_attn",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let (is_new, bias) = (config.flag("new_decoder_architecture")?, config.flag("bias")?);
    let parallel = is_new || config.flag_or("parallel_attn", true)?;
    let norms = config.size("num_ln_in_parallel_attn")?.unwrap_or(if is_new { 2 } else { 1 });
    let has_alibi = config.flag("alibi")?;
    if is_new && !config.flag_or("parallel_attn", true)? {
        let expected = "true, because layers of the new architecture are parallel".to_owned();
        return Err(config.invalid_value("parallel_attn", &"false", expected));
    }
    if parallel && !(1..=if is_new { 2 } else { 1 }).contains(&norms) {
        let expected = if is_new { "1 or 2" } else { "1, since the layers have one norm" };
        return Err(config.invalid_value("num_ln_in_parallel_attn", &norms, expected.to_owned()));
    }
    let n_heads = base.n_heads.or(Some(71));
    let all = config.size("num_kv_heads")?.or(n_heads);
    let n_kv_heads = match (is_new, config.flag_or("multi_query", true)?) {
        (true, _) => all,
        (false, true) => Some(1),
        // The matrix has as many keys as queries, whatever the document says.
        (false, false) => n_heads,
    };
    let block = Block {
        norm: NormKind::Layer,
        fused_heads: true,
        alibi: has_alibi.then_some(Alibi::BeforeScale),
        parallel,
        parallel_norms: parallel && norms == 2,
        feed_forward: FeedForwardKind::Plain,
        ..base.block
    };
    let biases = Biases { qkv: bias, output: bias, feed_forward: bias, ..Biases::default() };
    let dim = base.dim.or(Some(4544));
    let hidden = base.hidden.or(dim.map(|dim| dim.saturating_mul(4)));
    let rope_of_layer = has_alibi.then(|| config.layers().map(|_| None).collect());
    Ok(Hyperparameters {
        dim,
        n_heads,
        n_kv_heads,
        head_dim: None,
        hidden,
        rope_of_layer,
        biases,
        block,
        ..base
    })
}

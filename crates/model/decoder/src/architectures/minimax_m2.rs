//! MiniMax-M2: experts that a sigmoid router chooses, norms over whole queries and keys, and a part of each head rotated.
//!
//! Facts: `configuration_minimax_m2.py`, `modeling_minimax_m2.py` and `conversion_mapping.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Experts, HeadNormScope};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Hyperparameters, RotaryDims};
use crate::router::Router;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "minimax_m2",
    class: "MiniMaxM2",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        theta: 5_000_000.0,
        context: 196_608.0,
        head_dim: Some(128),
        partial_rotary: Some(1.0),
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class and of published files. The auxiliary loss and the jitter are for training, and the class
/// reads none of the keys about attention's type, further tokens and the router's function.
const OWN_KEYS: &[&str] = &[
    "attn_type_list",
    "auto_map",
    "mtp_transformer_layers",
    "num_experts_per_tok",
    "num_local_experts",
    "num_mtp_modules",
    "output_router_logits",
    "qk_norm_type",
    "rotary_dim",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "scoring_func",
    "shared_intermediate_size",
    "use_mtp",
    "use_qk_norm",
    "use_routing_bias",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let experts = Experts {
        // `num_experts` is another name of the class for it, and replaces it.
        count: config.size("num_experts")?.or(config.size("num_local_experts")?).unwrap_or(256),
        per_token: config.size("num_experts_per_tok")?.unwrap_or(8),
        hidden: base.hidden.unwrap_or(1536),
        router: Router::Sigmoid { groups: 1, chosen_groups: 1, factor: 1.0 },
        renormalised: true,
        beside_dense: false,
        biases: false,
        interleaved: false,
        shared: None,
        layers: config.layers().map(|_| true).collect(),
    };
    let block = Block { head_norm: Some(HeadNormScope::Projection), experts: Some(experts), ..base.block };
    // Published files count the rotated numbers instead of stating their fraction, which goes first.
    let is_stated = |object: &ConfigJson| object.has("partial_rotary_factor");
    let is_stated = is_stated(config) || config.rope_object()?.is_some_and(|inner| is_stated(&inner));
    let rotated = match config.size("rotary_dim")? {
        Some(count) if !is_stated => RotaryDims::Count(count),
        _ => base.rotated,
    };
    Ok(Hyperparameters { block, rotated, ..base })
}

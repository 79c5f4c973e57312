//! Granite 3 with experts in all layers.
//!
//! Facts: `configuration_granitemoe.py` and `modeling_granitemoe.py` and `conversion_mapping.py` in `transformers` 5.23.
use super::granite;
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Experts};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;
use crate::router::Router;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "granitemoe",
    class: "GraniteMoe",
    works_without_config: false,
    config_defaults: &ConfigDefaults { own_keys: OWN_KEYS, ..DEFAULTS },
    read_hyperparameters,
};

/// Keys of the configuration class. The router's auxiliary loss is for training.
const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "attention_multiplier",
    "embedding_multiplier",
    "logits_scaling",
    "num_experts_per_tok",
    "num_local_experts",
    "output_router_logits",
    "residual_multiplier",
    "router_aux_loss_coef",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let experts = Experts {
        count: config.size("num_local_experts")?.unwrap_or(8),
        per_token: config.size("num_experts_per_tok")?.unwrap_or(2),
        hidden: base.hidden.unwrap_or(11_008),
        router: Router::AfterChoice,
        renormalised: false,
        beside_dense: false,
        biases: false,
        interleaved: false,
        shared: None,
        layers: config.layers().map(|_| true).collect(),
    };
    let facts = granite::apply_multipliers(config, base)?;
    Ok(Hyperparameters { block: Block { experts: Some(experts), ..facts.block }, ..facts })
}

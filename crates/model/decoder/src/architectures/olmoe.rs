//! `OLMoE`: experts in all layers, norms over whole queries and keys, and an optional limit of these.
//!
//! Facts: `configuration_olmoe.py` and `modeling_olmoe.py` in `transformers` 5.23.
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Experts, HeadNormScope};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};
use crate::router::Router;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "olmoe",
    class: "Olmoe",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        norm_eps: ("rms_norm_eps", 1e-5),
        context: 4096.0,
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class. The router's auxiliary loss is for training.
const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "clip_qkv",
    "norm_topk_prob",
    "num_experts",
    "num_experts_per_tok",
    "num_local_experts",
    "output_router_logits",
    "router_aux_loss_coef",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, ..Biases::default() };
    // `num_local_experts` is another name of the class for `num_experts`, and replaces it.
    let experts = Experts {
        count: config.size("num_local_experts")?.or(config.size("num_experts")?).unwrap_or(64),
        per_token: config.size("num_experts_per_tok")?.unwrap_or(8),
        hidden: base.hidden.unwrap_or(2048),
        router: Router::BeforeChoice,
        renormalised: config.flag("norm_topk_prob")?,
        beside_dense: false,
        biases: false,
        interleaved: false,
        shared: None,
        layers: config.layers().map(|_| true).collect(),
    };
    let block = Block {
        head_norm: Some(HeadNormScope::Projection),
        qkv_limit: config.number("clip_qkv")?,
        experts: Some(experts),
        ..base.block
    };
    Ok(Hyperparameters { biases, block, ..base })
}

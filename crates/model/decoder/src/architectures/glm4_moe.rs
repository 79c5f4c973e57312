//! GLM-4.5 and 4.6: experts that a sigmoid router chooses, and a shared one; the first layers are dense.
//!
//! Facts: `configuration_glm4_moe.py` and `modeling_glm4_moe.py` in `transformers` 5.23.
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Experts, HeadNormScope, SharedExpert};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};
use crate::router::Router;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "glm4_moe",
    class: "Glm4Moe",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        norm_eps: ("rms_norm_eps", 1e-5),
        context: 131_072.0,
        partial_rotary: Some(0.5),
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class. Layers after the last one predict further tokens, and are left out.
const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "first_k_dense_replace",
    "moe_intermediate_size",
    "n_group",
    "n_routed_experts",
    "n_shared_experts",
    "norm_topk_prob",
    "num_experts_per_tok",
    "num_local_experts",
    "num_mtp_layers",
    "num_nextn_predict_layers",
    "output_router_logits",
    "routed_scaling_factor",
    "topk_group",
    "use_qk_norm",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    // The output of attention never has a bias.
    let biases = Biases { qkv: config.flag("attention_bias")?, ..Biases::default() };
    let hidden = config.size("moe_intermediate_size")?.unwrap_or(1408);
    let shared = config.size("n_shared_experts")?.unwrap_or(1).saturating_mul(hidden);
    let size = |key: &str, default: u64| Ok::<_, crate::Error>(config.size(key)?.unwrap_or(default));
    let first = config.count("first_k_dense_replace")?.unwrap_or(1);
    let n_layers = base.n_layers.unwrap_or(config.layers().end);
    let experts = Experts {
        count: config.size("num_local_experts")?.map_or_else(|| size("n_routed_experts", 128), Ok)?,
        per_token: size("num_experts_per_tok", 8)?,
        hidden,
        router: Router::Sigmoid {
            groups: size("n_group", 1)?,
            chosen_groups: size("topk_group", 1)?,
            factor: config.number("routed_scaling_factor")?.unwrap_or(1.0),
        },
        renormalised: config.flag_or("norm_topk_prob", true)?,
        beside_dense: false,
        biases: false,
        interleaved: false,
        shared: Some(SharedExpert { hidden: shared, gated: false }),
        layers: config.layers().filter(|layer| *layer < n_layers).map(|layer| layer >= first).collect(),
    };
    let head_norm = config.flag("use_qk_norm")?.then_some(HeadNormScope::Head);
    let block = Block { head_norm, experts: Some(experts), ..base.block };
    let skipped_layers: Vec<u64> = config.layers().filter(|layer| *layer >= n_layers).collect();
    let n_layers = base.n_layers.map(|count| count.saturating_add(skipped_layers.len() as u64));
    Ok(Hyperparameters { n_layers, biases, block, skipped_layers, ..base })
}

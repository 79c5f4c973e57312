//! Qwen2 with experts in most layers, including a shared expert for all tokens.
//!
//! Facts: `configuration_qwen2_moe.py`, `modeling_qwen2_moe.py` and `conversion_mapping.py` in `transformers` 5.23.

use super::qwen3_moe::experts;
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Experts, SharedExpert};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "qwen2_moe",
    class: "Qwen2Moe",
    works_without_config: false,
    config_defaults: &ConfigDefaults { own_keys: OWN_KEYS, context: 32_768.0, ..DEFAULTS },
    read_hyperparameters,
};

/// Keys of the configuration class. The router's auxiliary loss is for training.
const OWN_KEYS: &[&str] = &[
    "decoder_sparse_step",
    "layer_types",
    "max_window_layers",
    "mlp_only_layers",
    "moe_intermediate_size",
    "norm_topk_prob",
    "num_experts",
    "num_experts_per_tok",
    "output_router_logits",
    "qkv_bias",
    "router_aux_loss_coef",
    "shared_expert_intermediate_size",
    "sliding_window",
    "use_sliding_window",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let biases = Biases { qkv: config.flag_or("qkv_bias", true)?, ..Biases::default() };
    let hidden = config.size("shared_expert_intermediate_size")?.unwrap_or(5632);
    let count = config.size("num_experts")?.unwrap_or(60);
    let experts =
        Experts { shared: Some(SharedExpert { hidden, gated: true }), ..experts(config, count, [4, 1408])? };
    let block = Block { experts: Some(experts), ..base.block };
    Ok(Hyperparameters { windows: windows(config)?, biases, block, ..base })
}

/// Reads the sliding windows: if they are on, every other layer below `max_window_layers` has one.
fn windows(config: &ConfigJson) -> Result<AttentionWindows> {
    let last = config.count("max_window_layers")?.unwrap_or(28);
    if config.flag("use_sliding_window")? {
        return config.windows(Some(4096), |layer| layer.is_multiple_of(2) && layer < last);
    }
    if config.windowed_layers()?.is_some_and(|layers| layers.contains(&true)) {
        let expected = "true, since layer_types has \"sliding_attention\"".to_owned();
        return Err(config.invalid_value("use_sliding_window", &false, expected));
    }
    Ok(AttentionWindows::default())
}

//! Qwen3 with experts in most layers.
//!
//! Facts: `configuration_qwen3_moe.py`, `modeling_qwen3_moe.py` and `conversion_mapping.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Experts, HeadNormScope};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters, WindowedLayers};
use crate::router::Router;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "qwen3_moe",
    class: "Qwen3Moe",
    works_without_config: false,
    config_defaults: &ConfigDefaults { own_keys: OWN_KEYS, context: 32_768.0, ..DEFAULTS },
    read_hyperparameters,
};

/// Keys of the configuration class. The router's auxiliary loss is for training, and the class does not read
/// `max_window_layers`.
const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "decoder_sparse_step",
    "max_window_layers",
    "mlp_only_layers",
    "moe_intermediate_size",
    "norm_topk_prob",
    "num_experts",
    "num_experts_per_tok",
    "num_local_experts",
    "output_router_logits",
    "router_aux_loss_coef",
    "sliding_window",
    "use_sliding_window",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, feed_forward: false, ..Biases::default() };
    let size = config.size_or("sliding_window", Some(4096))?;
    let on = config.flag("use_sliding_window")?;
    let windows = AttentionWindows { size: size.filter(|_| on), layers: WindowedLayers::All };
    // `num_local_experts` is another name of the class for `num_experts`, and replaces it.
    let count = config.size("num_local_experts")?.or(config.size("num_experts")?).unwrap_or(128);
    let experts = experts(config, count, [8, 768])?;
    let block = Block { head_norm: Some(HeadNormScope::Head), experts: Some(experts), ..base.block };
    Ok(Hyperparameters { windows, biases, block, ..base })
}

/// Reads the experts of Qwen models. `per_token` and `hidden` (an expert's width) are the defaults of the configuration
/// class.
pub(super) fn experts(config: &ConfigJson, count: u64, [per_token, hidden]: [u64; 2]) -> Result<Experts> {
    let step = config.size("decoder_sparse_step")?.unwrap_or(1);
    let dense = config.counts("mlp_only_layers")?.unwrap_or_default();
    let has_experts = |layer: u64| !dense.contains(&layer) && layer.saturating_add(1).is_multiple_of(step);
    Ok(Experts {
        count,
        per_token: config.size("num_experts_per_tok")?.unwrap_or(per_token),
        hidden: config.size("moe_intermediate_size")?.unwrap_or(hidden),
        router: Router::BeforeChoice,
        renormalised: config.flag("norm_topk_prob")?,
        beside_dense: false,
        biases: false,
        interleaved: false,
        shared: None,
        layers: config.layers().map(has_experts).collect(),
    })
}

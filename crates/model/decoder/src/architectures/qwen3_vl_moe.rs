//! Qwen3-VL with experts, whose weights always add up to 1.
//!
//! Facts: `configuration_qwen3_vl_moe.py`, `modeling_qwen3_vl_moe.py` and `conversion_mapping.py` in `transformers` 5.23.

use super::qwen3_moe::experts;
use super::qwen3_vl::{self, QWEN3_DEFAULTS};
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Experts};
use crate::config_defaults::ConfigDefaults;
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;
use crate::multimodal::{Multimodal, TextVariant};

pub(super) static QWEN3: Multimodal = Multimodal {
    architecture: &QWEN3_VL_MOE,
    texts: &[TextVariant { model_type: "qwen3_vl_moe_text", architecture: &QWEN3_VL_MOE, heads: 16 }],
    tied: Some(false),
};

static QWEN3_VL_MOE: Architecture = Architecture {
    name: "qwen3_vl_moe",
    class: "Qwen3VLMoe",
    works_without_config: false,
    config_defaults: &ConfigDefaults { own_keys: OWN_KEYS, ..QWEN3_DEFAULTS },
    read_hyperparameters,
};

/// Keys of the configuration class. The router's auxiliary loss is for training, and `norm_topk_prob` is not read.
const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "decoder_sparse_step",
    "mlp_only_layers",
    "moe_intermediate_size",
    "norm_topk_prob",
    "num_experts",
    "num_experts_per_tok",
    "num_local_experts",
    "output_router_logits",
    "router_aux_loss_coef",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let facts = qwen3_vl::read_hyperparameters(config, base)?;
    // `num_experts` is another name of the class for `num_local_experts`, and replaces it.
    let count = config.size("num_experts")?.or(config.size("num_local_experts")?).unwrap_or(60);
    let experts = Experts { renormalised: true, ..experts(config, count, [4, 1408])? };
    Ok(Hyperparameters { block: Block { experts: Some(experts), ..facts.block }, ..facts })
}

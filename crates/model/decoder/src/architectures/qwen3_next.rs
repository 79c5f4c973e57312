//! Qwen3-Next: gated `DeltaNet` in most layers, gated attention in the others, norms of 1 + weight, and experts.
//!
//! Facts: `configuration_qwen3_next.py` and `modeling_qwen3_next.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::architectures::qwen3_moe;
use crate::block::{Block, Experts, HeadNormScope, NormKind, SharedExpert};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::delta_net::DeltaNet;
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "qwen3_next",
    class: "Qwen3Next",
    works_without_config: false,
    config_defaults: &ConfigDefaults { own_keys: OWN_KEYS, ..TEXT_DEFAULTS },
    read_hyperparameters,
};

pub(super) const TEXT_DEFAULTS: ConfigDefaults =
    ConfigDefaults { head_dim: Some(256), context: 32768.0, partial_rotary: Some(0.25), ..DEFAULTS };

/// Keys of the configuration class.
pub(super) const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "decoder_sparse_step",
    "full_attention_interval",
    "layer_types",
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "mlp_only_layers",
    "moe_intermediate_size",
    "norm_topk_prob",
    "num_experts",
    "num_experts_per_tok",
    "output_router_logits",
    "router_aux_loss_coef",
    "shared_expert_intermediate_size",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let count = config.size("num_experts")?.unwrap_or(512);
    let experts = Experts {
        renormalised: config.flag_or("norm_topk_prob", true)?,
        ..qwen3_moe::experts(config, count, [10, 512])?
    };
    let hidden = base.hidden.or(Some(5632));
    let facts = mixed(config, Hyperparameters { hidden, ..base }, 2, true)?;
    let block = Block { experts: Some(with_shared(config, experts)?), ..facts.block };
    Ok(Hyperparameters { block, ..facts })
}

/// Returns the experts with the one that all tokens go through.
pub(super) fn with_shared(config: &ConfigJson, experts: Experts) -> Result<Experts> {
    let hidden = config.size("shared_expert_intermediate_size")?.unwrap_or(512);
    Ok(Experts { shared: Some(SharedExpert { hidden, gated: true }), ..experts })
}

/// Returns the facts of layers of both kinds, without those of experts. `kv_heads` is the default of the class.
pub(super) fn mixed(
    config: &ConfigJson,
    base: Hyperparameters,
    kv_heads: u64,
    fused: bool,
) -> Result<Hyperparameters> {
    let size = |key: &str, default: u64| Ok::<_, crate::Error>(config.size(key)?.unwrap_or(default));
    let interval = size("full_attention_interval", 4)?;
    let layers = config.linear_layers()?;
    let is_linear = |layer: u64| !layer.saturating_add(1).is_multiple_of(interval);
    let delta_net = DeltaNet {
        key_heads: size("linear_num_key_heads", 16)?,
        value_heads: size("linear_num_value_heads", 32)?,
        key_dim: size("linear_key_head_dim", 128)?,
        value_dim: size("linear_value_head_dim", 128)?,
        kernel: size("linear_conv_kernel_dim", 4)?,
        fused,
        layers: layers.unwrap_or_else(|| config.layers().map(is_linear).collect()),
    };
    let block = Block {
        norm: NormKind::RmsPlusOne,
        head_norm: Some(HeadNormScope::Head),
        gated_attention: true,
        delta_net: Some(delta_net),
        ..base.block
    };
    let bias = config.flag("attention_bias")?;
    let biases = Biases { qkv: bias, output: bias, ..Biases::default() };
    let (n_heads, n_kv_heads) = (base.n_heads.or(Some(16)), base.n_kv_heads.or(Some(kv_heads)));
    Ok(Hyperparameters { n_heads, n_kv_heads, biases, block, ..base })
}

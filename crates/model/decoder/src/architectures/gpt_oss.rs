//! gpt-oss: experts with biases, attention with sinks, `YaRN`, and sliding windows in every other layer.
//!
//! Facts: `configuration_gpt_oss.py` and `modeling_gpt_oss.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Experts, Scores};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::feed_forward::Activation;
use crate::hyperparameters::{Biases, Hyperparameters};
use crate::rope::{Rope, RopeScaling, Yarn};
use crate::router::Router;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gpt_oss",
    class: "GptOss",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        norm_eps: ("rms_norm_eps", 1e-5),
        theta: 150_000.0,
        context: 131_072.0,
        head_dim: Some(64),
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class. The router's auxiliary loss is for training, and the class does not read
/// `experts_per_token` and `initial_context_length`.
const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "experts_per_token",
    "initial_context_length",
    "layer_types",
    "num_experts",
    "num_experts_per_tok",
    "num_local_experts",
    "output_router_logits",
    "router_aux_loss_coef",
    "sliding_window",
    "swiglu_alpha",
    "swiglu_limit",
];

/// Default scaling, for a config.json with neither `rope_scaling` nor `rope_parameters`. The magnitude is `YaRN`'s for the
/// factor: 0.1 ln(32) + 1.
const YARN: Yarn = Yarn {
    factor: 32.0,
    fast: 32.0,
    slow: 1.0,
    old: 4096.0,
    magnitude: 1.346_573_590_279_972_7,
    truncate: false,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag_or("attention_bias", true)?;
    let biases = Biases { qkv: attention, output: attention, feed_forward: false, ..Biases::default() };
    // `num_experts` is another name of the class for `num_local_experts`, and replaces it.
    let experts = Experts {
        count: config.size("num_experts")?.or(config.size("num_local_experts")?).unwrap_or(128),
        per_token: config.size("num_experts_per_tok")?.unwrap_or(4),
        hidden: base.hidden.unwrap_or(2880),
        router: Router::AfterChoice,
        renormalised: false,
        beside_dense: false,
        biases: true,
        interleaved: true,
        shared: None,
        layers: config.layers().map(|_| true).collect(),
    };
    let activation = Activation::ClampedSwiglu {
        alpha: config.number("swiglu_alpha")?.unwrap_or(1.702),
        limit: config.number("swiglu_limit")?.unwrap_or(7.0),
    };
    let scores = Scores { sinks: true, ..Scores::default() };
    let block = Block { activation, scores, experts: Some(experts), ..base.block };
    let windows = config.windows(Some(128), |layer| layer.is_multiple_of(2))?;
    let rope = match config.rope_object()? {
        Some(_) => base.rope,
        None => Rope { scaling: Some(RopeScaling::Yarn(YARN)), ..base.rope },
    };
    Ok(Hyperparameters { rope, windows, biases, block, ..base })
}

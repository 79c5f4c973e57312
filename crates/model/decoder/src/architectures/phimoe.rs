//! Phi-3.5-MoE: Mixtral with layer norms, biases, and a router that weighs each of two experts alone.
//!
//! Facts: `configuration_phimoe.py` and `modeling_phimoe.py` and `conversion_mapping.py` in `transformers` 5.23.
use crate::Problem;
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Experts, NormKind};
use crate::config_defaults::RopeScalingKind;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters, WindowedLayers};
use crate::rope::{LongRope, Rope, RopeScaling};
use crate::router::Router;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "phimoe",
    class: "Phimoe",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        norm_eps: ("rms_norm_eps", 1e-5),
        theta: 1_000_000.0,
        context: 131_072.0,
        scalings: &[("default", RopeScalingKind::Unscaled), ("longrope", RopeScalingKind::LongRope)],
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class. The auxiliary loss, the jitter of inputs and the dropout are for training.
const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "auto_map",
    "hidden_dropout",
    "input_jitter_noise",
    "lm_head_bias",
    "num_experts_per_tok",
    "num_local_experts",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "sliding_window",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let logits = config.flag("lm_head_bias")?;
    let biases = Biases { qkv: attention, output: attention, logits, ..Biases::default() };
    let windows = AttentionWindows { size: config.size("sliding_window")?, layers: WindowedLayers::All };
    let jitter = config.number_or("router_jitter_noise", Some(0.01));
    let experts = Experts {
        count: config.size("num_local_experts")?.unwrap_or(16),
        per_token: config.size("num_experts_per_tok")?.unwrap_or(2),
        hidden: base.hidden.unwrap_or(6400),
        router: Router::Sparsemixer { jitter: jitter?.unwrap_or(0.0) },
        renormalised: false,
        beside_dense: false,
        biases: false,
        interleaved: false,
        shared: None,
        layers: config.layers().map(|_| true).collect(),
    };
    let block = Block { norm: NormKind::Layer, experts: Some(experts), ..base.block };
    let rope = Rope { scaling: scaling(config, base.rope.scaling)?, ..base.rope };
    Ok(Hyperparameters { rope, windows, biases, block, ..base })
}

/// Gives `LongRoPE` the factor of cosines and sines that the class reads. It uses the short factors at any length.
fn scaling(config: &ConfigJson, scaling: Option<RopeScaling>) -> Result<Option<RopeScaling>> {
    let (Some(RopeScaling::LongRope(rope)), Some(inner)) = (&scaling, config.rope_object()?) else {
        return Ok(scaling);
    };
    let number = |key: &str| {
        let missing = || Problem::MissingKey { file: config.file, key: inner.path(key) };
        Ok::<_, crate::Error>(inner.number(key)?.ok_or_else(missing)?)
    };
    let [magnitude, long] = [number("short_mscale")?, number("long_mscale")?];
    if magnitude.to_bits() != long.to_bits() {
        return Err(inner.invalid_value("long_mscale", &long, format!("{magnitude}, as `short_mscale`")));
    }
    Ok(Some(RopeScaling::LongRope(LongRope { long: rope.short.clone(), magnitude, ..rope.clone() })))
}

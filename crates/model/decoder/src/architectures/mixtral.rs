//! Mixtral: Mistral with experts in all layers.
//!
//! Facts: `configuration_mixtral.py`, `modeling_mixtral.py` and `conversion_mapping.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Experts};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Hyperparameters, WindowedLayers};
use crate::router::Router;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "mixtral",
    class: "Mixtral",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        norm_eps: ("rms_norm_eps", 1e-5),
        theta: 1_000_000.0,
        context: 131_072.0,
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class. The router's auxiliary loss and jitter are for training.
const OWN_KEYS: &[&str] = &[
    "num_experts",
    "num_experts_per_tok",
    "num_local_experts",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "sliding_window",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let windows = AttentionWindows { size: config.size("sliding_window")?, layers: WindowedLayers::All };
    // `num_experts` is another name of the class for `num_local_experts`, and replaces it.
    let experts = Experts {
        count: config.size("num_experts")?.or(config.size("num_local_experts")?).unwrap_or(8),
        per_token: config.size("num_experts_per_tok")?.unwrap_or(2),
        hidden: base.hidden.unwrap_or(14_336),
        router: Router::BeforeChoice,
        renormalised: true,
        beside_dense: false,
        biases: false,
        interleaved: false,
        shared: None,
        layers: config.layers().map(|_| true).collect(),
    };
    Ok(Hyperparameters { windows, block: Block { experts: Some(experts), ..base.block }, ..base })
}

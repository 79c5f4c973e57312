//! Helium: LLaMA with rotated neighbours.
//!
//! Facts: `configuration_helium.py` and `modeling_helium.py` in `transformers` 5.23.
use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "helium",
    class: "Helium",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        rotates_halves: false,
        own_keys: &["attention_bias", "mlp_bias"],
        norm_eps: ("rms_norm_eps", 1e-8),
        theta: 100_000.0,
        context: 4096.0,
        head_dim: Some(128),
        ..DEFAULTS
    },
    read_hyperparameters,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let biases = Biases {
        qkv: config.flag("attention_bias")?,
        feed_forward: config.flag("mlp_bias")?,
        ..Biases::default()
    };
    Ok(Hyperparameters { biases, ..base })
}

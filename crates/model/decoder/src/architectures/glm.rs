//! GLM-4: half of each head rotates in neighbours, and gate and up are one matrix.
//!
//! Facts: `configuration_glm.py` and `modeling_glm.py` in `transformers` 5.23.
use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "glm",
    class: "Glm",
    works_without_config: false,
    config_defaults: &GLM_DEFAULTS,
    read_hyperparameters,
};
pub(super) const GLM_DEFAULTS: ConfigDefaults = ConfigDefaults {
    rotates_halves: false,
    own_keys: &["attention_bias"],
    norm_eps: ("rms_norm_eps", 0.000_000_156_25),
    context: 131_072.0,
    head_dim: Some(128),
    partial_rotary: Some(0.5),
    ..DEFAULTS
};

/// Default of `intermediate_size`: the width is not inferred from the fused matrix.
const HIDDEN: u64 = 13_696;

pub(super) fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    // The output of attention never has a bias.
    let biases = Biases { qkv: config.flag_or("attention_bias", true)?, ..Biases::default() };
    Ok(Hyperparameters { hidden: base.hidden.or(Some(HIDDEN)), biases, ..base })
}

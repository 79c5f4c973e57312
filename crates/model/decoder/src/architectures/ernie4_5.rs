//! ERNIE 4.5: LLaMA with rotated neighbours; one setting gives all matrices biases.
//!
//! Facts: `configuration_ernie4_5.py` and `modeling_ernie4_5.py` in `transformers` 5.23.
use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "ernie4_5",
    class: "Ernie4_5",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        rotates_halves: false,
        own_keys: &["use_bias"],
        norm_eps: ("rms_norm_eps", 1e-5),
        theta: 500_000.0,
        context: 131_072.0,
        tied: true,
        ..DEFAULTS
    },
    read_hyperparameters,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let all = config.flag("use_bias")?;
    let biases = Biases { qkv: all, output: all, feed_forward: all, ..Biases::default() };
    Ok(Hyperparameters { head_dim: config.size_or("head_dim", Some(128))?, biases, ..base })
}

//! Seed-OSS: LLaMA with biases of queries, keys and values, and one of attention's output that is a setting of its own.
//!
//! Facts: `configuration_seed_oss.py` and `modeling_seed_oss.py` in `transformers` 5.23.
use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "seed_oss",
    class: "SeedOss",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["attention_bias", "attention_out_bias", "mlp_bias", "residual_dropout"],
        context: 524_288.0,
        ..DEFAULTS
    },
    read_hyperparameters,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let biases = Biases {
        qkv: config.flag_or("attention_bias", true)?,
        output: config.flag("attention_out_bias")?,
        feed_forward: config.flag("mlp_bias")?,
        ..Biases::default()
    };
    Ok(Hyperparameters { head_dim: config.size_or("head_dim", Some(128))?, biases, ..base })
}

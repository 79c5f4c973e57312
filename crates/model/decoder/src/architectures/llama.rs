//! LLaMA: Hugging Face's `LlamaForCausalLM`. `documents/params.rs` reads Meta's own files.
//!
//! Facts: `modeling_llama.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};

pub(crate) static ARCHITECTURE: Architecture = Architecture {
    name: "llama",
    class: "Llama",
    works_without_config: true,
    config_defaults: &ConfigDefaults { own_keys: OWN_KEYS, ..DEFAULTS },
    read_hyperparameters,
};

const OWN_KEYS: &[&str] = &["attention_bias", "mlp_bias"];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases {
        qkv: attention,
        output: attention,
        feed_forward: config.flag("mlp_bias")?,
        ..Biases::default()
    };
    Ok(Hyperparameters { biases, ..base })
}

//! Qwen3: LLaMA with norms of queries and keys, and an optional sliding window in upper layers.
//!
//! Facts: `configuration_qwen3.py` and `modeling_qwen3.py` in `transformers` 5.23.

use super::qwen2::{FIRST_WINDOWED_LAYER, windows};
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, HeadNormScope};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "qwen3",
    class: "Qwen3",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        context: 32_768.0,
        head_dim: Some(128),
        ..DEFAULTS
    },
    read_hyperparameters,
};

const OWN_KEYS: &[&str] =
    &["attention_bias", "use_sliding_window", "sliding_window", "max_window_layers", "layer_types"];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, feed_forward: false, ..Biases::default() };
    let block = Block { head_norm: Some(HeadNormScope::Head), ..base.block };
    Ok(Hyperparameters { windows: windows(config, FIRST_WINDOWED_LAYER)?, biases, block, ..base })
}

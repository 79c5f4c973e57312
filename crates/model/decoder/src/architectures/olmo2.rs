//! `OLMo` 2: LLaMA with norms after attention and the feed-forward layer, and with norms over whole query and key
//! projections.
//!
//! Facts: `configuration_olmo2.py` and `modeling_olmo2.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, HeadNormScope, NormPlace};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "olmo2",
    class: "Olmo2",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["attention_bias"],
        norm_eps: ("rms_norm_eps", 1e-5),
        ..DEFAULTS
    },
    read_hyperparameters,
};

pub(super) fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, feed_forward: false, ..Biases::default() };
    let block = Block { norms: NormPlace::After, head_norm: Some(HeadNormScope::Projection), ..base.block };
    Ok(Hyperparameters { biases, block, ..base })
}

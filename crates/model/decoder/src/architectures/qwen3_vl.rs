//! Qwen3-VL: a text model like Qwen3, without windows, with the same positions in all sections of a head.
//!
//! Facts: `configuration_qwen3_vl.py` and `modeling_qwen3_vl.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, HeadNormScope};
use crate::config_defaults::{ConfigDefaults, DEFAULTS, SECTIONED};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};
use crate::multimodal::{Multimodal, TextVariant};

pub(super) static QWEN3: Multimodal = Multimodal {
    architecture: &QWEN3_VL,
    texts: &[TextVariant { model_type: "qwen3_vl_text", architecture: &QWEN3_VL, heads: 32 }],
    tied: Some(false),
};

static QWEN3_VL: Architecture = Architecture {
    name: "qwen3_vl",
    class: "Qwen3VL",
    works_without_config: false,
    config_defaults: &ConfigDefaults { own_keys: &["attention_bias"], head_dim: Some(128), ..QWEN3_DEFAULTS },
    read_hyperparameters,
};

pub(super) const QWEN3_DEFAULTS: ConfigDefaults =
    ConfigDefaults { theta: 500_000.0, context: 128_000.0, scalings: SECTIONED, ..DEFAULTS };

pub(super) fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, feed_forward: false, ..Biases::default() };
    let block = Block { head_norm: Some(HeadNormScope::Head), ..base.block };
    Ok(Hyperparameters { biases, block, ..base })
}

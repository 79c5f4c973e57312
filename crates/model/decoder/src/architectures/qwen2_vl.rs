//! Qwen2-VL and Qwen2.5-VL, whose text models are alike: Qwen2, with the same positions in all sections of a head.
//!
//! Facts: `configuration_qwen2_vl.py`, `configuration_qwen2_5_vl.py` and `modeling_qwen2_5_vl.py` in `transformers` 5.23.

use super::qwen2;
use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS, SECTIONED};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};
use crate::multimodal::{Multimodal, TextVariant};

pub(super) static QWEN2: Multimodal = Multimodal {
    architecture: &QWEN2_VL,
    texts: &[TextVariant { model_type: "qwen2_vl_text", architecture: &QWEN2_VL, heads: 64 }],
    tied: Some(false),
};

pub(super) static QWEN2_5: Multimodal = Multimodal {
    architecture: &QWEN2_5_VL,
    texts: &[TextVariant { model_type: "qwen2_5_vl_text", architecture: &QWEN2_5_VL, heads: 64 }],
    tied: Some(false),
};

static QWEN2_VL: Architecture = Architecture {
    name: "qwen2_vl",
    class: "Qwen2VL",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        norm_eps: ("rms_norm_eps", 1e-5),
        theta: 1_000_000.0,
        context: 32_768.0,
        scalings: SECTIONED,
        ..DEFAULTS
    },
    read_hyperparameters,
};

static QWEN2_5_VL: Architecture = Architecture { name: "qwen2_5_vl", class: "Qwen2_5_VL", ..QWEN2_VL };

/// Keys of the configuration class, and those of the whole model, which are next to them in published files.
const OWN_KEYS: &[&str] = &[
    "image_token_id",
    "layer_types",
    "max_window_layers",
    "sliding_window",
    "use_sliding_window",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_start_token_id",
    "vision_token_id",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let biases = Biases { qkv: true, ..Biases::default() };
    // The class does not read `head_dim`.
    Ok(Hyperparameters { head_dim: None, windows: qwen2::windows(config, 80)?, biases, ..base })
}

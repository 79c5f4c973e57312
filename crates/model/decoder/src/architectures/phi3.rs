//! Phi-3 and Phi-4: LLaMA with fused query, key and value matrices and fused gate and up matrices. `LongRoPE` scales
//! wavelengths, and some models rotate only a part of each head.
//!
//! Facts: `configuration_phi3.py` and `modeling_phi3.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS, RopeScalingKind};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Hyperparameters, WindowedLayers};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "phi3",
    class: "Phi3",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        norm_eps: ("rms_norm_eps", 1e-5),
        context: 4096.0,
        original_context: Some(4096.0),
        partial_rotary: Some(1.0),
        // Older files call LongRoPE `su` or `yarn`.
        scalings: &[
            ("default", RopeScalingKind::Unscaled),
            ("longrope", RopeScalingKind::LongRope),
            ("su", RopeScalingKind::LongRope),
            ("yarn", RopeScalingKind::LongRope),
        ],
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class. The dropouts are for training, the biases must be off, and `auto_map` names older code
/// of the same model.
const OWN_KEYS: &[&str] =
    &["attention_bias", "auto_map", "embd_pdrop", "lm_head_bias", "resid_pdrop", "sliding_window"];

/// Default of `intermediate_size`: the width is not inferred from the fused gate and up matrix.
const HIDDEN: u64 = 8192;

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    // The class has no biases and ignores these keys; the biases of such a checkpoint would be unused tensors.
    config.refuse_flag("attention_bias")?;
    config.refuse_flag("lm_head_bias")?;
    let windows = AttentionWindows { size: config.size("sliding_window")?, layers: WindowedLayers::All };
    let (n_kv_heads, hidden) = (base.n_kv_heads.or(base.n_heads), base.hidden.or(Some(HIDDEN)));
    Ok(Hyperparameters { n_kv_heads, hidden, windows, ..base })
}

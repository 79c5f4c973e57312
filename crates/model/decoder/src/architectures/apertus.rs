//! Apertus: norms of each head, and a feed-forward layer without a gate whose activation xIELU has weights.
//!
//! Facts: `configuration_apertus.py` and `modeling_apertus.py` and `activations.py` in `transformers` 5.23.
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, HeadNormScope};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::documents::rope_config::ORIGINAL_CONTEXT_KEY;
use crate::feed_forward::{Activation, FeedForwardKind};
use crate::hyperparameters::{Biases, Hyperparameters};
use crate::rope::{Llama3, Rope, RopeScaling};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "apertus",
    class: "Apertus",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        norm_eps: ("rms_norm_eps", 1e-5),
        theta: 12_000_000.0,
        context: 65_536.0,
        activation: ("hidden_act", Activation::Xielu),
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of published files, of which the class reads only `attention_bias`.
const OWN_KEYS: &[&str] = &["attention_bias", "mlp_bias", "post_norm", "qk_norm"];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, ..Biases::default() };
    let rope = if config.rope_object()?.is_some() {
        base.rope
    } else {
        let usual = Llama3::with_factor(8.0);
        let old = config.number(ORIGINAL_CONTEXT_KEY)?.unwrap_or(usual.old);
        let scaling = Some(RopeScaling::Llama3(Llama3 { old, ..usual }));
        Rope { theta: ARCHITECTURE.config_defaults.theta, scaling }
    };
    let block =
        Block { head_norm: Some(HeadNormScope::Head), feed_forward: FeedForwardKind::Plain, ..base.block };
    Ok(Hyperparameters { rope, biases, block, ..base })
}

//! Hunyuan: LLaMA with norms of each head after the rotation, and a RoPE base that a factor of the file raises.
//!
//! Facts: `configuration_hunyuan_v1_dense.py` and `modeling_hunyuan_v1_dense.py` in `transformers` 5.23.
use crate::Problem;
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, HeadNormScope};
use crate::config_defaults::RopeScalingKind;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{Biases, Hyperparameters};
use crate::rope::{Rope, THETA};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "hunyuan_v1_dense",
    class: "HunYuanDenseV1",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["attention_bias"],
        norm_eps: ("rms_norm_eps", 1e-5),
        scalings: &[
            ("default", RopeScalingKind::Unscaled),
            ("linear", RopeScalingKind::Linear),
            ("yarn", RopeScalingKind::Yarn),
            ("llama3", RopeScalingKind::Llama3),
        ],
        has_layer_ropes: true,
        ..DEFAULTS
    },
    read_hyperparameters,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, ..Biases::default() };
    let rope = rope(config, &base)?;
    let block = Block { head_norm: Some(HeadNormScope::Head), head_norm_last: true, ..base.block };
    Ok(Hyperparameters { rope, biases, block, ..base })
}

/// Reads the rotary embedding. The type is `dynamic`, but with `alpha` the base does not depend on the length.
#[expect(clippy::cast_precision_loss, reason = "the size of a head is small")]
fn rope(config: &ConfigJson, base: &Hyperparameters) -> Result<Rope> {
    let inner = config.rope_object()?.unwrap_or_else(|| config.empty());
    let kind = inner.text("rope_type")?.or(inner.text("type")?);
    let alpha = if kind == Some("dynamic") { inner.nonzero_number("alpha")? } else { None };
    let Some(alpha) = alpha else {
        return config.rope_from(&inner, THETA, ARCHITECTURE.config_defaults, true);
    };
    let head_dim = base.head_dim.or_else(|| base.dim?.checked_div(base.n_heads?));
    let Some(head_dim) = head_dim.filter(|size| *size > 2) else {
        return Err(Problem::MissingKey { file: config.file, key: "head_dim".to_owned() }.into());
    };
    let theta = inner.number("rope_theta")?.or(config.number("rope_theta")?).unwrap_or(THETA);
    let dim = head_dim as f64;
    Ok(Rope { theta: theta * libm::pow(alpha, dim / (dim - 2.0)), scaling: None })
}

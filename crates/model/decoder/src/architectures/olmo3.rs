//! `OLMo` 3: `OLMo` 2 with a sliding window in most layers, whose positions are not scaled.
//!
//! Facts: `configuration_olmo3.py` and `modeling_olmo3.py` in `transformers` 5.23.
use super::gemma3::{layer_ropes, rope_of_windowed};
use super::olmo2;
use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "olmo3",
    class: "Olmo3",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["attention_bias", "layer_types", "sliding_window"],
        norm_eps: ("rms_norm_eps", 1e-5),
        theta: THETA,
        has_layer_ropes: true,
        ..DEFAULTS
    },
    read_hyperparameters,
};

const THETA: f64 = 500_000.0;

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let windows = config.windows(Some(4096), |layer| !layer.saturating_add(1).is_multiple_of(4))?;
    let theta = config.number("rope_theta")?.unwrap_or(THETA);
    // The class gives `rope_theta` to full-attention layers alone.
    let [rope, local] = layer_ropes(config, ARCHITECTURE.config_defaults, [theta, THETA])?;
    let rope_of_layer = rope_of_windowed(&windows, |windowed| Some(usize::from(windowed)));
    let facts = olmo2::read_hyperparameters(config, base)?;
    Ok(Hyperparameters { rope, more_ropes: vec![local], rope_of_layer, windows, ..facts })
}

//! `SmolLM3`: LLaMA without rotary embeddings in every fourth layer.
//!
//! Facts: `configuration_smollm3.py` and `modeling_smollm3.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "smollm3",
    class: "SmolLM3",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: OWN_KEYS,
        theta: 2_000_000.0,
        context: 32_768.0,
        tied: true,
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Keys of the configuration class, which does not read `max_window_layers`.
const OWN_KEYS: &[&str] = &[
    "attention_bias",
    "layer_types",
    "max_window_layers",
    "mlp_bias",
    "no_rope_layer_interval",
    "no_rope_layers",
    "sliding_window",
    "use_sliding_window",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases {
        qkv: attention,
        output: attention,
        feed_forward: config.flag("mlp_bias")?,
        ..Biases::default()
    };
    let interval = config.size("no_rope_layer_interval")?.unwrap_or(4);
    let by_interval =
        || config.layers().map(|layer| !layer.saturating_add(1).is_multiple_of(interval)).collect();
    let has_rope: Vec<bool> = match config.counts("no_rope_layers")? {
        Some(listed) => listed.into_iter().map(|flag| flag != 0).collect(),
        None => by_interval(),
    };
    // Layers without rotary embeddings have the window.
    let on = config.flag("use_sliding_window")? && config.get("sliding_window").is_some();
    let without = |layer: u64| usize::try_from(layer).ok().and_then(|at| has_rope.get(at)) == Some(&false);
    let windows = config.windows(None, |layer| on && without(layer))?;
    if !on && config.windowed_layers()?.is_some_and(|layers| layers.contains(&true)) {
        let expected = "true, since layer_types has \"sliding_attention\"".to_owned();
        return Err(config.invalid_value("use_sliding_window", &on, expected));
    }
    let windows = if on { windows } else { AttentionWindows::default() };
    let rope_of_layer = has_rope.into_iter().map(|has_rope| has_rope.then_some(0)).collect();
    Ok(Hyperparameters { biases, rope_of_layer: Some(rope_of_layer), windows, ..base })
}

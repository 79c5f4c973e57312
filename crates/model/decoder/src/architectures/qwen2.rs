//! Qwen2: LLaMA with biases of queries, keys and values, and an optional sliding window in upper layers.
//!
//! Facts: `configuration_qwen2.py` and `modeling_qwen2.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters, WindowedLayers};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "qwen2",
    class: "Qwen2",
    works_without_config: false,
    config_defaults: &ConfigDefaults { own_keys: OWN_KEYS, context: 32_768.0, ..DEFAULTS },
    read_hyperparameters,
};

/// Default of `sliding_window`, in tokens; below, that of `max_window_layers`.
const WINDOW: u64 = 4096;
pub(super) const FIRST_WINDOWED_LAYER: u64 = 28;

const OWN_KEYS: &[&str] = &["use_sliding_window", "sliding_window", "max_window_layers", "layer_types"];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let biases = Biases { qkv: true, ..Biases::default() };
    Ok(Hyperparameters { windows: windows(config, FIRST_WINDOWED_LAYER)?, biases, ..base })
}

/// Reads the sliding windows; `first` is the default of `max_window_layers`.
pub(super) fn windows(config: &ConfigJson, first: u64) -> Result<AttentionWindows> {
    let window = config.size_or("sliding_window", Some(WINDOW))?;
    let on = config.flag("use_sliding_window")?;
    let first = config.count("max_window_layers")?.unwrap_or(first);
    let listed = config.windowed_layers()?;
    if !on && listed.as_ref().is_some_and(|layers| layers.contains(&true)) {
        let expected = "true, since layer_types has \"sliding_attention\"".to_owned();
        return Err(config.invalid_value("use_sliding_window", &on, expected));
    }
    let layers = listed.map_or(WindowedLayers::From(first), WindowedLayers::Listed);
    Ok(AttentionWindows { size: window.filter(|_| on), layers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_window_unless_config_json_turns_it_on() {
        let windows = |text: &str| {
            ARCHITECTURE
                .read_hyperparameters(&ConfigJson::from_json(text).expect("valid"))
                .expect("valid")
                .windows
        };
        assert_eq!(windows(r#"{"sliding_window": 7}"#).size, None);
        assert_eq!(windows(r#"{"use_sliding_window": true}"#).size, Some(4096));
        let on = windows(r#"{"use_sliding_window": true, "sliding_window": 7, "max_window_layers": 0}"#);
        assert_eq!(on.size, Some(7));
        assert!(matches!(on.layers, WindowedLayers::From(0)));
    }
}

//! Mistral: LLaMA with optional sliding-window attention.
//!
//! Facts: `configuration_mistral.py` and `modeling_mistral.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Hyperparameters, WindowedLayers};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "mistral",
    class: "Mistral",
    works_without_config: false,
    config_defaults: &ConfigDefaults { own_keys: OWN_KEYS, context: 131_072.0, ..DEFAULTS },
    read_hyperparameters,
};

const OWN_KEYS: &[&str] = &["sliding_window", "layer_types"];

/// Window in tokens if config.json has no such key; `null` there means no window.
const WINDOW: u64 = 4096;

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let size = config.size_or("sliding_window", Some(WINDOW))?;
    // `MistralForCausalLM` applies the window to all layers and ignores `layer_types`.
    if size.is_some() && config.windowed_layers()?.is_some_and(|layers| layers.contains(&false)) {
        return Err(config.unsupported_key("layer_types"));
    }
    let windows = AttentionWindows { size, layers: WindowedLayers::All };
    Ok(Hyperparameters { windows, ..base })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_4096_unless_config_json_has_another() {
        let size = |text: &str| {
            ARCHITECTURE
                .read_hyperparameters(&ConfigJson::from_json(text).expect("valid"))
                .expect("valid")
                .windows
                .size
        };
        assert_eq!(size("{}"), Some(4096));
        assert_eq!(size(r#"{"sliding_window": 7}"#), Some(7));
        assert_eq!(size(r#"{"sliding_window": null}"#), None);
        let mixed = r#"{"layer_types": ["sliding_attention", "full_attention"]}"#;
        let error = ARCHITECTURE
            .read_hyperparameters(&ConfigJson::from_json(mixed).expect("valid"))
            .expect_err("not Mistral's")
            .to_string();
        assert_eq!(error, "config.json: `layer_types` changes the result and is not supported");
    }
}

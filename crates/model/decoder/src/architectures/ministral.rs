//! Ministral: Mistral with a sliding window in only some layers.
//!
//! Facts: `configuration_ministral.py` and `modeling_ministral.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "ministral",
    class: "Ministral",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["layer_types", "sliding_window"],
        context: 131_072.0,
        ..DEFAULTS
    },
    read_hyperparameters,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    // Without `layer_types`, all layers have the window, or none if `sliding_window` is null.
    let has_window = config.get("sliding_window").is_some() || !config.has("sliding_window");
    Ok(Hyperparameters { windows: config.windows(Some(4096), |_| has_window)?, ..base })
}

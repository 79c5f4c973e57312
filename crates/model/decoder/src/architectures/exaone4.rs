//! EXAONE 4: norms after attention and the feed-forward layer and of each head, and positions in sliding-window layers only.
//!
//! Facts: `configuration_exaone4.py` and `modeling_exaone4.py` in `transformers` 5.23.
use super::gemma3::rope_of_windowed;
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, HeadNormScope, NormPlace};
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Hyperparameters};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "exaone4",
    class: "Exaone4",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["layer_types", "sliding_window", "sliding_window_pattern"],
        norm_eps: ("rms_norm_eps", 1e-5),
        ..DEFAULTS
    },
    read_hyperparameters,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let size = config.size_or("sliding_window", Some(4096))?;
    let windows = if size.is_some() {
        // A pattern of letters is repeated as `layer_types`.
        let is_listed = config.get("layer_types").is_some();
        let pattern = if is_listed { None } else { config.size("sliding_window_pattern")? }.unwrap_or(4);
        config.windows(size, |layer| !layer.saturating_add(1).is_multiple_of(pattern))?
    } else {
        AttentionWindows::default()
    };
    // Without a window, all layers have positions.
    let rope_of_layer = size.and_then(|_| rope_of_windowed(&windows, |windowed| windowed.then_some(0)));
    let block = Block { norms: NormPlace::After, head_norm: Some(HeadNormScope::Head), ..base.block };
    Ok(Hyperparameters { windows, block, rope_of_layer, ..base })
}

//! Gemma 3's text model: Gemma 2 without a soft cap of attention scores, with norms of queries and keys, and with another
//! RoPE base in sliding-window layers.
//!
//! Facts: `configuration_gemma3.py` and `modeling_gemma3.py` in `transformers` 5.23.

use super::gemma::GEMMA;
use super::gemma2::apply_gemma2_block;
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, HeadNormScope};
use crate::config_defaults::ConfigDefaults;
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Hyperparameters, WindowedLayers};
use crate::rope::Rope;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "gemma3_text",
    class: "Gemma3",
    works_without_config: false,
    config_defaults: &CONFIG,
    read_hyperparameters,
};

const CONFIG: ConfigDefaults = ConfigDefaults {
    own_keys: OWN_KEYS,
    theta: 1_000_000.0,
    context: 131_072.0,
    has_layer_ropes: true,
    ..GEMMA
};

/// Default RoPE base of sliding-window layers.
const LOCAL_THETA: f64 = 10_000.0;

/// Default interval of full-attention layers: every sixth layer.
const FULL_ATTENTION_INTERVAL: u64 = 6;

/// Keys of the configuration class. `cache_implementation` selects a cache type, which does not change results, and
/// `_sliding_window_pattern` repeats `layer_types`. The class has `attn_logit_softcapping` too, but no layer applies it, so
/// that a note names it as unused.
const OWN_KEYS: &[&str] = &[
    "_sliding_window_pattern",
    "attention_bias",
    "cache_implementation",
    "final_logit_softcapping",
    "layer_types",
    "query_pre_attn_scalar",
    "rope_local_base_freq",
    "sliding_window",
    "sliding_window_pattern",
    "use_bidirectional_attention",
];

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let pattern = config.size("sliding_window_pattern")?.unwrap_or(FULL_ATTENTION_INTERVAL);
    let sees_all = |layer: u64| layer.saturating_add(1).is_multiple_of(pattern);
    let windows = config.windows(Some(4096), |layer| !sees_all(layer))?;
    let facts = apply_gemma2_block(config, base, None)?;
    let theta = config.number("rope_theta")?.unwrap_or(CONFIG.theta);
    let local = config.number("rope_local_base_freq")?.unwrap_or(LOCAL_THETA);
    let [rope, local] = layer_ropes(config, &CONFIG, [theta, local])?;
    let rope_of_layer = rope_of_windowed(&windows, |windowed| Some(usize::from(windowed)));
    let block = Block { head_norm: Some(HeadNormScope::Head), ..facts.block };
    Ok(Hyperparameters { block, rope, more_ropes: vec![local], rope_of_layer, windows, ..facts })
}

/// Returns the rotary embedding of each layer, by whether it has a window.
pub(super) fn rope_of_windowed(
    windows: &AttentionWindows,
    rope: impl Fn(bool) -> Option<usize>,
) -> Option<Vec<Option<usize>>> {
    match &windows.layers {
        WindowedLayers::Listed(layers) => Some(layers.iter().map(|windowed| rope(*windowed)).collect()),
        _ => None,
    }
}

/// Reads the rotary embeddings of full-attention layers and of sliding-window layers, in this order. `rope_parameters` has
/// an object for each; older files have `rope_scaling` for full-attention layers. `theta` has the bases without such objects.
pub(super) fn layer_ropes(config: &ConfigJson, class: &ConfigDefaults, theta: [f64; 2]) -> Result<[Rope; 2]> {
    let parameters = config.object("rope_parameters")?;
    let [mut full, sliding] = [parameters.object("full_attention")?, parameters.object("sliding_attention")?];
    if let Some(other) =
        parameters.map.keys().find(|key| !["full_attention", "sliding_attention"].contains(&key.as_str()))
    {
        return Err(parameters.unsupported_key(other));
    }
    let scaling = config.object("rope_scaling")?;
    // The class has a `rope_type` of its own, `default`, which only `rope_type` replaces. Older versions applied `type`.
    let old_type = scaling.text("type")?.filter(|kind| *kind != "default");
    if let (Some(found), None) = (old_type, scaling.get("rope_type")) {
        let expected =
            "the kind of scaling in `rope_scaling.rope_type`, because `transformers` ignores `type` here";
        return Err(scaling.invalid_value("type", &format!("{found:?}"), expected.to_owned()));
    }
    full.map.extend(scaling.map);
    for object in [&full, &sliding] {
        if object.number("partial_rotary_factor")?.is_some_and(|part| part < 1.0) {
            return Err(object.unsupported_key("partial_rotary_factor"));
        }
    }
    let [of_full, of_sliding] = theta;
    Ok([
        config.rope_from(&full, of_full, class, false)?,
        config.rope_from(&sliding, of_sliding, class, false)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Hyperparameters> {
        let config = ConfigJson::from_json(text).expect("valid JSON").with_layers(2);
        ARCHITECTURE.read_hyperparameters(&config)
    }

    #[test]
    fn only_logits_have_a_soft_cap() {
        let facts =
            read(r#"{"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}"#).expect("valid");
        assert_eq!(facts.block.scores.soft_cap, None);
        assert_eq!(facts.block.scales.logits_soft_cap, Some(30.0));
        let notes: Vec<String> = facts.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes, ["config.json: `attn_logit_softcapping` is not used"]);
        assert!(read(r#"{"attn_logit_softcapping": null}"#).expect("valid").notes.is_empty());
    }

    #[test]
    fn a_scaling_that_only_older_versions_apply_is_refused() {
        let llama3 = r#""factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0"#;
        for more in ["", r#", "rope_parameters": {"full_attention": {"rope_type": "default"}}"#] {
            let error = read(&format!(r#"{{"rope_scaling": {{"type": "llama3", {llama3}}}{more}}}"#));
            assert_eq!(
                error.expect_err("not applied").to_string(),
                "config.json: `rope_scaling.type` is \"llama3\", expected the kind of scaling in `rope_scaling.rope_type`, \
                 because `transformers` ignores `type` here"
            );
        }
        let read = |scaling: &str| read(&format!(r#"{{"rope_scaling": {{{scaling}}}}}"#)).expect("valid");
        assert!(read(&format!(r#""rope_type": "llama3", {llama3}"#)).rope.scaling.is_some());
        assert!(read(r#""type": "dynamic", "rope_type": "linear", "factor": 8.0"#).rope.scaling.is_some());
        assert!(read(r#""type": "default""#).rope.scaling.is_none());
    }
}

//! Model types whose blocks no forward has, and what these blocks are.
//!
//! Facts: the modeling files of `transformers` 5.23.

const MISSING: &[(&str, &[&str])] = &[
    ("AltUp streams and inputs for each layer", &["gemma3n", "gemma3n_text"]),
    ("short convolutions", &["lfm2", "lfm2_moe", "lfm2_vl"]),
    (
        "multi-head latent attention",
        &["deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "kimi_k2", "kimi_k25"],
    ),
    ("delta attention with a decay of each channel", &["kimi_linear"]),
    ("Mamba layers", &["falcon_h1", "granitemoehybrid", "mamba", "mamba2", "nemotron_h"]),
    ("attention in chunks", &["llama4", "llama4_text"]),
];

/// Returns the blocks that decoders lack for a model type; `None` for a type that is not in the table.
pub(crate) fn missing_blocks(model_type: &str) -> Option<&'static str> {
    MISSING.iter().find(|(_, types)| types.contains(&model_type)).map(|(blocks, _)| *blocks)
}

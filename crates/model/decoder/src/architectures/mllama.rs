//! Llama 3.2 Vision: LLaMA with layers that look at a picture. Text does not go through these layers.
//!
//! Facts: `configuration_mllama.py` and `modeling_mllama.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;
use crate::multimodal::{Multimodal, TextVariant};

pub(super) static MLLAMA: Multimodal = Multimodal {
    architecture: &ARCHITECTURE,
    texts: &[TextVariant { model_type: "mllama_text_model", architecture: &ARCHITECTURE, heads: 32 }],
    tied: None,
};

static ARCHITECTURE: Architecture = Architecture {
    name: "mllama",
    class: "Mllama",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["cross_attention_layers", "dropout"],
        norm_eps: ("rms_norm_eps", 1e-5),
        theta: 500_000.0,
        context: 131_072.0,
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Default of `cross_attention_layers`.
const LOOKING: [u64; 8] = [3, 8, 13, 18, 23, 28, 33, 38];

/// Number of embeddings beyond the vocabulary; one of them stands for a picture.
const PICTURES: u64 = 8;

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let looking = config.counts("cross_attention_layers")?.unwrap_or(LOOKING.to_vec());
    let skipped_layers = config.layers().filter(|layer| looking.contains(layer)).collect();
    // The class does not read `head_dim`.
    Ok(Hyperparameters { head_dim: None, skipped_layers, other_embeddings: PICTURES, ..base })
}

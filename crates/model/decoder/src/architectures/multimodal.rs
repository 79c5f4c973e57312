//! Models with a text model of another architecture: Gemma 3, Mistral Small 3 and `LLaVA`.
//!
//! Facts: `configuration_gemma3.py`, `configuration_mistral3.py` and `configuration_llava.py`, and `modeling_gemma3.py`, in
//! `transformers` 5.23.

use super::{gemma3, llama, ministral3, mistral, qwen2};
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Scales};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;
use crate::multimodal::{Multimodal, TextVariant};

pub(super) static GEMMA3: Multimodal = Multimodal {
    architecture: &Architecture {
        name: "gemma3",
        class: "Gemma3",
        read_hyperparameters: gemma3_hyperparameters,
        ..gemma3::ARCHITECTURE
    },
    texts: &[TextVariant { model_type: "gemma3_text", architecture: &GEMMA3_TEXT, heads: 8 }],
    tied: Some(true),
};

static GEMMA3_TEXT: Architecture =
    Architecture { read_hyperparameters: gemma3_hyperparameters, ..gemma3::ARCHITECTURE };

/// Reads the text model; the class with a tower does not cap its logits.
fn gemma3_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let facts = (gemma3::ARCHITECTURE.read_hyperparameters)(config, base)?;
    let scales = Scales { logits_soft_cap: None, ..facts.block.scales };
    Ok(Hyperparameters { block: Block { scales, ..facts.block }, ..facts })
}

pub(super) static MISTRAL3: Multimodal = Multimodal {
    architecture: &Architecture { name: "mistral3", class: "Mistral3", ..mistral::ARCHITECTURE },
    texts: &[
        TextVariant { model_type: "mistral", architecture: &mistral::ARCHITECTURE, heads: 32 },
        TextVariant { model_type: "ministral3", architecture: &ministral3::ARCHITECTURE, heads: 32 },
    ],
    tied: Some(true),
};

pub(super) static LLAVA: Multimodal = Multimodal {
    architecture: &Architecture {
        name: "llava",
        class: "Llava",
        works_without_config: false,
        ..llama::ARCHITECTURE
    },
    texts: &[
        TextVariant { model_type: "llama", architecture: &llama::ARCHITECTURE, heads: 32 },
        TextVariant { model_type: "mistral", architecture: &mistral::ARCHITECTURE, heads: 32 },
        TextVariant { model_type: "qwen2", architecture: &qwen2::ARCHITECTURE, heads: 32 },
    ],
    tied: Some(false),
};

//! Qwen3.5: layers like those of Qwen3-Next, with the projections of `DeltaNet` apart, and a dense feed-forward layer or
//! experts whose weights always add up to 1; alone, or the text model of a folder with a tower.
//!
//! Facts: `configuration_qwen3_5.py`, `modeling_qwen3_5.py`, `configuration_qwen3_5_moe.py` and `modeling_qwen3_5_moe.py` in
//! `transformers` 5.23.

use super::{qwen3_moe, qwen3_next};
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, Experts};
use crate::config_defaults::{ConfigDefaults, SECTIONED};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;
use crate::multimodal::{Multimodal, TextVariant};

pub(super) static DENSE: Architecture = Architecture {
    name: "qwen3_5_text",
    class: "Qwen3_5",
    works_without_config: false,
    config_defaults: &DEFAULTS,
    read_hyperparameters: dense,
};

pub(super) static MOE: Architecture =
    Architecture { name: "qwen3_5_moe_text", class: "Qwen3_5Moe", read_hyperparameters: moe, ..DENSE };

pub(super) static DENSE_WITH_TOWER: Multimodal = Multimodal {
    architecture: &DENSE_TEXT,
    texts: &[TextVariant { model_type: "qwen3_5_text", architecture: &DENSE_TEXT, heads: 16 }],
    tied: Some(false),
};

pub(super) static MOE_WITH_TOWER: Multimodal = Multimodal {
    architecture: &MOE_TEXT,
    texts: &[TextVariant { model_type: "qwen3_5_moe_text", architecture: &MOE_TEXT, heads: 16 }],
    tied: Some(false),
};

static DENSE_TEXT: Architecture = Architecture { name: "qwen3_5", ..DENSE };
static MOE_TEXT: Architecture = Architecture { name: "qwen3_5_moe", ..MOE };

const DEFAULTS: ConfigDefaults =
    ConfigDefaults { own_keys: qwen3_next::OWN_KEYS, scalings: SECTIONED, ..qwen3_next::TEXT_DEFAULTS };

fn dense(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let hidden = base.hidden.or(Some(12_288));
    qwen3_next::mixed(config, Hyperparameters { hidden, ..base }, 4, false)
}

fn moe(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let facts = qwen3_next::mixed(config, base, 2, false)?;
    let count = config.size("num_experts")?.unwrap_or(256);
    let experts = qwen3_next::with_shared(config, qwen3_moe::experts(config, count, [8, 512])?)?;
    let layers = config.layers().map(|_| true).collect();
    let experts = Experts { renormalised: true, layers, ..experts };
    Ok(Hyperparameters { block: Block { experts: Some(experts), ..facts.block }, ..facts })
}

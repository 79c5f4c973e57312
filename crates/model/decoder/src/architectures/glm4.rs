//! GLM-4-0414: GLM-4 with norms before and after attention and the feed-forward layer.
//!
//! Facts: `configuration_glm4.py` and `modeling_glm4.py` in `transformers` 5.23.
use super::glm::{self, GLM_DEFAULTS};
use crate::Result;
use crate::architecture::Architecture;
use crate::block::{Block, NormPlace};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "glm4",
    class: "Glm4",
    works_without_config: false,
    config_defaults: &GLM_DEFAULTS,
    read_hyperparameters,
};

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let facts = glm::read_hyperparameters(config, base)?;
    Ok(Hyperparameters { block: Block { norms: NormPlace::Both, ..facts.block }, ..facts })
}

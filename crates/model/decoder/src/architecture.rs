//! A model architecture: its names, its layouts, and the reader of its `config.json`.

use std::fmt;

use crate::Result;
use crate::config_defaults::ConfigDefaults;
use crate::documents::config::ConfigJson;
use crate::hyperparameters::Hyperparameters;
use crate::layout::{LayoutOwner, TensorNames};

/// A model architecture with a forward implementation.
pub struct Architecture {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    /// True if tensor names and shapes suffice to build the decoder without a config.json.
    pub(crate) works_without_config: bool,
    /// Defaults of the configuration class for keys that config.json omits.
    pub(crate) config_defaults: &'static ConfigDefaults,
    /// Completes the facts common to all architectures with those of this architecture's config.json.
    pub(crate) read_hyperparameters: fn(&ConfigJson, Hyperparameters) -> Result<Hyperparameters>,
}

impl Architecture {
    /// Returns the name, which is also `model_type` in config.json, such as `llama`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the class of the module, such as `Llama`.
    pub fn class(&self) -> &'static str {
        self.class
    }
}

impl Architecture {
    /// Returns true if the layout has names for models of this architecture.
    pub(crate) fn has_layout(&self, wanted: LayoutOwner) -> bool {
        wanted == LayoutOwner::HuggingFace || self.name == "llama"
    }

    /// Returns the forms of the names that files with Hugging Face's layout have, the usual one first.
    pub(crate) fn forms(&self) -> Vec<TensorNames> {
        TensorNames::hugging_face(self.name)
    }

    /// Reads the facts that a config.json of this architecture states.
    ///
    /// # Errors
    /// Returns an error if a value is not one that models of this architecture have.
    pub(crate) fn read_hyperparameters(&self, config: &ConfigJson) -> Result<Hyperparameters> {
        (self.read_hyperparameters)(config, config.common_hyperparameters(self.config_defaults)?)
    }
}

impl fmt::Debug for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

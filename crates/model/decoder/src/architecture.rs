//! An architecture: its names, and what its `config.json` means.

use std::fmt;

use crate::Result;
use crate::class::Class;
use crate::documents::config::Config;
use crate::facts::Facts;
use crate::layout::Layout;

/// A model architecture that has a forward.
pub struct Architecture {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    /// Whether names and shapes say enough about it when there is no config.json.
    pub(crate) works_without_config: bool,
    /// The layouts that its checkpoints can have.
    pub(crate) layouts: &'static [&'static Layout],
    /// What its configuration class has for keys that config.json omits.
    pub(crate) config: &'static Class,
    /// What its config.json says, from the facts that all architectures state alike.
    pub(crate) facts: fn(&Config, Facts) -> Result<Facts>,
}

impl Architecture {
    /// Its name, which is also `model_type` in its config.json, such as `llama`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The class of its module, such as `Llama`.
    pub fn class(&self) -> &'static str {
        self.class
    }
}

impl Architecture {
    /// Whether its checkpoints can have the names of this maker.
    pub(crate) fn has_layout(&self, wanted: &Layout) -> bool {
        self.layouts.iter().any(|layout| layout.is(wanted))
    }

    /// What a config.json of this architecture says.
    ///
    /// # Errors
    /// When a value in it is not one that models of this architecture have.
    pub(crate) fn facts(&self, config: &Config) -> Result<Facts> {
        (self.facts)(config, config.facts(self.config)?)
    }
}

impl fmt::Debug for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

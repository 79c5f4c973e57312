//! Builder for a check that every tensor of a model is there.

use byte_source::{Location, Observer};
use inspect::{CheckOptions, CheckReport};

use crate::Result;

/// Returns a check of the folder, carton or file at `input`, which [`Check::run`] starts.
pub fn check(input: impl Into<Location>) -> Check {
    Check::new(input)
}

/// A check that has not started.
#[derive(Clone, Debug)]
#[must_use = "a check starts with `run`"]
pub struct Check {
    options: CheckOptions,
}

impl Check {
    /// Creates a check of a folder with a `config.json`, of a carton, or of a file with a `config.json` next to it.
    pub fn new(input: impl Into<Location>) -> Self {
        Self { options: CheckOptions::new(input) }
    }

    /// Reads the headers, and compares them with the configuration.
    ///
    /// # Errors
    /// When there is no configuration, or one of a model that is not known; when a file cannot be read or is damaged; or when
    /// `observer` stops the work.
    pub fn run(&self, observer: &dyn Observer) -> Result<CheckReport> {
        inspect::check(&self.options, observer)
    }
}

impl From<CheckOptions> for Check {
    fn from(options: CheckOptions) -> Self {
        Self { options }
    }
}

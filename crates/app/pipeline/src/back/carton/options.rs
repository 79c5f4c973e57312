//! Options of a conversion into a carton.

use std::path::PathBuf;

use torchscript::{OnInvalidInput, ScriptOptions};

use crate::model::ModelOptions;

/// Options for writing a carton.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct CartonOptions {
    pub fields: CartonFields,
    /// TOML file with more fields of carton.toml.
    pub config: Option<PathBuf>,
    /// Files to keep in `misc/`, besides the companions of the checkpoint.
    pub misc: Vec<PathBuf>,
    /// True to store the values that are not tensors in `misc/checkpoint.json`.
    pub keep_values: bool,
    /// True to store a self test: tokens, and the expected logits if the weights are float32 or float64.
    pub self_test: bool,
    /// PyTorch version that the carton requires.
    pub torch: RequiredTorch,
    pub model: ModelOptions,
    /// True to return an error if the module is not a model that runs.
    pub require_model: bool,
    /// Behaviour of the module for invalid inputs.
    pub errors: OnInvalidInput,
    /// Options for calling an input that is a TorchScript module.
    pub script: ScriptOptions,
    /// True if the output is a carton only by default. A note reports this if the output path has the extension of another
    /// format.
    pub assumed: bool,
}

impl Default for CartonOptions {
    fn default() -> Self {
        Self {
            fields: CartonFields::default(),
            config: None,
            misc: Vec::new(),
            keep_values: true,
            self_test: false,
            torch: RequiredTorch::default(),
            model: ModelOptions::default(),
            require_model: false,
            errors: OnInvalidInput::default(),
            script: ScriptOptions::default(),
            assumed: false,
        }
    }
}

impl CartonOptions {
    /// Sets the fields of carton.toml.
    #[must_use]
    pub fn fields(self, fields: CartonFields) -> Self {
        Self { fields, ..self }
    }

    /// Reads further fields of carton.toml from a TOML file.
    #[must_use]
    pub fn config(self, path: impl Into<PathBuf>) -> Self {
        Self { config: Some(path.into()), ..self }
    }

    /// Adds a file to keep in `misc/`.
    #[must_use]
    pub fn misc(mut self, path: impl Into<PathBuf>) -> Self {
        self.misc.push(path.into());
        self
    }

    /// Leaves out `misc/checkpoint.json`, which contains the values that are not tensors.
    #[must_use]
    pub fn without_values(self) -> Self {
        Self { keep_values: false, ..self }
    }

    /// Stores a self test in the carton.
    #[must_use]
    pub fn self_test(self) -> Self {
        Self { self_test: true, ..self }
    }

    /// Sets the PyTorch version that the carton requires.
    #[must_use]
    pub fn torch(self, torch: RequiredTorch) -> Self {
        Self { torch, ..self }
    }

    /// Sets the architecture and the treatment of unused tensors.
    #[must_use]
    pub fn model(self, model: ModelOptions) -> Self {
        Self { model, ..self }
    }

    /// Returns an error for any module that is not a model that runs.
    #[must_use]
    pub fn require_model(self) -> Self {
        Self { require_model: true, ..self }
    }

    /// Sets the behaviour of the module for invalid inputs.
    #[must_use]
    pub fn errors(self, errors: OnInvalidInput) -> Self {
        Self { errors, ..self }
    }

    /// Sets the options for calling a TorchScript module.
    #[must_use]
    pub fn script(self, script: ScriptOptions) -> Self {
        Self { script, ..self }
    }
}

/// Descriptive fields of carton.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CartonFields {
    /// Name of the model; `None` for the stem of the file, or the name of the folder.
    pub name: Option<String>,
    /// Description in Markdown, of any length.
    pub description: Option<String>,
    /// Short description of at most 100 characters.
    pub short_description: Option<String>,
    /// License, as an SPDX expression or free text.
    pub license: Option<String>,
    /// URL of the repository that packs the model.
    pub repository: Option<String>,
    /// URL of the model's home page.
    pub homepage: Option<String>,
}

impl CartonFields {
    /// Sets the name of the model.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Sets the description, Markdown of any length.
    #[must_use]
    pub fn description(self, text: impl Into<String>) -> Self {
        Self { description: Some(text.into()), ..self }
    }

    /// Sets the short description, of at most 100 characters.
    #[must_use]
    pub fn short_description(self, text: impl Into<String>) -> Self {
        Self { short_description: Some(text.into()), ..self }
    }

    /// Sets the license: an SPDX expression or free text.
    #[must_use]
    pub fn license(self, license: impl Into<String>) -> Self {
        Self { license: Some(license.into()), ..self }
    }

    /// Sets the URL of the repository that packs the model.
    #[must_use]
    pub fn repository(self, url: impl Into<String>) -> Self {
        Self { repository: Some(url.into()), ..self }
    }

    /// Sets the URL of the model's home page.
    #[must_use]
    pub fn homepage(self, url: impl Into<String>) -> Self {
        Self { homepage: Some(url.into()), ..self }
    }
}

/// PyTorch version that a carton requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequiredTorch {
    /// Version 2.0, which Carton's runner has.
    #[default]
    Carton,
    /// Version 2.15 or newer, which loads every dtype.
    Newest,
}

impl RequiredTorch {
    /// Returns the version requirement for `carton.toml`.
    pub fn required_version(self) -> &'static str {
        match self {
            Self::Carton => "=2.0",
            Self::Newest => ">=2.15",
        }
    }
}

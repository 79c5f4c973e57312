//! What a conversion into a carton is asked for.

use std::path::PathBuf;

use torchscript::{Errors, ScriptOptions};

use crate::model::ModelOptions;

/// How a carton is made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct CartonOptions {
    /// Fields of carton.toml.
    pub fields: Fields,
    /// A TOML file with more fields of carton.toml.
    pub config: Option<PathBuf>,
    /// Files to keep in `misc/`, besides those next to the checkpoint.
    pub misc: Vec<PathBuf>,
    /// Whether the values that are not tensors are kept in `misc/checkpoint.json`.
    pub keep_values: bool,
    /// Whether a self test is stored: tokens, and the logits of a model with float32 or float64 weights.
    pub self_test: bool,
    /// The PyTorch that the carton requires.
    pub torch: Torch,
    /// Which model the tensors are.
    pub model: ModelOptions,
    /// Whether anything but a model that runs is an error.
    pub require_model: bool,
    /// What the module does with wrong inputs.
    pub errors: Errors,
    /// How a TorchScript module is called.
    pub script: ScriptOptions,
    /// Whether the output is a carton only because nothing names another kind. A note says so if it has the extension of
    /// another format.
    pub assumed: bool,
}

impl Default for CartonOptions {
    fn default() -> Self {
        Self {
            fields: Fields::default(),
            config: None,
            misc: Vec::new(),
            keep_values: true,
            self_test: false,
            torch: Torch::default(),
            model: ModelOptions::default(),
            require_model: false,
            errors: Errors::default(),
            script: ScriptOptions::default(),
            assumed: false,
        }
    }
}

impl CartonOptions {
    /// Sets the fields of carton.toml.
    #[must_use]
    pub fn fields(self, fields: Fields) -> Self {
        Self { fields, ..self }
    }

    /// Reads more fields of carton.toml from a TOML file.
    #[must_use]
    pub fn config(self, path: impl Into<PathBuf>) -> Self {
        Self { config: Some(path.into()), ..self }
    }

    /// Keeps one more file in `misc/`.
    #[must_use]
    pub fn misc(mut self, path: impl Into<PathBuf>) -> Self {
        self.misc.push(path.into());
        self
    }

    /// Leaves out `misc/checkpoint.json`, which has the values that are not tensors.
    #[must_use]
    pub fn without_values(self) -> Self {
        Self { keep_values: false, ..self }
    }

    /// Stores a self test.
    #[must_use]
    pub fn self_test(self) -> Self {
        Self { self_test: true, ..self }
    }

    /// Sets the PyTorch that the carton requires.
    #[must_use]
    pub fn torch(self, torch: Torch) -> Self {
        Self { torch, ..self }
    }

    /// Sets which model the tensors are.
    #[must_use]
    pub fn model(self, model: ModelOptions) -> Self {
        Self { model, ..self }
    }

    /// Makes anything but a model that runs an error.
    #[must_use]
    pub fn require_model(self) -> Self {
        Self { require_model: true, ..self }
    }

    /// Sets what the module does with wrong inputs.
    #[must_use]
    pub fn errors(self, errors: Errors) -> Self {
        Self { errors, ..self }
    }

    /// Sets how a TorchScript module is called.
    #[must_use]
    pub fn script(self, script: ScriptOptions) -> Self {
        Self { script, ..self }
    }
}

/// Fields of carton.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fields {
    /// The model's name; `None` for the stem of the file, or the name of the folder.
    pub name: Option<String>,
    /// Markdown of any length.
    pub description: Option<String>,
    /// At most 100 characters.
    pub short_description: Option<String>,
    /// An SPDX expression or free text.
    pub license: Option<String>,
    /// URL of the repository that packs the model.
    pub repository: Option<String>,
    /// URL of the model's home page.
    pub homepage: Option<String>,
}

impl Fields {
    /// Sets the model's name.
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

/// The PyTorch that a carton requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Torch {
    /// 2.0, which Carton's runner has.
    #[default]
    Carton,
    /// 2.15 or newer, which loads every dtype.
    Newest,
}

impl Torch {
    /// The version that `carton.toml` requires.
    pub fn required_version(self) -> &'static str {
        match self {
            Self::Carton => "=2.0",
            Self::Newest => ">=2.15",
        }
    }
}

//! Options of a conversion into a carton.

use std::path::PathBuf;

use open::path_json;
use serde::{Deserialize, Serialize};
use torchscript::{OnInvalidInput, ScriptOptions};

use crate::options::model_options::ModelOptions;

/// Options for writing a carton.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct CartonOptions {
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub fields: CartonFields,
    /// Fields for carton.toml; options override them
    #[serde(with = "path_json::option")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE.toml", value_hint = clap::ValueHint::FilePath))]
    pub config: Option<PathBuf>,
    /// A file to keep in misc/, or next to safetensors in a folder; repeatable
    #[serde(with = "path_json::list")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath))]
    pub misc: Vec<PathBuf>,
    /// Omit misc/checkpoint.json, which keeps the values that are not tensors
    #[cfg_attr(feature = "cli", arg(long))]
    pub no_values: bool,
    /// Store a self test in the carton: tokens and, if the weights are float32 or float64, the logits that are expected
    #[cfg_attr(feature = "cli", arg(long))]
    pub self_test: bool,
    /// The PyTorch that the carton requires: Carton's own, or the newest, which loads uint16 and wider, float8 and
    /// float4
    #[cfg_attr(feature = "cli", arg(long, value_name = "VERSION", default_value = "carton"))]
    pub torch: RequiredTorch,
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub model: ModelOptions,
    /// Fail unless the output is a model that runs
    #[cfg_attr(feature = "cli", arg(long))]
    pub require_model: bool,
    /// What a module does with wrong inputs: returns the message as `error`, or raises an exception, which ends Carton's
    /// runner; one for Triton raises always
    #[cfg_attr(feature = "cli", arg(long, value_name = "HOW", default_value = "return"))]
    pub errors: OnInvalidInput,
    /// Options for calling an input that is a TorchScript module.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub script: ScriptOptions,
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
        Self { no_values: true, ..self }
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct CartonFields {
    /// The model's name [default: the file's stem, or its folder for names like model.pt]
    #[cfg_attr(feature = "cli", arg(long))]
    pub name: Option<String>,
    /// The model's description, in Markdown
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub description: Option<String>,
    /// A description of at most 100 characters
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub short_description: Option<String>,
    /// The model's license, as an SPDX expression if there is one
    #[cfg_attr(feature = "cli", arg(long, value_name = "SPDX"))]
    pub license: Option<String>,
    /// URL of the repository that packs the model
    #[cfg_attr(feature = "cli", arg(long, value_name = "URL"))]
    pub repository: Option<String>,
    /// URL of the model's home page
    #[cfg_attr(feature = "cli", arg(long, value_name = "URL"))]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum RequiredTorch {
    /// 2.0, which Carton's runner has
    #[default]
    Carton,
    /// 2.15 or newer; no runner of Carton has it yet
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

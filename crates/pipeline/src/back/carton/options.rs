//! What a conversion into a carton is asked for.

use std::path::PathBuf;

use torchscript::{Errors, ScriptOptions};

use crate::model::ModelOptions;

/// How a carton is made.
#[derive(Clone, Debug, PartialEq)]
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

/// Fields of carton.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

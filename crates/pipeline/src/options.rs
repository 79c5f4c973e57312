//! What a conversion is asked for.

use std::path::PathBuf;

use store::IfExists;

use crate::{Cast, ModelOptions, Names, OutputKind, Rename, Selection, Ties};

/// What to convert, and into what.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct ConvertOptions {
    /// A checkpoint, a folder that holds one, or all shards of one.
    pub inputs: Vec<PathBuf>,
    /// The file or folder to write; `None` for [`default_output`](crate::default_output).
    pub output: Option<PathBuf>,
    /// The kind of output; `None` for that of the output's extension, and a carton if that says nothing.
    pub to: Option<OutputKind>,
    /// What happens to a file that exists at the output.
    pub if_exists: IfExists,
    /// Whether a shard is converted alone.
    pub single: bool,
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
    /// Which globals a pickle may name.
    pub globals: AllowedGlobals,
    /// What the module is.
    pub model: ModelOptions,
    /// Which tensors, under which names.
    pub selection: Selection,
    /// What is replaced in the names of the selected tensors, one after the other.
    pub renames: Vec<Rename>,
    /// Whose names and documents a language model gets; `None` for those that it has.
    pub names: Option<Names>,
    /// Tensors of which dtypes become which.
    pub casts: Vec<Cast>,
    /// How safetensors files are written.
    pub safetensors: SafetensorsOptions,
    /// Whether to stop before anything is written.
    pub dry_run: bool,
}

impl ConvertOptions {
    /// Converts the checkpoint at `input`.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self {
            inputs: vec![input.into()],
            output: None,
            to: None,
            if_exists: IfExists::default(),
            single: false,
            fields: Fields::default(),
            config: None,
            misc: Vec::new(),
            keep_values: true,
            self_test: false,
            torch: Torch::default(),
            globals: AllowedGlobals::default(),
            model: ModelOptions::default(),
            selection: Selection::default(),
            renames: Vec::new(),
            names: None,
            casts: Vec::new(),
            safetensors: SafetensorsOptions::default(),
            dry_run: false,
        }
    }

    /// Whether the output has to be a folder, because it consists of several files.
    pub(crate) fn needs_folder(&self) -> bool {
        self.safetensors.max_shard_size.is_some() || self.names.is_some()
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

/// How safetensors files are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SafetensorsOptions {
    /// What is written of tensors that are the same memory.
    pub ties: Ties,
    /// The most bytes of tensors in one file; `None` for one file. A larger tensor has a file of its own.
    pub max_shard_size: Option<u64>,
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

/// Which globals a pickle may name. None of them is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowedGlobals {
    /// Only those that this crate knows.
    Known,
    /// All but those that can run code.
    #[default]
    NotDangerous,
    /// All.
    All,
}

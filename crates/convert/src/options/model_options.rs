//! Choice of the module for a checkpoint: a model that runs, or weights, depending on the documents next to it and the
//! options.

use std::fmt;
use std::str::FromStr;

use decoder::{NoModelReason, Overrides};
use open::files::ShardPolicy;
use open::{Model, in_checkpoint, lone_shard};
use serde::{Deserialize, Serialize};
use tensor::Tensors;
use torchscript::{Module, ModuleCode, OnInvalidInput};

use crate::{InvalidOption, Problem, Result};

/// Options for the model that the tensors are converted into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct ModelOptions {
    /// Make a model of this architecture, or a module that returns its weights
    ///
    /// auto decides by params.json, config.json and the tensors' names
    #[serde(rename = "arch")]
    #[cfg_attr(feature = "cli", arg(long = "arch", value_name = "ARCH", default_value = "auto", value_parser = architecture_parser()))]
    pub architecture: ArchitectureChoice,
    /// Keep tensors that the architecture does not use
    #[cfg_attr(feature = "cli", arg(long))]
    pub keep_extra: bool,
}

#[cfg(feature = "cli")]
fn architecture_parser() -> impl clap::builder::TypedValueParser<Value = ArchitectureChoice> {
    use clap::builder::TypedValueParser as _;
    let names = ["auto"].into_iter().chain(architectures()).chain(["weights"]);
    clap::builder::PossibleValuesParser::new(names).try_map(|name| name.parse::<ArchitectureChoice>())
}

impl ModelOptions {
    /// Creates options for this architecture, without unused tensors.
    pub fn new(architecture: ArchitectureChoice) -> Self {
        Self { architecture, keep_extra: false }
    }

    /// Keeps tensors that the model does not use.
    #[must_use]
    pub fn keep_extra(self) -> Self {
        Self { keep_extra: true, ..self }
    }
}

/// Kind of module that the tensors are converted into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ArchitectureChoice {
    /// Model described by the tensor names and the documents; weights if there is none.
    #[default]
    Auto,
    /// Module that only returns its tensors by name.
    Weights,
    /// Model of a named architecture; [`architectures`] lists the names.
    Named(String),
}

impl fmt::Display for ArchitectureChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Weights => "weights",
            Self::Named(name) => name,
        })
    }
}

impl FromStr for ArchitectureChoice {
    type Err = InvalidOption;

    fn from_str(name: &str) -> Result<Self, InvalidOption> {
        match name {
            "auto" => Ok(Self::Auto),
            "weights" => Ok(Self::Weights),
            name if architectures().any(|known| known == name) => Ok(Self::Named(name.to_owned())),
            name => Err(InvalidOption::Architecture { name: name.to_owned() }),
        }
    }
}

tensor::serde_as_text!(ArchitectureChoice);

/// Returns the names of the supported architectures.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    decoder::architectures()
}

/// Rejects an empty name for a model.
pub(crate) fn check_name(name: Option<&str>) -> Result<()> {
    if name == Some("") { Err(InvalidOption::EmptyName.into()) } else { Ok(()) }
}

/// Converts the tensors into the module that the options ask for. `given` has hyperparameters that are missing from the
/// documents.
pub(crate) fn convert_to_module(
    options: &ModelOptions,
    errors: OnInvalidInput,
    model: &Model,
    shards: ShardPolicy,
    given: Overrides,
    tensors: &Tensors,
) -> Result<Module> {
    let sources = &*model.sources;
    let auto = options.architecture == ArchitectureChoice::Auto;
    let one_shard = || {
        torchscript::weights_module(tensors, errors).map(|weights| Module {
            code: ModuleCode::Weights { why: Some(NoModelReason::OneShard) },
            ..weights
        })
    };
    let alone = shards == ShardPolicy::ThisFileOnly && sources.is_single();
    let decoder_options = || model.decoder_options(given, options.keep_extra);
    let converted = match &options.architecture {
        ArchitectureChoice::Weights => torchscript::weights_module(tensors, errors),
        ArchitectureChoice::Auto if alone && sources.shard_number().is_some() => one_shard(),
        ArchitectureChoice::Auto => torchscript::detect_module(tensors, &decoder_options()?, errors),
        ArchitectureChoice::Named(name) if !architectures().any(|known| known == name) => {
            return Err(InvalidOption::Architecture { name: name.clone() }.into());
        }
        ArchitectureChoice::Named(name) => {
            torchscript::decoder_module(name, tensors, &decoder_options()?, errors)
        }
    };
    let converted = match converted {
        Err(error) if error.code() == "decoder::Shard" && auto && alone => one_shard(),
        Err(error) if error.code().starts_with("decoder::") && error.code() != "decoder::Duplicate" => {
            if let Some(error) = lone_shard(&error, sources) {
                return Err(error);
            }
            let (root, reason) = (sources.root().to_owned(), in_checkpoint(error, sources));
            return Err(Problem::Model { root, reason }.into());
        }
        converted => converted,
    };
    converted.map_err(|error| error.in_file(sources.root()))
}

//! Problems of inspecting, scanning, tracing and comparing inputs.
//!
//! Each text is complete without the place of the error. The program that prints it adds the remedy.

use std::path::PathBuf;

use byte_source::{Place, details};
use torch_import::pickle_kind;

/// Reasons for which an input cannot be inspected, scanned, traced or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The pickle of a checkpoint in several files is asked for.
    #[error("{} is a checkpoint of several files, expected one of them, such as {}", path.display(), first.display())]
    SeveralPickles { path: PathBuf, first: PathBuf },
    /// The patterns match neither a tensor nor a value.
    #[error("the patterns select none of its tensors and values")]
    NoNameMatches,
    /// No tensor or value has a requested name.
    #[error("it has no tensor or value named `{}`{}", name.escape_debug(), with_similar(similar.as_deref()))]
    NoSuchName {
        name: String,
        /// Most similar name of a tensor or value.
        similar: Option<String>,
        /// True if several names begin with it and a dot.
        is_group: bool,
    },
    /// Nothing says what tensors an input needs.
    #[error("it has no config.json, which says what tensors its model has")]
    NoConfiguration,
    /// The models of a pipeline are of no family that is known.
    #[error("it is a pipeline of diffusers, and the tensors of its models are not known")]
    Pipeline,
    /// A configuration does not say what tensors its model has.
    #[error("{reason}")]
    Configuration { reason: families::Error },
    /// A pickle cannot be parsed.
    #[error("{reason}")]
    Pickle { reason: pickle_vm::Error },
}

details! {
    Problem => Problem::place {
        Option: SeveralPickles, NoNameMatches, NoSuchName;
        Input: NoConfiguration;
        Unsupported: Configuration, Pipeline;
        {pickle_kind => reason}: Pickle;
    }
}

impl Problem {
    fn place(&self) -> Place {
        match self {
            Self::SeveralPickles { path, .. } => Place::file(path),
            Self::NoNameMatches
            | Self::NoSuchName { .. }
            | Self::NoConfiguration
            | Self::Pipeline
            | Self::Configuration { .. } => Place::default(),
            Self::Pickle { reason } => Place::offset(reason.offset),
        }
    }
}

/// Suggests a name, as the end of a sentence.
fn with_similar(similar: Option<&str>) -> String {
    similar.map_or_else(String::new, |similar| format!("; did you mean `{}`?", similar.escape_debug()))
}

//! The documents of the Carton file format v1 as types: `carton.toml`, `MANIFEST` and
//! `tensor_data/index.toml`. No I/O.
//!
//! Facts: the Carton v1 specification, and what its real client needs beyond it: a
//! `tensor_data/index.toml`, `runner_compat_version`, and a `shape` on every input and output.

mod config;
mod manifest;
mod tensor_data;

pub use config::{Config, DataType, Dimension, Port, Runner, SHORT_DESCRIPTION_MAX, SPEC_VERSION, Shape};
pub use manifest::Manifest;
pub use tensor_data::TensorIndex;

/// What is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `short_description` is too long for the format.
    #[error("the short description has {found} characters, at most {SHORT_DESCRIPTION_MAX} are allowed")]
    ShortDescription {
        /// Its length in characters.
        found: usize,
    },
    /// A path that a manifest line cannot hold.
    #[error("`{}` cannot stand in a MANIFEST: its lines end at line breaks", path.escape_debug())]
    ManifestPath {
        /// The path.
        path: String,
    },
    /// Two files of one path.
    #[error("two files of the carton are called `{}`", path.escape_debug())]
    Duplicate {
        /// The path.
        path: String,
    },
    /// TOML cannot express the document.
    #[error("cannot print {document}: {reason}")]
    Print {
        /// The document's file name.
        document: &'static str,
        /// What the TOML library said.
        reason: String,
    },
}

//! The documents of the Carton file format v1 as types: `carton.toml`, `MANIFEST`, `LINKS`,
//! `tensor_data/index.toml` and the files of string tensors. No I/O.
//!
//! Parsing is checking: all problems of a document are reported together, each with its place. What a
//! document says that the specification does not know is kept.
//!
//! ```
//! use carton_format::Config;
//!
//! let text = "spec_version = 1\n[runner]\nrunner_name = 'torchscript'\nrequired_framework_version = '=x'\n";
//! let error = Config::parse(text).expect_err("`=x` is no version");
//! assert_eq!(
//!     error.to_string(),
//!     "carton.toml:4:30: runner.required_framework_version is `=x`, expected a semver requirement such as =2.0"
//! );
//! ```
//!
//! A document that was parsed can be changed and printed again:
//!
//! ```
//! use carton_format::{Config, DataType, Dimension, Port, Shape};
//!
//! let text = "spec_version = 1\nmine = 'kept'\n[runner]\nrunner_name = 'torchscript'\n\
//!             required_framework_version = '=2.0'\nrunner_compat_version = 1\n";
//! let mut config = Config::parse(text)?.document;
//! let shape = Shape::Dimensions(vec![Dimension::Symbol("batch".to_owned()), Dimension::Size(3)]);
//! config.outputs.push(Port::new("y", DataType::Float32, shape));
//! let printed = config.to_toml()?;
//! assert!(printed.contains("mine = \"kept\""));
//! assert!(printed.contains("shape = [\"batch\", 3]"));
//! # Ok::<(), carton_format::Error>(())
//! ```
//!
//! [`Manifest`] is the list of hashes, [`Links`] the list of URLs, [`TensorIndex`] the tensors of self tests and
//! examples. [`Config::check`] compares a configuration with the rest of its carton.
//!
//! Facts: the Carton v1 specification, and what its real client needs beyond it: a
//! `tensor_data/index.toml`, `runner_compat_version`, `shape` on every input and output, `sample_out` on
//! every example, `inner` on every tensor of the index.

mod check;
mod config;
mod fields;
mod links;
mod manifest;
mod parse;
mod problem;
mod tensor_data;

pub use check::{MISC_REFERENCE, TENSOR_REFERENCE};
pub use config::{
    Config, DataType, Dimension, Example, Parsed, Port, References, Runner, SHORT_DESCRIPTION_MAX,
    SPEC_VERSION, SelfTest, Shape,
};
pub use fields::place;
pub use links::Links;
pub use manifest::{Manifest, sha256_from_hex, sha256_to_hex};
pub use problem::{Kind, Place, Problem, Problems};
pub use tensor_data::{FileLen, Strings, TensorIndex, TensorSpec};

/// The name of the file of links.
pub(crate) const LINKS: &str = "LINKS";

/// Whether `path` names a file inside a carton on every system: relative, its parts separated by `/`,
/// none of them empty, `.` or `..`, no backslashes, drive letters or control characters.
pub fn is_inside(path: &str) -> bool {
    !path.contains(['\\', ':', '\0'])
        && !path.contains(char::is_control)
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// What is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A document that does not follow the specification.
    #[error("{0}")]
    Document(Problems),
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

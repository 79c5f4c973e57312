//! Errors in reading and printing documents.
//!
//! Problems inside a document have a [`ProblemKind`](crate::ProblemKind).

use byte_source::ErrorKind;

use crate::problem::Problems;
use crate::spec::SHORT_DESCRIPTION_MAX;

/// Reason why a document cannot be parsed, built or printed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{0}")]
    Document(Problems),
    /// A `short_description` that is longer than the format allows.
    #[error("the short description has {found} characters, at most {SHORT_DESCRIPTION_MAX} are allowed")]
    ShortDescription {
        /// Length of the description in characters.
        found: usize,
    },
    /// A path with a line break, which a manifest line cannot hold.
    #[error("`{}` cannot be listed in MANIFEST: the path contains a line break", path.escape_debug())]
    ManifestPath { path: String },
    /// Two files with the same path.
    #[error("two files of the carton have the path `{}`", path.escape_debug())]
    Duplicate { path: String },
    /// A document that TOML cannot express.
    #[error("cannot print {document}: {reason}")]
    Print {
        /// File name of the document.
        document: &'static str,
        /// Error text of the TOML library.
        reason: String,
    },
}

impl Error {
    /// Returns the kind of error, which tells the caller how to react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Document(_) => ErrorKind::Damaged,
            Self::ShortDescription { .. } => ErrorKind::Option,
            Self::ManifestPath { .. } | Self::Duplicate { .. } => ErrorKind::Input,
            Self::Print { .. } => ErrorKind::Unsupported,
        }
    }
}

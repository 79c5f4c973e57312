//! Why a document cannot be read or printed.
//!
//! The faults inside a document are [`Kind`](crate::Kind)s of problems.

use byte_source::ErrorKind;

use crate::problem::Problems;
use crate::spec::SHORT_DESCRIPTION_MAX;

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
    #[error("`{}` cannot be listed in MANIFEST: the path contains a line break", path.escape_debug())]
    ManifestPath {
        /// The path.
        path: String,
    },
    /// Two files with the same path.
    #[error("two files of the carton have the path `{}`", path.escape_debug())]
    Duplicate {
        /// The path.
        path: String,
    },
    /// TOML cannot express the document.
    #[error("cannot print {document}: {reason}")]
    Print {
        /// The document's file name.
        document: &'static str,
        /// The TOML library's error.
        reason: String,
    },
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Document(_) => ErrorKind::Damaged,
            Self::ShortDescription { .. } => ErrorKind::Option,
            Self::ManifestPath { .. } | Self::Duplicate { .. } => ErrorKind::Input,
            Self::Print { .. } => ErrorKind::Unsupported,
        }
    }
}

//! What can be wrong with a request, and with which status a server answers it.
//!
//! Facts: statuses that Triton 2.51 answered with; 400 where it answers a broken request with something else.

use serde::Serialize;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server has no model of this name.
    #[error("unknown model `{}`", model.escape_debug())]
    UnknownModel {
        /// The name.
        model: String,
    },
    /// The model has no such version.
    #[error("model `{}` has no version `{}`", model.escape_debug(), version.escape_debug())]
    UnknownVersion {
        /// The model.
        model: String,
        /// The version.
        version: String,
    },
}

impl Error {
    /// The status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::UnknownModel { .. } | Self::UnknownVersion { .. } => 404,
        }
    }

    /// The body of the answer.
    pub fn body(&self) -> ErrorBody {
        ErrorBody { error: self.to_string() }
    }
}

/// The body of an answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: String,
}

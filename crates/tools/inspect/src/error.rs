//! Errors of inspecting, scanning, tracing and comparing inputs.
//!
//! Each text is complete: it contains the text of its cause, and describes the problem. The program that prints it adds the
//! remedy.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::ErrorKind;
use pickle_vm::trace::TraceError;

/// Result type with the error of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons for which an input cannot be inspected, scanned, traced or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input cannot be opened or read, or its tensors cannot be changed.
    #[error(transparent)]
    Open(open::Error),
    /// The pickle of a checkpoint in several files is asked for.
    #[error("{} is a checkpoint of several files, expected one of them, such as {}", path.display(), first.display())]
    SeveralPickles { path: PathBuf, first: PathBuf },
    /// Error in a file, with the path of the file.
    #[error("{}: {reason}", path.display())]
    AtPath {
        path: PathBuf,
        #[source]
        reason: Box<Error>,
    },
    /// The patterns match neither a tensor nor a value.
    #[error("the patterns select none of its tensors and values")]
    NoNameMatches,
    /// No tensor or value has a requested name.
    #[error("it has no tensor or value named `{}`{}", name.escape_debug(), with_similar(similar.as_deref()))]
    NoSuchName {
        name: String,
        /// Most similar name of a tensor or value.
        similar: Option<String>,
    },
    /// A pickle cannot be parsed.
    #[error("{0}")]
    Pickle(pickle_vm::Error),
    /// A listing cannot be rendered.
    #[error("{0}")]
    Listing(pickle_vm::trace::TraceError),
    /// The caller's writer returned an error.
    #[error("cannot write the listing: {0}")]
    Output(#[source] io::Error),
}

impl Error {
    /// Returns the category of the error, by which a caller can react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Open(reason) => reason.kind(),
            Self::AtPath { reason, .. } => reason.kind(),
            Self::Pickle(reason) | Self::Listing(TraceError::Pickle(reason)) => {
                torch_import::pickle_kind(reason)
            }
            Self::Listing(_) => ErrorKind::Io,
            Self::Output(reason) => reason.into(),
            Self::SeveralPickles { .. } | Self::NoNameMatches | Self::NoSuchName { .. } => ErrorKind::Option,
        }
    }

    /// Returns a function that wraps an error with the path of its file.
    pub fn at(path: &Path) -> impl Fn(Self) -> Self {
        move |error| match error {
            Self::Open(open::Error::Located(error)) => error.in_file(path).into(),
            reason => Self::AtPath { path: path.to_owned(), reason: Box::new(reason) },
        }
    }
}

impl From<open::Error> for Error {
    fn from(error: open::Error) -> Self {
        Self::Open(error)
    }
}

impl From<byte_source::Error> for Error {
    fn from(error: byte_source::Error) -> Self {
        Self::Open(error.into())
    }
}

impl From<open::files::Error> for Error {
    fn from(error: open::files::Error) -> Self {
        Self::Open(error.into())
    }
}

/// Suggests a name, as the end of a sentence.
fn with_similar(similar: Option<&str>) -> String {
    similar.map_or_else(String::new, |similar| format!("; did you mean `{}`?", similar.escape_debug()))
}

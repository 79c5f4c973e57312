//! Error type of every call of the library, with its kind.

use byte_source::{ErrorKind, Place};

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason for the failure of a call. The text contains the causes.
///
/// A caller that needs more than [`kind`](Self::kind) matches the variants, whose types are in [`crates`](crate::crates).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A checkpoint that cannot be converted.
    #[error(transparent)]
    Convert(Box<convert::Error>),
    /// Any other error.
    #[error(transparent)]
    Located(byte_source::Error),
}

impl Error {
    /// Returns the kind of error, which tells the caller how to react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Convert(error) => error.kind(),
            Self::Located(error) => error.kind(),
        }
    }
}

impl Error {
    /// Returns the file, the record, the tensor and the offset that the error is about.
    pub fn location(&self) -> Place {
        match self {
            Self::Convert(error) => convert_place(error),
            Self::Located(error) => error.location(),
        }
    }
}

fn convert_place(error: &convert::Error) -> Place {
    use convert::Error as E;
    match error {
        E::AtPath { path, reason } => Place::file(path).or(convert_place(reason)),
        E::Open(error) => error.location(),
        E::Read { path, .. } => Place::file(path),
        E::Model { reason, .. } => reason.location(),
        _ => Place::default(),
    }
}

impl From<byte_source::Error> for Error {
    fn from(error: byte_source::Error) -> Self {
        Self::Located(error)
    }
}

impl From<tensor::Error> for Error {
    fn from(error: tensor::Error) -> Self {
        Self::Located(error.into())
    }
}

impl From<generate::Error> for Error {
    fn from(error: generate::Error) -> Self {
        Self::Located(error.into())
    }
}

impl From<convert::Error> for Error {
    fn from(error: convert::Error) -> Self {
        match error {
            convert::Error::Open(error) => error.into(),
            error => Self::Convert(Box::new(error)),
        }
    }
}

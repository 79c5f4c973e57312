//! Error type of every call of the library, with its kind.

use byte_source::{ErrorKind, ReadError};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. The text contains its causes.
///
/// A program that wants to know more than [`kind`](Self::kind) matches the variants, whose types are in
/// [`crates`](crate::crates).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A checkpoint cannot be read, scanned, traced or converted.
    #[error(transparent)]
    Checkpoint(Box<pipeline::Error>),
    /// A carton cannot be read or written.
    #[error(transparent)]
    Carton(Box<carton_tools::Error>),
    /// A carton does not run.
    #[error(transparent)]
    Run(Box<runtime::Error>),
    /// A text cannot be turned into tokens or continued.
    #[error(transparent)]
    Text(Box<generate::Error>),
    /// A shape and a stride do not fit their storage.
    #[error(transparent)]
    Tensor(Box<tensor::Error>),
    /// The elements of a tensor cannot be read.
    #[error(transparent)]
    Read(Box<ReadError>),
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Checkpoint(error) => error.kind(),
            Self::Carton(error) => error.kind(),
            Self::Run(error) => error.kind(),
            Self::Text(error) => error.kind(),
            Self::Tensor(_) => ErrorKind::Input,
            Self::Read(error) => error.kind(),
        }
    }
}

/// Wraps an error of a crate.
macro_rules! from {
    ($($error:ty => $variant:ident,)*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        })*
    };
}

from! {
    pipeline::Error => Checkpoint,
    carton_tools::Error => Carton,
    runtime::Error => Run,
    generate::Error => Text,
    tensor::Error => Tensor,
    ReadError => Read,
}

impl From<checkpoint_files::Error> for Error {
    fn from(error: checkpoint_files::Error) -> Self {
        pipeline::Error::from(error).into()
    }
}

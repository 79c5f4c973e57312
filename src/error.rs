//! Error type of every call of the library, with its kind.

use byte_source::{ErrorKind, ReadError};

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason for the failure of a call. The text contains the causes.
///
/// A caller that needs more than [`kind`](Self::kind) matches the variants, whose types are in [`crates`](crate::crates).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A checkpoint that cannot be read, scanned, traced or converted.
    #[error(transparent)]
    Checkpoint(Box<pipeline::Error>),
    /// A carton that cannot be read or written.
    #[error(transparent)]
    Carton(Box<carton_tools::Error>),
    /// A carton that cannot run.
    #[error(transparent)]
    Run(Box<runtime::Error>),
    /// A text that cannot be tokenized or continued.
    #[error(transparent)]
    Text(Box<generate::Error>),
    /// A shape and stride that do not fit their storage.
    #[error(transparent)]
    Tensor(Box<tensor::Error>),
    /// Tensor elements that cannot be read.
    #[error(transparent)]
    Read(Box<ReadError>),
}

impl Error {
    /// Returns the kind of error, which tells the caller how to react.
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

/// Implements `From` for the errors of the underlying crates.
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

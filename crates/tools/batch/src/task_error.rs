//! Errors of the tasks of a batch.

use byte_source::ErrorKind;

/// Reasons for which a task fails.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error(transparent)]
    Open(#[from] open::Error),
    #[error(transparent)]
    Convert(#[from] convert::Error),
    #[error(transparent)]
    Inspect(#[from] inspect::Error),
    #[error(transparent)]
    Carton(#[from] carton_tools::Error),
}

impl TaskError {
    /// Returns the category of the error.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Open(reason) => reason.kind(),
            Self::Convert(reason) => reason.kind(),
            Self::Inspect(reason) => reason.kind(),
            Self::Carton(reason) => reason.kind(),
        }
    }
}

impl From<open::files::Error> for TaskError {
    fn from(error: open::files::Error) -> Self {
        Self::Open(error.into())
    }
}

impl From<output::Error> for TaskError {
    fn from(error: output::Error) -> Self {
        Self::Open(error.into())
    }
}

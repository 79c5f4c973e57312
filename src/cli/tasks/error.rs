//! Errors of the tasks of a batch, with the advice of the command line.

use batch::Failure;

use crate::cli::ui::errors;

/// Reason for which a task fails.
#[derive(Debug, thiserror::Error)]
pub(super) enum TaskError {
    #[error(transparent)]
    Open(#[from] open::Error),
    #[error(transparent)]
    Convert(#[from] convert::Error),
    #[error(transparent)]
    Inspect(#[from] inspect::Error),
    #[error(transparent)]
    Carton(#[from] carton_tools::Error),
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        let (kind, error) = match error {
            TaskError::Open(error) => (error.kind(), error.into()),
            TaskError::Convert(error) => (error.kind(), error.into()),
            TaskError::Inspect(error) => (error.kind(), error.into()),
            TaskError::Carton(error) => (error.kind(), error.into()),
        };
        Self { kind, text: errors::error_chain_text(&error) }
    }
}

impl From<open::files::Error> for TaskError {
    fn from(error: open::files::Error) -> Self {
        Self::Open(error.into())
    }
}

impl From<byte_source::Error> for TaskError {
    fn from(error: byte_source::Error) -> Self {
        Self::Open(error.into())
    }
}

//! Errors of the tasks of a batch, with the advice of the command line.

use batch::Failure;

use crate::cli::ui::errors;

/// Reason for which a task fails.
#[derive(Debug, thiserror::Error)]
pub(super) enum TaskError {
    #[error(transparent)]
    Located(#[from] byte_source::Error),
    #[error(transparent)]
    Convert(#[from] convert::Error),
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        let (kind, error) = match error {
            TaskError::Located(error) => (error.kind(), error.into()),
            TaskError::Convert(error) => (error.kind(), error.into()),
        };
        Self { kind, text: errors::error_chain_text(&error) }
    }
}

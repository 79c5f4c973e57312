//! Classifies the errors of a carton as client errors or model failures, and refuses requests that need too much memory.

use std::error::Error as StdError;

use crate::model::ModelError;

pub(super) fn failed(error: impl StdError + Send + Sync + 'static) -> ModelError {
    ModelError::Failed(Box::new(error))
}

/// Maps an error of the runtime to a client error, a model failure or a cancellation.
pub(super) fn classify(error: runtime::Error) -> ModelError {
    use forward::Problem;

    if error.is_cancelled() {
        return ModelError::Cancelled;
    }
    let is_refused = matches!(
        error.detail(),
        Some(
            Problem::Tokens { .. }
                | Problem::TokenIds { .. }
                | Problem::PastShape { .. }
                | Problem::Memory { .. }
        )
    );
    let is_no_output = matches!(error.detail(), Some(runtime::Problem::NoOutput { .. }));
    if is_refused || is_no_output || error.detail::<runtime::InputError>().is_some() {
        ModelError::Input(Box::new(error))
    } else {
        failed(error)
    }
}

/// Error for a request that needs more memory than one request may have.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request needs {needed} bytes of memory, and {allowed} are allowed")]
struct TooMuchMemory {
    needed: u64,
    allowed: u64,
}

pub(super) fn check_memory(needed: u64, allowed: u64) -> Result<(), ModelError> {
    if needed > allowed {
        return Err(ModelError::Input(Box::new(TooMuchMemory { needed, allowed })));
    }
    Ok(())
}

//! Answer of a model's thread to one request.

use std::time::Duration;

use kserve::OutputTensor;

use crate::model::ModelError;

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) outputs: Result<Vec<OutputTensor>, InferFailure>,
    /// Time in the queue of the model.
    pub(crate) queue: Duration,
    /// Run time of the model.
    pub(crate) infer: Duration,
}

/// Reason for which a model returned no outputs.
#[derive(Debug)]
pub(crate) enum InferFailure {
    Model(ModelError),
    Panic(String),
    /// The model computed for this time, which is all that a request may take.
    TimedOut {
        time: Duration,
    },
}

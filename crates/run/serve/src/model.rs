//! Interface between the server and a model: a configuration, and outputs for inputs.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Instant;

use byte_source::Observer;
use kserve::{InferRequest, ModelConfig, OutputTensor};
use tokio::sync::oneshot;

use crate::text::TextModel;

/// Model that can be served. The server calls [`infer`](Self::infer) from one dedicated thread for each model, one request
/// after the other, in order of arrival.
pub trait InferModel: Send + Sync + 'static {
    /// Returns the model's configuration. The server calls this once, and replaces `name` by the name under which it serves
    /// the model.
    fn config(&self) -> ModelConfig;

    /// Runs the model. `request` fits the configuration: names, datatypes, ranks and sizes are checked, and `outputs` lists
    /// the outputs to return. The server ignores the order of the returned outputs and [`OutputTensor::is_binary`]: it sends them in
    /// the order and form of the request.
    ///
    /// If a call panics, the response has status 500, and the model is called again for the next request.
    ///
    /// # Errors
    /// Returns an error if the model does not accept the inputs, if it fails, or if `cancel` reports that nobody waits any
    /// more.
    fn infer(
        &self,
        request: &InferRequest,
        cancel: &CancelToken<'_>,
    ) -> Result<Vec<OutputTensor>, ModelError>;

    /// Returns the number of pieces in which [`start`](Self::start) runs a request. Other requests run between the pieces.
    fn steps(&self, request: &InferRequest) -> u64 {
        let _ = request;
        1
    }

    /// Starts a request. By default it runs in one piece, a call of [`infer`](Self::infer).
    ///
    /// # Errors
    /// Returns an error if the model does not accept the inputs.
    fn start<'m>(&'m self, request: InferRequest) -> Result<Box<dyn InferTask + 'm>, ModelError> {
        Ok(Box::new(WholeTask { model: self, request }))
    }

    /// Returns the texts that the model generates; `None` if it generates none.
    fn text(&self) -> Option<Arc<TextModel>> {
        None
    }

    /// Returns the bytes of memory that `outputs` hold. Outputs mapped from a file hold none.
    fn memory(&self, outputs: &[OutputTensor]) -> usize {
        outputs.iter().map(|output| output.data.len()).fold(0, usize::saturating_add)
    }
}

/// Request that a model runs in pieces.
pub trait InferTask {
    /// Runs the next piece. Returns the outputs after the last one, as [`InferModel::infer`] does, and `None` before.
    ///
    /// # Errors
    /// Returns an error if the model fails, or if `cancel` reports that nobody waits any more. The task is dropped then.
    fn step(&mut self, cancel: &CancelToken<'_>) -> Result<Option<Vec<OutputTensor>>, ModelError>;
}

/// Request that runs in one piece.
struct WholeTask<'m, M: ?Sized> {
    model: &'m M,
    request: InferRequest,
}

impl<M: InferModel + ?Sized> InferTask for WholeTask<'_, M> {
    fn step(&mut self, cancel: &CancelToken<'_>) -> Result<Option<Vec<OutputTensor>>, ModelError> {
        self.model.infer(&self.request, cancel).map(Some)
    }
}

/// Error of a model that returned no outputs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The model does not accept the inputs: status 400.
    #[error("{0}")]
    Input(#[source] Box<dyn StdError + Send + Sync>),
    /// The model failed: status 500.
    #[error("{0}")]
    Failed(#[source] Box<dyn StdError + Send + Sync>),
    /// Nobody waits for the outputs any more.
    #[error("the request was cancelled")]
    Cancelled,
}

/// Tells a model if the client still waits for its outputs, and if the request may take more time.
#[derive(Debug)]
pub struct CancelToken<'r> {
    source: CancelSource<'r>,
    deadline: Option<Instant>,
}

#[derive(Debug)]
enum CancelSource<'r> {
    Reply(&'r dyn IsClosed),
    Always,
}

trait IsClosed: std::fmt::Debug + Sync {
    fn is_closed(&self) -> bool;
}

impl<T: std::fmt::Debug + Send> IsClosed for oneshot::Sender<T> {
    fn is_closed(&self) -> bool {
        oneshot::Sender::is_closed(self)
    }
}

impl<'r> CancelToken<'r> {
    /// Creates a token for a call that is never cancelled.
    pub fn never() -> Self {
        Self { source: CancelSource::Always, deadline: None }
    }

    pub(crate) fn when_closed<T: std::fmt::Debug + Send>(
        reply: &'r oneshot::Sender<T>,
        deadline: Option<Instant>,
    ) -> Self {
        Self { source: CancelSource::Reply(reply), deadline }
    }

    /// Returns true if the client went away, the server ends, or the request has taken all of its time. The check is cheap enough for every step of the work.
    pub fn is_cancelled(&self) -> bool {
        let is_closed = match self.source {
            CancelSource::Reply(reply) => reply.is_closed(),
            CancelSource::Always => false,
        };
        is_closed || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl Observer for CancelToken<'_> {
    fn is_cancelled(&self) -> bool {
        CancelToken::is_cancelled(self)
    }
}

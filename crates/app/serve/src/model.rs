//! What the server needs from a model: its configuration, and outputs for inputs.

use std::error::Error as StdError;

use byte_source::Observer;
use kserve::{InferRequest, ModelConfig, Output};
use tokio::sync::oneshot;

/// A model that can be served. The server calls [`infer`](Self::infer) from one thread of its own for each model, one
/// request after the other, in the order in which they came.
pub trait Model: Send + Sync + 'static {
    /// What the model is and takes. The server asks once, and puts the name under which it serves the model in place of
    /// `name`.
    fn config(&self) -> ModelConfig;

    /// Runs the model. `request` fits the configuration: names, datatypes, ranks and sizes are checked, and `outputs` lists
    /// what to return. The order of what is returned and [`Output::binary`] do not matter: the server sends the outputs in
    /// the order and form of the request.
    ///
    /// A call that panics is answered with status 500, and the model is called again for the next request.
    ///
    /// # Errors
    /// When the inputs are not what the model takes, when it fails, or when `cancel` says that nobody waits any more.
    fn infer(&self, request: &InferRequest, cancel: &Cancel<'_>) -> Result<Vec<Output>, ModelError>;

    /// The bytes of memory that `outputs` hold. Those that are mapped from a file hold none.
    fn memory(&self, outputs: &[Output]) -> usize {
        outputs.iter().map(|output| output.data.len()).fold(0, usize::saturating_add)
    }
}

/// Why a model did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The inputs are not what the model takes: status 400.
    #[error("{0}")]
    Input(#[source] Box<dyn StdError + Send + Sync>),
    /// The model failed: status 500.
    #[error("{0}")]
    Failed(#[source] Box<dyn StdError + Send + Sync>),
    /// The work stopped because nobody waits for it any more.
    #[error("the request was cancelled")]
    Cancelled,
}

/// Tells a model whether somebody still waits for its outputs.
#[derive(Debug)]
pub struct Cancel<'r>(Waiting<'r>);

#[derive(Debug)]
enum Waiting<'r> {
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

impl<'r> Cancel<'r> {
    /// For a call that nobody stops.
    pub fn never() -> Self {
        Self(Waiting::Always)
    }

    pub(crate) fn when_closed<T: std::fmt::Debug + Send>(reply: &'r oneshot::Sender<T>) -> Self {
        Self(Waiting::Reply(reply))
    }

    /// Whether the client went away or the server ends. Cheap enough to ask between any two steps of the work.
    pub fn is_cancelled(&self) -> bool {
        match self.0 {
            Waiting::Reply(reply) => reply.is_closed(),
            Waiting::Always => false,
        }
    }
}

impl Observer for Cancel<'_> {
    fn is_cancelled(&self) -> bool {
        Cancel::is_cancelled(self)
    }
}

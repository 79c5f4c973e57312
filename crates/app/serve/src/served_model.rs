//! Runs a served model on a thread of its own, behind a bounded queue, and counts its requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use kserve::{InferRequest, ModelConfig, ModelStatistics, OutputTensor};
use tokio::sync::oneshot;

use crate::budget::Charge;
use crate::counts::{Counts, FailureReason};
use crate::model::{CancelToken, Model, ModelError};
use crate::panics;

/// Version of a model that answers requests.
pub(crate) struct ServedModel {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) config: Arc<ModelConfig>,
    model: Arc<dyn Model>,
    jobs: SyncSender<Job>,
    waiting: Arc<AtomicUsize>,
    counts: Mutex<Counts>,
}

impl std::fmt::Debug for ServedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served")
            .field("name", &self.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Request in the queue of its model.
#[derive(Debug)]
struct Job {
    request: InferRequest,
    /// Memory charge of the inputs.
    charge: Charge,
    since: Instant,
    reply: oneshot::Sender<Reply>,
}

/// Result and timing of a request.
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
    /// Message of the panic.
    Panic(String),
}

impl ServedModel {
    /// Starts the thread of a model.
    ///
    /// # Errors
    /// Returns an error if the system does not start the thread.
    pub(crate) fn start(
        name: String,
        version: u64,
        model: Arc<dyn Model>,
        queue: usize,
    ) -> io::Result<Arc<Self>> {
        let config = Arc::new(ModelConfig { name: name.clone(), ..model.config() });
        let (jobs, received) = sync_channel(queue);
        let waiting = Arc::new(AtomicUsize::new(0));
        let (runs, counter) = (model.clone(), waiting.clone());
        // The thread ends when the last sender is dropped and the queue is empty.
        thread::Builder::new()
            .name("model".to_owned())
            .spawn(move || run_jobs(&*runs, &received, &counter))?;
        let counts = Mutex::default();
        Ok(Arc::new(Self { name, version, config, model, jobs, waiting, counts }))
    }

    /// Puts a request into the queue.
    ///
    /// # Errors
    /// Returns an error if the queue is full.
    pub(crate) fn submit(
        &self,
        request: InferRequest,
        charge: Charge,
    ) -> kserve::Result<oneshot::Receiver<Reply>> {
        let (reply, receiver) = oneshot::channel();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        match self.jobs.try_send(Job { request, charge, since: Instant::now(), reply }) {
            Ok(()) => Ok(receiver),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                let waiting = self.waiting.fetch_sub(1, Ordering::Relaxed).saturating_sub(1);
                Err(kserve::Error::Busy { model: self.name.clone(), waiting })
            }
        }
    }

    /// Returns the bytes of memory that `outputs` hold.
    pub(crate) fn memory(&self, outputs: &[OutputTensor]) -> usize {
        self.model.memory(outputs)
    }

    /// Returns the number of requests in the queue.
    pub(crate) fn queue_length(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns a copy of the current counts.
    pub(crate) fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn statistics(&self) -> ModelStatistics {
        self.counts().statistics(&self.name, self.version)
    }

    /// Starts to count a request.
    pub(crate) fn ticket(self: &Arc<Self>) -> Ticket {
        Ticket { served: self.clone(), since: Instant::now(), reason: Some(FailureReason::Cancelled) }
    }
}

/// Runs queued jobs in order until all senders are dropped.
fn run_jobs(model: &dyn Model, jobs: &Receiver<Job>, waiting: &AtomicUsize) {
    for Job { request, charge, since, reply } in jobs {
        waiting.fetch_sub(1, Ordering::Relaxed);
        if reply.is_closed() {
            continue;
        }
        let (queue, started) = (since.elapsed(), Instant::now());
        let run = AssertUnwindSafe(|| model.infer(&request, &CancelToken::when_closed(&reply)));
        let outputs = match catch_unwind(run) {
            Ok(outputs) => outputs.map_err(InferFailure::Model),
            Err(payload) => Err(InferFailure::Panic(panics::message(&*payload))),
        };
        // The inputs are released before the client can see the response.
        drop(request);
        drop(charge);
        // If the receiver is gone, the request is already counted as cancelled.
        let _ = reply.send(Reply { outputs, queue, infer: started.elapsed() });
    }
}

/// Guard that counts a request: as a failure when dropped, unless [`succeeds`](Self::record_success) was called.
#[derive(Debug)]
pub(crate) struct Ticket {
    served: Arc<ServedModel>,
    since: Instant,
    reason: Option<FailureReason>,
}

impl Ticket {
    /// Sets the reason of a failure; initially the request counts as cancelled, because the client may go away.
    pub(crate) fn set_failure_reason(&mut self, reason: FailureReason) {
        self.reason = Some(reason);
    }

    /// Applies `change` to the model's counts.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.served.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts the request as a success.
    pub(crate) fn record_success(mut self) {
        self.reason = None;
        self.count(|counts| counts.count_success(self.since.elapsed()));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(reason) = self.reason {
            self.count(|counts| counts.count_failure(reason, self.since.elapsed()));
        }
    }
}

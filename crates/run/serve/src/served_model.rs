//! Runs a served model on its own thread, with a bounded queue, and counts its requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use kserve::{InferRequest, ModelConfig, ModelStatistics, OutputTensor};

use crate::budget::Charge;
use crate::counts::{Counts, FailureReason};
use crate::model::InferModel;
use crate::queue::{JobQueue, WaitingClient};
use crate::running_job::run_jobs;
use crate::text::TextEngine;

/// Version of a model that answers requests.
pub(crate) struct ServedModel {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) config: Arc<ModelConfig>,
    model: Arc<dyn InferModel>,
    queue: Arc<JobQueue>,
    counts: Mutex<Counts>,
    /// Computes texts, if the model generates any.
    pub(crate) texts: Option<TextEngine>,
}

impl std::fmt::Debug for ServedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served")
            .field("name", &self.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Limits on running the requests of one model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLimits {
    /// Number of requests that may wait.
    pub(crate) queue: usize,
    /// Time that the model may compute for one request.
    pub(crate) compute: Duration,
}

impl Drop for ServedModel {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl ServedModel {
    /// Starts the thread of a model.
    ///
    /// # Errors
    /// Returns an error if the system does not start the thread.
    pub(crate) fn start(
        name: String,
        version: u64,
        model: Arc<dyn InferModel>,
        limits: RunLimits,
    ) -> io::Result<Arc<Self>> {
        let config = Arc::new(ModelConfig { name: name.clone(), ..model.config() });
        let queue = JobQueue::new(limits.queue);
        let (runs, jobs) = (model.clone(), queue.clone());
        // The thread ends when the queue is closed and empty.
        thread::Builder::new()
            .name("model".to_owned())
            .spawn(move || run_jobs(&*runs, &jobs, limits.compute))?;
        let texts = model.text().map(|text| TextEngine::start(text, limits.queue)).transpose()?;
        let counts = Mutex::default();
        Ok(Arc::new(Self { name, version, config, model, queue, counts, texts }))
    }

    /// Puts a request into the queue.
    ///
    /// # Errors
    /// Returns an error if the queue is full.
    pub(crate) fn submit(&self, request: InferRequest, charge: Charge) -> kserve::Result<WaitingClient> {
        let is_short = self.model.steps(&request) <= 1;
        let pushed = self.queue.push(request, charge, is_short);
        pushed.map_err(|waiting| kserve::Error::Busy { model: self.name.clone(), waiting })
    }

    pub(crate) fn memory(&self, outputs: &[OutputTensor]) -> usize {
        self.model.memory(outputs)
    }

    pub(crate) fn queue_length(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn statistics(&self) -> ModelStatistics {
        self.counts().statistics(&self.name, self.version)
    }

    pub(crate) fn ticket(self: &Arc<Self>) -> Ticket {
        Ticket { served: self.clone(), since: Instant::now(), reason: Some(FailureReason::Cancelled) }
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

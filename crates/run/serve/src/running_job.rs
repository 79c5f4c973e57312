//! A request that its model computes, piece by piece, within the time that a request may take.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use kserve::OutputTensor;
use tokio::sync::oneshot;

use crate::budget::Charge;
use crate::model::{CancelToken, InferModel, InferTask, ModelError};
use crate::panics;
use crate::queue::{Job, JobQueue};
use crate::reply::{InferFailure, Reply};

/// Runs the requests of a queue until it is closed and empty. Between two pieces of a long request, one short request runs,
/// so that a short request waits for one piece of the long one, and two requests are in memory at most.
pub(crate) fn run_jobs(model: &dyn InferModel, queue: &JobQueue, time: Duration) {
    while let Some(job) = queue.next() {
        let Some(mut long) = RunningJob::start(model, job, time) else { continue };
        while long.advance() {
            if let Some(mut short) = queue.take_short().and_then(|job| RunningJob::start(model, job, time)) {
                while short.advance() {}
                short.finish();
            }
        }
        long.finish();
    }
}

/// Request that was started.
struct RunningJob<'m> {
    task: Option<Box<dyn InferTask + 'm>>,
    charge: Charge,
    reply: oneshot::Sender<Reply>,
    queue: Duration,
    /// Time that the model computed, and the time that it may compute.
    spent: Duration,
    time: Duration,
    outputs: Option<Result<Vec<OutputTensor>, InferFailure>>,
}

impl<'m> RunningJob<'m> {
    /// Starts a request; `None` if its client went away.
    fn start(model: &'m dyn InferModel, job: Job, time: Duration) -> Option<Self> {
        let Job { request, charge, since, reply } = job;
        if reply.is_closed() {
            return None;
        }
        let (queue, spent) = (since.elapsed(), Duration::ZERO);
        let mut job = Self { task: None, charge, reply, queue, spent, time, outputs: None };
        job.task = job.run(|_| model.start(request).map(Some));
        Some(job)
    }

    /// Computes the next piece. Returns true if there are more.
    fn advance(&mut self) -> bool {
        let Some(mut task) = self.task.take() else { return false };
        match self.run(|cancel| task.step(cancel)) {
            Some(outputs) => self.outputs = Some(Ok(outputs)),
            None if self.outputs.is_none() && self.spent < self.time => self.task = Some(task),
            None => {
                let failure = InferFailure::TimedOut { time: self.time };
                self.outputs.get_or_insert(Err(failure));
            }
        }
        self.task.is_some()
    }

    /// Calls the model. Returns what it returns, or `None` after a failure, which becomes the reply.
    fn run<T>(&mut self, call: impl FnOnce(&CancelToken<'_>) -> Result<Option<T>, ModelError>) -> Option<T> {
        let started = Instant::now();
        let deadline = started.checked_add(self.time.saturating_sub(self.spent));
        let cancel = CancelToken::when_closed(&self.reply, deadline);
        let result = catch_unwind(AssertUnwindSafe(|| call(&cancel)));
        self.spent = self.spent.saturating_add(started.elapsed());
        let failure = match result {
            Ok(Ok(result)) => return result,
            Ok(Err(ModelError::Cancelled)) if !self.reply.is_closed() && self.spent >= self.time => {
                InferFailure::TimedOut { time: self.time }
            }
            Ok(Err(error)) => InferFailure::Model(error),
            Err(payload) => InferFailure::Panic(panics::message(&*payload)),
        };
        self.outputs = Some(Err(failure));
        None
    }

    fn finish(self) {
        let Self { task, charge, reply, queue, spent, outputs, .. } = self;
        // The inputs are released before the client can see the response.
        drop(task);
        drop(charge);
        let outputs = outputs.unwrap_or(Err(InferFailure::Model(ModelError::Cancelled)));
        // If the receiver is gone, the request is already counted as cancelled.
        let _ = reply.send(Reply { outputs, queue, infer: spent });
    }
}

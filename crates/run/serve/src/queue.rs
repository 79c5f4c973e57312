//! Queue of the requests that wait for a model: short ones, which run in one piece, pass long ones between their pieces.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kserve::InferRequest;
use tokio::sync::oneshot;

use crate::budget::Charge;
use crate::reply::Reply;

/// Request in the queue of its model.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: InferRequest,
    /// Memory charge of the inputs.
    pub(crate) charge: Charge,
    pub(crate) since: Instant,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// Requests that wait for one model, in order of arrival.
#[derive(Debug)]
pub(crate) struct JobQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    /// Number of requests that may wait.
    limit: usize,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<WaitingJob>,
    next_id: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct WaitingJob {
    id: u64,
    /// True if the model runs the request in one piece.
    is_short: bool,
    job: Job,
}

/// Request whose client waits. If it is dropped, the request leaves the queue, and a model that computes it stops.
#[derive(Debug)]
pub(crate) struct WaitingClient {
    queue: Arc<JobQueue>,
    id: u64,
    reply: oneshot::Receiver<Reply>,
}

impl WaitingClient {
    /// Waits for the reply; `None` if the model's thread is gone.
    pub(crate) async fn reply(mut self) -> Option<Reply> {
        (&mut self.reply).await.ok()
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        self.queue.lock().waiting.retain(|waiting| waiting.id != self.id);
    }
}

impl JobQueue {
    /// Creates a queue in which `limit` requests may wait.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Condvar::new(), limit })
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request; returns the number of waiting requests if the queue is full.
    pub(crate) fn push(
        self: &Arc<Self>,
        request: InferRequest,
        charge: Charge,
        is_short: bool,
    ) -> Result<WaitingClient, usize> {
        let (sender, reply) = oneshot::channel();
        let mut state = self.lock();
        if state.waiting.len() >= self.limit {
            return Err(state.waiting.len());
        }
        let id = state.next_id;
        state.next_id = id.wrapping_add(1);
        let job = Job { request, charge, since: Instant::now(), reply: sender };
        state.waiting.push_back(WaitingJob { id, is_short, job });
        drop(state);
        self.changed.notify_one();
        Ok(WaitingClient { queue: self.clone(), id, reply })
    }

    /// Waits for the next request; `None` once the queue is closed and empty.
    pub(crate) fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(waiting) = state.waiting.pop_front() {
                return Some(waiting.job);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Removes the first short request; `None` if only long ones wait.
    pub(crate) fn take_short(&self) -> Option<Job> {
        let mut state = self.lock();
        let first = state.waiting.iter().position(|waiting| waiting.is_short)?;
        state.waiting.remove(first).map(|waiting| waiting.job)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Closes the queue: requests that wait still run, and no more come.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

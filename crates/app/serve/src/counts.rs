//! Counts requests, failures and durations for each model, and converts them to the protocol's statistics.
//!
//! Facts: Triton's statistics extension.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kserve::{InferStatistics, ModelStatistics};

/// Request counts and durations of a model since it was loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) success: DurationTotal,
    fail: DurationTotal,
    failures: [u64; REASONS.len()],
    pub(crate) queue: DurationTotal,
    pub(crate) input: DurationTotal,
    pub(crate) infer: DurationTotal,
    pub(crate) output: DurationTotal,
    pub(crate) inferences: u64,
    pub(crate) executions: u64,
    last: Option<SystemTime>,
}

/// Number of events and their total duration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DurationTotal {
    pub(crate) count: u64,
    pub(crate) time: Duration,
}

/// Category of a failed request, in Triton's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureReason {
    /// The queue or the memory budget had no room, or the server is shutting down.
    Rejected,
    /// The client went away.
    Cancelled,
    /// The model or the server failed.
    Backend,
    /// The request is invalid.
    Other,
}

const REASONS: [(FailureReason, &str); 4] = [
    (FailureReason::Rejected, "REJECTED"),
    (FailureReason::Cancelled, "CANCELED"),
    (FailureReason::Backend, "BACKEND"),
    (FailureReason::Other, "OTHER"),
];

impl DurationTotal {
    fn add(&mut self, time: Duration) {
        self.count = self.count.saturating_add(1);
        self.time = self.time.saturating_add(time);
    }

    fn statistics(self) -> kserve::StatisticDuration {
        kserve::StatisticDuration {
            count: self.count,
            ns: u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

impl Counts {
    /// Counts a run of the model for a request of `batch` inferences.
    pub(crate) fn count_run(&mut self, batch: u64, queue: Duration, input: Duration, infer: Duration) {
        self.inferences = self.inferences.saturating_add(batch);
        self.executions = self.executions.saturating_add(1);
        self.queue.add(queue);
        self.input.add(input);
        self.infer.add(infer);
        self.last = Some(SystemTime::now());
    }

    /// Counts a response and the time spent on writing its body.
    pub(crate) fn count_response(&mut self, output: Duration) {
        self.output.add(output);
    }

    pub(crate) fn count_success(&mut self, time: Duration) {
        self.success.add(time);
    }

    pub(crate) fn count_failure(&mut self, reason: FailureReason, time: Duration) {
        self.fail.add(time);
        if let Some(at) = REASONS.iter().position(|(other, _)| *other == reason)
            && let Some(count) = self.failures.get_mut(at)
        {
            *count = count.saturating_add(1);
        }
    }

    /// Returns Triton's name of each failure reason with the number of failed requests.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.iter().zip(self.failures).map(|((_, name), count)| (*name, count))
    }

    pub(crate) fn statistics(&self, name: &str, version: u64) -> ModelStatistics {
        let last = self.last.and_then(|last| last.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        ModelStatistics {
            name: name.to_owned(),
            version: version.to_string(),
            last_inference: u64::try_from(last.as_millis()).unwrap_or(u64::MAX),
            inference_count: self.inferences,
            execution_count: self.executions,
            inference_stats: InferStatistics {
                success: self.success.statistics(),
                fail: self.fail.statistics(),
                queue: self.queue.statistics(),
                compute_input: self.input.statistics(),
                compute_infer: self.infer.statistics(),
                compute_output: self.output.statistics(),
                ..InferStatistics::default()
            },
            batch_stats: Vec::new(),
        }
    }
}

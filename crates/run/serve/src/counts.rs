//! Counts requests, failures and durations for each model, and converts them to the protocol's statistics.
//!
//! Facts: Triton's statistics extension.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kserve::{InferStatistics, ModelStatistics};

use crate::histogram::DurationHistogram;

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) success: DurationHistogram,
    pub(crate) fail: DurationHistogram,
    failures: [u64; REASONS.len()],
    pub(crate) queue: DurationHistogram,
    pub(crate) input: DurationHistogram,
    pub(crate) infer: DurationHistogram,
    pub(crate) output: DurationHistogram,
    pub(crate) inferences: u64,
    pub(crate) executions: u64,
    /// Tokens of prompts, and of answers.
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
    last: Option<SystemTime>,
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

    /// Counts the tokens of a request whose texts are complete.
    pub(crate) fn count_text(&mut self, prompt: usize, generated: usize) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(prompt as u64);
        self.generated_tokens = self.generated_tokens.saturating_add(generated as u64);
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
                success: statistic_duration(&self.success),
                fail: statistic_duration(&self.fail),
                queue: statistic_duration(&self.queue),
                compute_input: statistic_duration(&self.input),
                compute_infer: statistic_duration(&self.infer),
                compute_output: statistic_duration(&self.output),
                ..InferStatistics::default()
            },
            batch_stats: Vec::new(),
        }
    }
}

fn statistic_duration(durations: &DurationHistogram) -> kserve::StatisticDuration {
    kserve::StatisticDuration {
        count: durations.count,
        ns: u64::try_from(durations.total.as_nanos()).unwrap_or(u64::MAX),
    }
}

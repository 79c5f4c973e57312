//! What is counted about a model, as the statistics of the protocol and as metrics for Prometheus.
//!
//! Facts: names, help texts and labels of the metrics that Triton 2.51 prints. The crate `prometheus-client` is not used: it
//! appends `_total` to the name of each counter, as the newer format wants, and the names here are given.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kserve::{InferStatistics, ModelStatistics};

use crate::served::Served;

/// What was counted since a model was loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    success: Total,
    fail: Total,
    failures: [u64; REASONS.len()],
    queue: Total,
    input: Total,
    infer: Total,
    output: Total,
    inferences: u64,
    executions: u64,
    last: Option<SystemTime>,
}

/// How often something happened, and how long it took in all.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    count: u64,
    time: Duration,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There was no room for it.
    Rejected,
    /// The client went away.
    Cancelled,
    /// The model failed.
    Backend,
    /// The request is wrong.
    Other,
}

const REASONS: [(Reason, &str); 4] = [
    (Reason::Rejected, "REJECTED"),
    (Reason::Cancelled, "CANCELED"),
    (Reason::Backend, "BACKEND"),
    (Reason::Other, "OTHER"),
];

impl Total {
    fn add(&mut self, time: Duration) {
        self.count = self.count.saturating_add(1);
        self.time = self.time.saturating_add(time);
    }

    fn statistics(self) -> kserve::Duration {
        kserve::Duration { count: self.count, ns: u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX) }
    }

    fn micros(self) -> u128 {
        self.time.as_micros()
    }
}

impl Counts {
    /// The model ran for a request of `batch` inferences.
    pub(crate) fn ran(&mut self, batch: u64, queue: Duration, input: Duration, infer: Duration) {
        self.inferences = self.inferences.saturating_add(batch);
        self.executions = self.executions.saturating_add(1);
        self.queue.add(queue);
        self.input.add(input);
        self.infer.add(infer);
        self.last = Some(SystemTime::now());
    }

    /// A response was made.
    pub(crate) fn printed(&mut self, output: Duration) {
        self.output.add(output);
    }

    pub(crate) fn success(&mut self, time: Duration) {
        self.success.add(time);
    }

    pub(crate) fn failure(&mut self, reason: Reason, time: Duration) {
        self.fail.add(time);
        if let Some(at) = REASONS.iter().position(|(other, _)| *other == reason)
            && let Some(count) = self.failures.get_mut(at)
        {
            *count = count.saturating_add(1);
        }
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

/// A metric: its name, its help, its type, and its value for a model.
type Metric = (&'static str, &'static str, &'static str, fn(&Counts, &Served) -> u128);

const METRICS: [Metric; 9] = [
    (
        "nv_inference_request_success",
        "Number of successful inference requests, all batch sizes",
        "counter",
        |counts, _| u128::from(counts.success.count),
    ),
    ("nv_inference_count", "Number of inferences performed", "counter", |counts, _| {
        u128::from(counts.inferences)
    }),
    ("nv_inference_exec_count", "Number of model executions performed", "counter", |counts, _| {
        u128::from(counts.executions)
    }),
    (
        "nv_inference_request_duration_us",
        "Cumulative inference request duration in microseconds",
        "counter",
        |counts, _| counts.success.micros(),
    ),
    (
        "nv_inference_queue_duration_us",
        "Cumulative inference queuing duration in microseconds",
        "counter",
        |counts, _| counts.queue.micros(),
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Cumulative compute input duration in microseconds",
        "counter",
        |counts, _| counts.input.micros(),
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds",
        "counter",
        |counts, _| counts.infer.micros(),
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Cumulative inference compute output duration in microseconds",
        "counter",
        |counts, _| counts.output.micros(),
    ),
    (
        "nv_inference_pending_request_count",
        "Instantaneous number of pending requests awaiting execution per-model.",
        "gauge",
        |_, served| served.waiting() as u128,
    ),
];

const FAILURES: &str = "nv_inference_request_failure";

/// The metrics of models in Prometheus' text format.
pub(crate) fn metrics(models: &[Arc<Served>]) -> String {
    let counted: Vec<(&Served, Counts)> = models.iter().map(|served| (&**served, served.counts())).collect();
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = print(&counted, &mut text);
    text
}

fn print(models: &[(&Served, Counts)], out: &mut String) -> fmt::Result {
    for (name, help, kind, value) in METRICS {
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
        for (served, counts) in models {
            writeln!(out, "{name}{{{}}} {}", Labels(served), value(counts, served))?;
        }
    }
    writeln!(out, "# HELP {FAILURES} Number of failed inference requests, all batch sizes")?;
    writeln!(out, "# TYPE {FAILURES} counter")?;
    for (served, counts) in models {
        for ((_, reason), count) in REASONS.iter().zip(counts.failures) {
            writeln!(out, "{FAILURES}{{{},reason=\"{reason}\"}} {count}", Labels(served))?;
        }
    }
    Ok(())
}

/// The labels of a model.
struct Labels<'m>(&'m Served);

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("model=\"")?;
        for c in self.0.name.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        write!(f, "\",version=\"{}\"", self.0.version)
    }
}

//! Prints the counts of models as Prometheus metrics.
//!
//! Facts: names, help texts and labels of the metrics that Triton 2.51 prints, which has no histograms of whole requests; the
//! text format of Prometheus, and its names of the metrics of a process. The crate `prometheus-client` is not used: it
//! appends `_total` to the name of each counter, as `OpenMetrics` requires, and Triton's names lack it.

use std::fmt::{self, Display, Write};
use std::sync::Arc;

use crate::counts::Counts;
use crate::histogram::DurationHistogram;
use crate::process_metrics::ProcessMetrics;
use crate::served_model::ServedModel;
use crate::text::TextEngine;

/// Source of a metric's value.
enum MetricValue {
    Number(fn(&Counts) -> u64),
    /// Total duration, printed in microseconds.
    Time(fn(&Counts) -> DurationHistogram),
}

use MetricValue::{Number, Time};

/// Name, help text and value of the counters with one sample for each model.
const COUNTERS: [(&str, &str, MetricValue); 10] = [
    (
        "nv_inference_request_success",
        "Number of successful inference requests, all batch sizes",
        Number(|it| it.success.count),
    ),
    ("nv_inference_count", "Number of inferences performed", Number(|it| it.inferences)),
    ("nv_inference_exec_count", "Number of model executions performed", Number(|it| it.executions)),
    (
        "nv_inference_request_duration_us",
        "Cumulative inference request duration in microseconds",
        Time(|it| it.success),
    ),
    (
        "nv_inference_queue_duration_us",
        "Cumulative inference queuing duration in microseconds",
        Time(|it| it.queue),
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Cumulative compute input duration in microseconds",
        Time(|it| it.input),
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds",
        Time(|it| it.infer),
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Cumulative inference compute output duration in microseconds",
        Time(|it| it.output),
    ),
    (
        "torch2carton_prompt_tokens_total",
        "Tokens of the prompts whose texts are complete",
        Number(|it| it.prompt_tokens),
    ),
    ("torch2carton_generated_tokens_total", "Tokens of complete texts", Number(|it| it.generated_tokens)),
];

/// Further label of a histogram, starting with a comma or empty, and the durations that it counts.
type LabelledDurations = (&'static str, fn(&Counts) -> DurationHistogram);

/// Name, help text, further label and durations of the histograms of each model.
const HISTOGRAMS: [(&str, &str, &[LabelledDurations]); 3] = [
    (
        "torch2carton_request_duration_seconds",
        "Time from the headers of an inference request until its response is ready, by outcome",
        &[(",outcome=\"success\"", |it| it.success), (",outcome=\"failure\"", |it| it.fail)],
    ),
    ("torch2carton_queue_duration_seconds", "Time that requests wait for the model", &[("", |it| it.queue)]),
    (
        "torch2carton_compute_duration_seconds",
        "Time that the model computes for requests",
        &[("", |it| it.infer)],
    ),
];

const PENDING: &str = "nv_inference_pending_request_count";
const TEXTS: &str = "torch2carton_texts";
const FAILURES: &str = "nv_inference_request_failure";

/// Prints the metrics of models and of the process in Prometheus' text format.
pub(crate) fn metrics(models: &[Arc<ServedModel>]) -> String {
    let counted: Vec<(&ServedModel, Counts)> =
        models.iter().map(|served| (&**served, served.counts())).collect();
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = print(&counted, &mut text).and_then(|()| print_histograms(&counted, &mut text));
    if let Some(process) = ProcessMetrics::read() {
        let _ = print_process(&process, &mut text);
    }
    text
}

fn print(models: &[(&ServedModel, Counts)], out: &mut String) -> fmt::Result {
    for (name, help, value) in COUNTERS {
        describe(out, name, help, "counter")?;
        for (served, counts) in models {
            match value {
                Number(number) => sample(out, name, &Labels(served), number(counts))?,
                Time(time) => sample(out, name, &Labels(served), time(counts).total.as_micros())?,
            }
        }
    }
    let help = "Instantaneous number of pending requests awaiting execution per-model.";
    describe(out, PENDING, help, "gauge")?;
    for (served, _) in models {
        sample(out, PENDING, &Labels(served), served.queue_length())?;
    }
    describe(out, TEXTS, "Number of texts that are generated or wait", "gauge")?;
    for (served, _) in models {
        sample(out, TEXTS, &Labels(served), served.texts.as_ref().map_or(0, TextEngine::running))?;
    }
    describe(out, FAILURES, "Number of failed inference requests, all batch sizes", "counter")?;
    for (served, counts) in models {
        for (reason, count) in counts.failures() {
            let labels = format_args!("{},reason=\"{reason}\"", Labels(served));
            sample(out, FAILURES, &labels, count)?;
        }
    }
    Ok(())
}

fn print_histograms(models: &[(&ServedModel, Counts)], out: &mut String) -> fmt::Result {
    for (name, help, parts) in HISTOGRAMS {
        describe(out, name, help, "histogram")?;
        for (served, counts) in models {
            for (label, durations) in parts {
                let (labels, durations) = (format!("{}{label}", Labels(served)), durations(counts));
                for (bound, count) in durations.cumulative() {
                    writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}")?;
                }
                writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", durations.count)?;
                writeln!(out, "{name}_sum{{{labels}}} {}", durations.total.as_secs_f64())?;
                writeln!(out, "{name}_count{{{labels}}} {}", durations.count)?;
            }
        }
    }
    Ok(())
}

fn print_process(process: &ProcessMetrics, out: &mut String) -> fmt::Result {
    let ProcessMetrics { cpu_seconds, start_seconds, .. } = process;
    let files = |count: Option<u64>| count.map(|count| count.to_string());
    for (name, help, kind, value) in [
        (
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            "counter",
            Some(cpu_seconds.to_string()),
        ),
        (
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            "gauge",
            Some(process.resident_bytes.to_string()),
        ),
        (
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
            "gauge",
            Some(process.virtual_bytes.to_string()),
        ),
        (
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            "gauge",
            Some(start_seconds.to_string()),
        ),
        ("process_open_fds", "Number of open file descriptors.", "gauge", files(process.open_files)),
        ("process_max_fds", "Maximum number of open file descriptors.", "gauge", files(process.max_files)),
        (
            "process_threads",
            "Number of OS threads in the process.",
            "gauge",
            Some(process.threads.to_string()),
        ),
    ] {
        if let Some(value) = value {
            describe(out, name, help, kind)?;
            writeln!(out, "{name} {value}")?;
        }
    }
    Ok(())
}

fn describe(out: &mut String, name: &str, help: &str, kind: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn sample(out: &mut String, name: &str, labels: &dyn Display, value: impl Display) -> fmt::Result {
    writeln!(out, "{name}{{{labels}}} {value}")
}

/// Prometheus labels of a model: its name and version.
struct Labels<'m>(&'m ServedModel);

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

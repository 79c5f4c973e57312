//! Log of a server: one line per event on standard error.
//!
//! A separate thread writes the lines, so that a blocked reader of stderr cannot stop the server. Lines beyond the capacity
//! of the queue are dropped and counted.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::Serialize;
use serve::{ServerEvent, ServerObserver};

use super::escapes::{EscapingJsonFormatter, escape_hidden};
use crate::cli::args::LogFormat;

/// Capacity of the queue of unwritten lines.
const LOG_QUEUE_CAPACITY: usize = 4096;
/// Maximum wait for unwritten lines at the end of the program.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Log that is written until [`finish`](Self::finish).
pub(crate) struct Log {
    done: Receiver<()>,
    format: LogFormat,
    lines: LogQueue,
}

/// Sending end of the queue of log lines.
#[derive(Clone)]
struct LogQueue {
    /// Queue of lines; `None` ends the log.
    sender: SyncSender<Option<String>>,
    dropped: Arc<AtomicU64>,
}

impl LogQueue {
    fn send(&self, line: &LogLine, format: LogFormat) {
        if self.sender.try_send(Some(line.print(format))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Observer that writes the events of a server to the log.
pub(crate) struct LogObserver {
    format: LogFormat,
    quiet: bool,
    lines: LogQueue,
}

impl Log {
    /// Creates a log, and the observer that writes the events of a server to it; with `quiet`, only problems are logged.
    pub(crate) fn new(format: LogFormat, quiet: bool) -> Result<(Self, LogObserver)> {
        let (sender, receiver) = sync_channel(LOG_QUEUE_CAPACITY);
        let (finished, done) = sync_channel(1);
        let lines = LogQueue { sender, dropped: Arc::default() };
        let dropped = lines.dropped.clone();
        let work = move || {
            write_lines(&receiver, &dropped, format);
            // The receiver is gone if the program does not end with `finish`.
            let _ = finished.send(());
        };
        thread::Builder::new().name("log".to_owned()).spawn(work).context("cannot start the log")?;
        let panics = lines.clone();
        // A panic message may repeat a client's data, so it is escaped. A panic of a model fails only one request.
        std::panic::set_hook(Box::new(move |panic| {
            panics.send(&LogLine::new("panic").with(|line| line.error = Some(panic.to_string())), format);
        }));
        Ok((Self { done, format, lines: lines.clone() }, LogObserver { format, quiet, lines }))
    }

    /// Logs what the person who started the server should know.
    pub(crate) fn warn(&self, text: String) {
        self.lines.send(&LogLine::new("warning").with(|line| line.message = Some(text)), self.format);
    }

    /// Waits up to [`FINISH_TIMEOUT`] until all lines are written.
    pub(crate) fn finish(self) {
        if self.lines.sender.try_send(None).is_ok() {
            // The lines are lost if stderr is blocked.
            let _ = self.done.recv_timeout(FINISH_TIMEOUT);
        }
    }
}

fn write_lines(lines: &Receiver<Option<String>>, dropped: &AtomicU64, format: LogFormat) {
    while let Ok(Some(line)) = lines.recv() {
        // A closed stderr leaves nothing to do.
        let _ = writeln!(anstream::stderr(), "{line}");
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(
                anstream::stderr(),
                "{}",
                LogLine::new("dropped").with(|line| line.lines = Some(lost)).print(format)
            );
        }
    }
}

impl ServerObserver for LogObserver {
    fn event(&self, event: &ServerEvent<'_>) {
        let Some(line) = event_line(event, self.quiet) else { return };
        self.lines.send(&line, self.format);
    }
}

/// Returns the log line of an event, or `None` if it is not logged.
fn event_line(event: &ServerEvent<'_>, quiet: bool) -> Option<LogLine> {
    let line = match event {
        ServerEvent::Accept { error } => {
            return Some(LogLine::new("accept").with(|line| line.error = Some(error.to_string())));
        }
        ServerEvent::Ignored { path } => {
            return Some(LogLine::new("ignored").with(|line| line.file = Some(path.display().to_string())));
        }
        _ if quiet => return None,
        ServerEvent::Request(request) => LogLine::new("request").with(|line| {
            line.client = Some(request.client.to_string());
            line.method = Some(request.method.to_owned());
            line.path = Some(request.path.to_owned());
            line.status = request.status;
            line.received = Some(request.received);
            line.sent = Some(request.sent);
            line.seconds = Some(request.duration.as_secs_f64());
            line.error = request.error.map(str::to_owned);
        }),
        ServerEvent::Loaded { name, version } => {
            LogLine::new("loaded").with(|line| line.set_model(name, *version))
        }
        ServerEvent::Unloaded { name, version } => {
            LogLine::new("unloaded").with(|line| line.set_model(name, *version))
        }
        ServerEvent::Draining { requests } => {
            LogLine::new("draining").with(|line| line.requests = Some(*requests))
        }
        _ => return None,
    };
    Some(line)
}

#[derive(Debug, Default, Serialize)]
struct LogLine {
    time: String,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl LogLine {
    fn new(event: &'static str) -> Self {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        Self { time, event, ..Self::default() }
    }

    fn with(mut self, fill: impl FnOnce(&mut Self)) -> Self {
        fill(&mut self);
        self
    }

    fn set_model(&mut self, model: &str, version: u64) {
        self.model = Some(model.to_owned());
        self.version = Some(version);
    }

    fn print(&self, format: LogFormat) -> String {
        match format {
            LogFormat::Text => self.text(),
            LogFormat::Json => {
                let mut bytes = Vec::new();
                // A line of texts and numbers can always be written as JSON.
                let _ = self.serialize(&mut serde_json::Serializer::with_formatter(
                    &mut bytes,
                    EscapingJsonFormatter,
                ));
                String::from_utf8_lossy(&bytes).into_owned()
            }
        }
    }

    fn text(&self) -> String {
        let model =
            || format!("{} version {}", self.model.as_deref().unwrap_or_default(), self.version.unwrap_or(0));
        let error = self.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        let what = match self.event {
            "request" => {
                let part = |part: &Option<String>| part.clone().unwrap_or_default();
                let status = self.status.map_or_else(|| "gone".to_owned(), |status| status.to_string());
                let (received, sent) = (self.received.unwrap_or(0), self.sent.unwrap_or(0));
                let (client, method, path) = (part(&self.client), part(&self.method), part(&self.path));
                let seconds = self.seconds.unwrap_or(0.0);
                format!(
                    "{client} {method} {path} {status} {seconds:.4} s, {received} bytes in, {sent} bytes out{error}"
                )
            }
            "loaded" => format!("serving {}", model()),
            "unloaded" => format!("serving {} no longer", model()),
            "draining" => format!("ending, {} requests in flight", self.requests.unwrap_or(0)),
            "ignored" => {
                format!("ignored {}: it is not NAME/VERSION.carton", self.file.as_deref().unwrap_or_default())
            }
            "warning" => format!("warning: {}", self.message.as_deref().unwrap_or_default()),
            "panic" => format!("a panic{error}"),
            "dropped" => format!("{} log lines were lost", self.lines.unwrap_or(0)),
            _ => format!("cannot accept a connection{error}"),
        };
        format!("{} {}", self.time, escape_hidden(what))
    }
}

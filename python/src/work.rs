//! Runs long work on its own thread, while the caller's thread delivers progress and notices Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use torch2carton::crates::byte_source::{self, CancellableSink};
use torch2carton::{Action, Blob, Observer, ProgressUpdate, Sink};

use crate::errors;

/// Time between two looks at signals and progress.
const PERIOD: Duration = Duration::from_millis(50);

/// Number of bytes that are sent in less than a period.
const SMALL: u64 = 16 << 20;

/// The latest progress of a piece of work, and the wish to stop it.
#[derive(Default)]
struct Watch {
    is_stopped: AtomicBool,
    latest: Mutex<Option<Progress>>,
}

/// Arguments of the Python callable that receives progress.
#[derive(Clone, PartialEq)]
struct Progress {
    name: String,
    action: &'static str,
    done: u64,
    total: Option<u64>,
}

impl Watch {
    fn take_progress(&self) -> Option<Progress> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Observer for Watch {
    fn progress(&self, step: ProgressUpdate<'_>) {
        let action = match step.action {
            Action::Write => "write",
            Action::Compress => "compress",
            Action::Verify => "verify",
            Action::Download => "download",
            Action::Hash => "hash",
            Action::Compare => "compare",
            _ => "work",
        };
        let progress = Progress { name: step.name.to_owned(), action, done: step.done, total: step.total };
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }

    fn is_cancelled(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Runs `work` without the interpreter's lock. `progress` is called with `(name, action, done, total)` about every 50 ms. An
/// exception in it, or a signal handler's, stops the work before its next window, and is raised when the work has ended.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&dyn Observer) -> T + Send,
) -> PyResult<T> {
    let watch = Watch::default();
    let mut raised = None;
    let result = std::thread::scope(|scope| {
        let (ended, has_ended) = mpsc::sync_channel::<()>(1);
        let worker = scope.spawn(|| {
            // Dropped at the end of the work, panic or not, which wakes the caller.
            let _ended = ended;
            work(&watch)
        });
        let has_ended = Mutex::new(has_ended);
        loop {
            let wait = || has_ended.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PERIOD);
            let is_over = py.detach(wait) != Err(RecvTimeoutError::Timeout);
            if raised.is_none() {
                let seen = py.check_signals().and_then(|()| deliver(progress, &watch));
                if let Err(error) = seen {
                    watch.is_stopped.store(true, Ordering::Relaxed);
                    raised = Some(error);
                }
            }
            if is_over {
                break py.detach(|| worker.join());
            }
        }
    });
    match (raised, result) {
        (Some(error), _) => Err(error),
        (None, Ok(result)) => Ok(result),
        (None, Err(panic)) => Err(errors::panic_exception(py, &*panic)),
    }
}

/// Observer that looks at signals on the caller's thread, which does the work without the interpreter's lock. It looks once per
/// [`PERIOD`], because a look takes the lock, and most files are read in less.
struct SignalCheck {
    looked: Mutex<Instant>,
    raised: Mutex<Option<PyErr>>,
}

impl SignalCheck {
    fn new() -> Self {
        Self { looked: Mutex::new(Instant::now()), raised: Mutex::default() }
    }
}

impl Observer for SignalCheck {
    fn is_cancelled(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.elapsed() < PERIOD {
            return self.raised.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        }
        *looked = Instant::now();
        drop(looked);
        // Python runs signal handlers on its main thread only, and this does nothing on another.
        let raised = Python::attach(|py| py.check_signals().err());
        let mut kept = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none() {
            *kept = raised;
        }
        kept.is_some()
    }
}

/// Runs `work`, which is usually short, on this thread without the interpreter's lock. An exception in a signal handler stops
/// it, and is raised.
pub(crate) fn run_short<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&dyn Observer) -> T + Send,
) -> PyResult<T> {
    let signals = SignalCheck::new();
    let result = py.detach(|| work(&signals));
    match signals.raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(result),
    }
}

/// Sends the bytes of a blob to a sink without the interpreter's lock. Ctrl-C stops a large blob before its next window.
pub(crate) fn send(
    py: Python<'_>,
    blob: &(impl Blob + Sync),
    sink: &mut (impl Sink + Send),
) -> PyResult<Result<(), byte_source::Error>> {
    if blob.len() <= SMALL {
        return Ok(py.detach(|| blob.write_to(sink)));
    }
    run(py, None, |observer| blob.write_to(&mut CancellableSink { sink, observer }))
}

fn deliver(callable: Option<&Bound<'_, PyAny>>, watch: &Watch) -> PyResult<()> {
    if let (Some(callable), Some(progress)) = (callable, watch.take_progress()) {
        callable.call1((progress.name, progress.action, progress.done, progress.total))?;
    }
    Ok(())
}

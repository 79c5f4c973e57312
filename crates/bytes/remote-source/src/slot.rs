//! Result of a background thread, for which readers wait.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use byte_source::Cancelled;
use bytes::Bytes;

use crate::{RemoteOptions, Result};

/// Interval at which a waiting reader looks whether it has been stopped.
const POLL: Duration = Duration::from_millis(100);

/// Bytes that a background thread fetches.
#[derive(Debug, Default)]
pub(crate) struct Slot<T = Bytes> {
    result: Mutex<Option<Result<T>>>,
    done: Condvar,
    /// True once a reader waits.
    is_wanted: AtomicBool,
}

/// Range of the file that is requested or received.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) range: Range<u64>,
    pub(crate) slot: Arc<Slot>,
}

impl Chunk {
    pub(crate) fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }
}

impl<T: Clone + Send + 'static> Slot<T> {
    pub(crate) fn start(fetch: impl FnOnce() -> Result<T> + Send + 'static) -> Arc<Self> {
        let slot = Arc::new(Self::empty());
        let filled = Arc::clone(&slot);
        if let Err(error) = start_thread(move || filled.fill(fetch())) {
            slot.fill(Err(error));
        }
        slot
    }

    /// Creates a slot that another thread fills.
    pub(crate) fn empty() -> Self {
        Self { result: Mutex::new(None), done: Condvar::new(), is_wanted: AtomicBool::new(false) }
    }

    /// Sets the result, unless there is one.
    pub(crate) fn fill(&self, result: Result<T>) {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(result);
        self.done.notify_all();
    }

    /// Records that a reader waits for the result.
    pub(crate) fn want(&self) {
        self.is_wanted.store(true, Ordering::Release);
    }

    /// Returns true if a reader waits for the result.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// Those of the fetch, and [`crate::Error::Cancelled`] when the caller stopped all requests.
    pub(crate) fn wait(&self, options: &RemoteOptions) -> Result<T> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            if options.is_stopped() {
                return Err(Cancelled.into());
            }
            result = self.done.wait_timeout(result, POLL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Starts a thread that fetches.
///
/// # Errors
/// When the system starts no more threads.
pub(crate) fn start_thread(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name("range".to_owned()).spawn(work);
    thread.map(drop).map_err(|reason| crate::Error::Connection {
        address: "a range".to_owned(),
        reason: format!("no thread can be started: {reason}"),
    })
}

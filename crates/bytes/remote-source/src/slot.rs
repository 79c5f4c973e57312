//! Result of a background thread, for which readers wait.

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
}

impl<T: Clone + Send + 'static> Slot<T> {
    /// Starts a thread that fetches.
    pub(crate) fn start(fetch: impl FnOnce() -> Result<T> + Send + 'static) -> Arc<Self> {
        let slot = Arc::new(Self { result: Mutex::new(None), done: Condvar::new() });
        let filled = Arc::clone(&slot);
        let work = move || {
            let result = fetch();
            *filled.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            filled.done.notify_all();
        };
        let thread = std::thread::Builder::new().name("range".to_owned()).spawn(work);
        if let Err(reason) = thread {
            let error = crate::Error::Connection {
                address: "a range".to_owned(),
                reason: format!("no thread can be started: {reason}"),
            };
            *slot.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(error));
        }
        slot
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

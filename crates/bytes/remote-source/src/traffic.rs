//! Counts of requests and bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests and bytes of remote files so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// Number of requests, redirects included.
    pub requests: u64,
    /// Number of bytes in the bodies of the answers.
    pub bytes: u64,
}

/// Counters that the files of a call share.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrafficCounter {
    requests: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl TrafficCounter {
    pub(crate) fn get(&self) -> Traffic {
        Traffic { requests: self.requests.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }

    #[cfg(feature = "http")]
    pub(crate) fn add_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(feature = "http")]
    pub(crate) fn add_bytes(&self, count: usize) {
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}

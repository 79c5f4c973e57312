//! Enforces a minimum transfer speed: otherwise, a client that sends or reads one byte now and then would hold a connection
//! forever.

use std::time::{Duration, Instant};

use crate::options::Timeouts;

/// Start time and byte count of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    since: Instant,
    bytes: u64,
}

impl Pace {
    pub(crate) fn start() -> Self {
        Self { since: Instant::now(), bytes: 0 }
    }

    pub(crate) fn advance(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Leaves out a time in which the other side could not move bytes.
    pub(crate) fn pause(&mut self, time: Duration) {
        self.since = self.since.checked_add(time).unwrap_or(self.since);
    }

    /// Returns the instant by which the next bytes must have moved.
    pub(crate) fn deadline(&self, timeouts: &Timeouts) -> Instant {
        let earned = self.bytes.checked_div(u64::from(timeouts.bytes_per_second)).unwrap_or(u64::MAX);
        let allowed = timeouts.transfer.saturating_add(Duration::from_secs(earned));
        self.since.checked_add(allowed.min(FOREVER)).unwrap_or(self.since)
    }
}

/// Upper bound on timeouts: longer than any server runs without a restart, and short enough to add to an [`Instant`].
pub(crate) const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_earn_time() {
        let timeouts =
            Timeouts { transfer: Duration::from_secs(3), bytes_per_second: 100, ..Timeouts::default() };
        let mut pace = Pace::start();
        let allowed = |pace: &Pace| pace.deadline(&timeouts).duration_since(pace.since).as_secs();
        assert_eq!(allowed(&pace), 3);
        pace.advance(99);
        assert_eq!(allowed(&pace), 3);
        pace.advance(1);
        assert_eq!(allowed(&pace), 4);
        pace.advance(usize::MAX);
        assert_eq!(allowed(&pace), FOREVER.as_secs());
    }
}

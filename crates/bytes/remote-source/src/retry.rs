//! Pauses between tries.

use std::time::{Duration, Instant, SystemTime};

use byte_source::Cancelled;

use crate::{Error, Result};

/// Number of tries in a row without a new byte.
const TRIES_MAX: u32 = 5;
/// Pause before the second try; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Interval at which a pause looks whether it has been stopped.
const POLL: Duration = Duration::from_millis(50);

/// Error of one try, and the pause in seconds that the server asks for.
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) pause: Option<u64>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, pause: None }
    }
}

/// Number of tries in a row that failed without a new byte, and the time in seconds that the server asked to wait before them.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    failed: u32,
    waited: u64,
}

impl Tries {
    /// Waits before the next try. A pause that the server asks for does not count as a failure, as long as all pauses together fit in the timeout.
    ///
    /// # Errors
    /// The error of the failed try if another one would not help, or too many have failed; [`Error::Wait`]; [`Error::Cancelled`] when
    /// `is_stopped` returns true.
    pub(crate) fn try_again(
        &mut self,
        Failure { error, pause: asked }: Failure,
        has_new_bytes: bool,
        timeout: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        if has_new_bytes {
            *self = Self::default();
        }
        if !error.is_passing() {
            return Err(error);
        }
        if let Some(seconds) = asked {
            self.waited = self.waited.saturating_add(seconds);
            if Duration::from_secs(self.waited) > timeout {
                return Err(error.with_wait(seconds));
            }
        }
        if asked.is_none_or(|seconds| seconds == 0) {
            self.failed = self.failed.saturating_add(1);
        }
        if self.failed >= TRIES_MAX {
            return Err(error);
        }
        pause(asked.map_or_else(|| pause_before(self.failed), Duration::from_secs), is_stopped)
    }
}

/// Returns the pause before the next try after `failed` ones.
pub(crate) fn pause_before(failed: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failed.saturating_sub(1)))
}

/// Parses the time in seconds that a server asks to wait: a number, or a date.
pub(crate) fn retry_after(text: &str) -> Option<u64> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().unwrap_or(u64::MAX));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    // A date that has passed is a clock that differs. A part of a second is waited for as a whole one.
    Some(date.duration_since(SystemTime::now()).map_or(0, whole_seconds))
}

/// Rounds up.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// Waits.
///
/// # Errors
/// [`Error::Cancelled`] when `is_stopped` returns true.
pub(crate) fn pause(pause: Duration, is_stopped: &dyn Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < pause {
        if is_stopped() {
            return Err(Cancelled.into());
        }
        std::thread::sleep(POLL.min(pause));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_number_or_a_date() {
        assert_eq!(retry_after(" 3600 "), Some(3600));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(0));
        assert!(retry_after("Fri, 31 Dec 9999 23:59:59 GMT").is_some_and(|seconds| seconds > 3600));
        assert_eq!(retry_after("99999999999999999999999"), Some(u64::MAX));
        assert_eq!((retry_after("soon"), retry_after("-1"), retry_after("")), (None, None, None));
    }
}

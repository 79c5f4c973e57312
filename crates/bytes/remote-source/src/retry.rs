//! Pauses between tries.

use std::time::{Duration, Instant, SystemTime};

use byte_source::Cancelled;

use crate::{Error, Result};

/// Number of tries in a row without a new byte.
const TRIES_MAX: u32 = 5;
/// Pause before the second try; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause that a server may ask for.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(30);
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

/// Number of tries in a row that failed without a new byte.
#[derive(Debug, Default)]
pub(crate) struct Tries(u32);

impl Tries {
    /// Waits before the next try.
    ///
    /// # Errors
    /// The error of the failed try if another one would not help, or too many have failed; [`Error::Wait`]; [`Error::Cancelled`] when
    /// `is_stopped` returns true.
    pub(crate) fn try_again(
        &mut self,
        Failure { error, pause: asked }: Failure,
        has_new_bytes: bool,
        address: &str,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        if has_new_bytes {
            self.0 = 0;
        }
        self.0 = self.0.saturating_add(1);
        if !error.is_passing() || self.0 >= TRIES_MAX {
            return Err(error);
        }
        pause(self.0, asked, address, is_stopped)
    }
}

/// Parses the time in seconds that a server asks to wait: a number, or a date.
pub(crate) fn retry_after(text: &str) -> Option<u64> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().unwrap_or(u64::MAX));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    // A date that has passed is a clock that differs.
    Some(date.duration_since(SystemTime::now()).map_or(0, |left| left.as_secs()))
}

/// Waits before try number `tries`, as long as the server asked for.
///
/// # Errors
/// [`Error::Wait`] if the server asked for more than half a minute.
pub(crate) fn pause(
    tries: u32,
    asked: Option<u64>,
    address: &str,
    is_stopped: &dyn Fn() -> bool,
) -> Result<()> {
    let pause = match asked {
        Some(seconds) if Duration::from_secs(seconds) > PAUSE_MAX => {
            return Err(Error::Wait { address: address.to_owned(), seconds });
        }
        Some(seconds) => Duration::from_secs(seconds),
        None => FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(tries.saturating_sub(1))),
    };
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

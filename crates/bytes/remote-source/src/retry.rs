//! Pauses between tries.

use std::time::{Duration, Instant};

use byte_source::Cancelled;

use crate::{Error, RemoteOptions, Result};

/// Number of tries in a row without a new byte.
pub(crate) const TRIES_MAX: u32 = 5;
/// Pause before the second try; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause that a server may ask for.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Interval at which a pause looks whether it has been stopped.
const POLL: Duration = Duration::from_millis(50);

/// Waits before try number `tries`, as long as the server asked for.
///
/// # Errors
/// [`Error::Wait`] if the server asked for more than half a minute.
pub(crate) fn pause(tries: u32, asked: Option<u64>, address: &str, options: &RemoteOptions) -> Result<()> {
    let pause = match asked {
        Some(seconds) if Duration::from_secs(seconds) > PAUSE_MAX => {
            return Err(Error::Wait { address: address.to_owned(), seconds });
        }
        Some(seconds) => Duration::from_secs(seconds),
        None => FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(tries.saturating_sub(1))),
    };
    let start = Instant::now();
    while start.elapsed() < pause {
        if options.is_stopped() {
            return Err(Cancelled.into());
        }
        std::thread::sleep(POLL.min(pause));
    }
    Ok(())
}

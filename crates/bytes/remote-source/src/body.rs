//! Receives the bodies of answers, in bounded time and memory.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use ureq::Body;
use ureq::http::Response;

use crate::answer::header;
use crate::range_buffers::RangeBuffer;
use crate::{Error, RemoteOptions, Result};

/// Slowest rate, in bytes per second, at which a body may come after the first silence.
const SLOWEST: u64 = 32 << 10;
/// Bytes that are read from a document at a time.
const READ: usize = 64 << 10;
/// Number of bytes of a document, such as a listing, that decides how long it may take.
pub(crate) const DOCUMENT_LEN: u64 = 4 << 20;
/// Longest time for a body that is not needed, or that only explains an error.
const BRIEF: Duration = Duration::from_secs(2);
/// Longest body of a redirect that is read, in bytes.
const UNNEEDED_MAX: u64 = 16 << 10;
/// Longest text of an error that is read and shown, in bytes.
const MESSAGE_MAX: u64 = 2000;
const MESSAGE_SHOWN: usize = 200;

/// Reads a body until the buffer is full, which is at its end if `is_last`.
pub(crate) fn receive(
    options: &RemoteOptions,
    reader: &mut dyn Read,
    received: &mut RangeBuffer,
    is_last: bool,
    start: Instant,
    address: &str,
) -> Result<()> {
    let expected = received.expected();
    let limit = slowest(options.timeout, expected);
    let mut beyond = [0];
    loop {
        let room = received.room();
        let is_full = room.is_empty();
        if is_full && !is_last {
            return Ok(());
        }
        // The end is read, too: only then can the next request use the connection.
        let count = reader.read(if is_full { &mut beyond } else { room });
        let after = start.elapsed();
        let count = match count {
            Err(_) if is_full => return Ok(()),
            // What drips may not be bytes of the file.
            Err(_) if after > limit => {
                let (address, received) = (address.to_owned(), received.len());
                return Err(Error::Slow { address, received, expected, after });
            }
            count => count.map_err(|reason| connection_error(address, &reason))?,
        };
        if is_full {
            if count == 0 {
                return Ok(());
            }
            let reason = format!("it has more than the {expected} bytes that were asked for");
            return Err(Error::Answer { address: address.to_owned(), reason });
        }
        options.counter.add_bytes(count);
        received.add(count);
        let total = received.len();
        if count == 0 {
            let reason = format!("the connection ended after {total} of {expected} bytes");
            return Err(Error::Connection { address: address.to_owned(), reason });
        }
        if after > limit {
            let address = address.to_owned();
            return Err(Error::Slow { address, received: total, expected, after });
        }
        if options.is_stopped() {
            return Err(Error::Cancelled(byte_source::Cancelled));
        }
    }
}

/// Reads a document, which has at most `limit` bytes.
///
/// # Errors
/// When the connection breaks, or the document is longer or takes too long.
pub(crate) fn receive_document(
    options: &RemoteOptions,
    response: Response<Body>,
    limit: u64,
    address: &str,
) -> Result<Vec<u8>> {
    let start = Instant::now();
    let mut reader = response.into_body().into_reader();
    let (mut document, mut buffer) = (Vec::new(), vec![0; READ]);
    loop {
        let count = reader.read(&mut buffer).map_err(|reason| connection_error(address, &reason))?;
        let received = document.len() as u64;
        if count == 0 {
            return Ok(document);
        }
        options.counter.add_bytes(count);
        document.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if document.len() as u64 > limit {
            let reason = format!("it has more than {limit} bytes");
            return Err(Error::Answer { address: address.to_owned(), reason });
        }
        let after = start.elapsed();
        if after > slowest(options.timeout, received) {
            return Err(Error::Slow { address: address.to_owned(), received, expected: limit, after });
        }
        if options.is_stopped() {
            return Err(Error::Cancelled(byte_source::Cancelled));
        }
    }
}

/// Reads the body of an answer that is not needed if it is short: only then can the next request use the connection.
pub(crate) fn finish(response: Response<Body>) {
    let len = header(&response, "content-length").and_then(|len| len.parse::<u64>().ok());
    if len.is_some_and(|len| len <= UNNEEDED_MAX) {
        // If this fails, the next request opens a connection.
        read_briefly(response, UNNEEDED_MAX);
    }
}

/// Returns the first `limit` bytes of a body, or those that came without a long wait.
fn read_briefly(response: Response<Body>, limit: u64) -> Vec<u8> {
    let start = Instant::now();
    let mut reader = response.into_body().into_reader().take(limit);
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    while start.elapsed() < BRIEF {
        match reader.read(&mut buffer) {
            Ok(count) if count > 0 => received.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            _ => break,
        }
    }
    received
}

/// Returns the longest time that a body of `len` bytes may take.
pub(crate) fn slowest(timeout: Duration, len: u64) -> Duration {
    timeout.saturating_mul(4).saturating_add(Duration::from_secs(len / SLOWEST))
}

pub(crate) fn connection_error(address: &str, reason: &io::Error) -> Error {
    Error::Connection { address: address.to_owned(), reason: reason.to_string() }
}

/// Returns the first line of what a server says about an error, shortened and without control characters.
pub(crate) fn message(response: Response<Body>) -> String {
    if let Some(message) = header(&response, "x-error-message") {
        return clean(message);
    }
    let is_text = header(&response, "content-type").is_some_and(|kind| kind.starts_with("text/plain"));
    let text = if is_text { read_briefly(response, MESSAGE_MAX) } else { Vec::new() };
    clean(String::from_utf8_lossy(&text).trim().lines().next().unwrap_or_default())
}

fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MESSAGE_SHOWN).collect()
}

//! Downloads a file whose SHA-256 is known, and goes on from the bytes that an earlier download left.
//!
//! The URL may come from a hostile file. Its host is checked like that of any address, also after a redirect: see
//! [`crate::guard`]. A proxy is not used, because it would connect to addresses that were never checked.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::time::Instant;

use byte_source::{ProgressReporter, Sha256};
use ureq::Body;
use url::Url;

use crate::address::{redact, shown_url};
use crate::answer::{check_encoding, header, parse_content_range};
use crate::body::{connection_error, slowest};
use crate::client::Client;
use crate::proxies::Proxies;
use crate::retry::{Failure, Tries};
use crate::target::RangeTarget;
use crate::{Error, RemoteOptions, Result};

/// Bytes received at a time, and so the bytes between two calls of the observer.
const BUFFER: usize = 128 << 10;
/// Bytes of the partial file that are read back at a time.
const READ_BACK: usize = 1 << 20;

/// Downloads files over HTTPS.
#[derive(Debug)]
pub struct Downloader {
    client: Client,
}

/// File to download.
#[derive(Clone, Copy, Debug)]
pub struct WantedFile<'w> {
    pub url: &'w str,
    pub sha256: &'w [u8; 32],
    /// Largest size in bytes, because a server could send without end.
    pub max_bytes: u64,
}

/// Bytes that are in the file already: their number and their hash.
struct Beginning {
    len: u64,
    hash: Sha256,
}

impl Downloader {
    /// Creates a client whose requests have these options. It uses no proxy.
    ///
    /// # Errors
    /// [`Error::Certificates`].
    pub fn new(options: &RemoteOptions) -> Result<Self> {
        Ok(Self::from_client(Client::new(options)?))
    }

    fn from_client(mut client: Client) -> Self {
        client.proxies = Proxies::default();
        Self { client }
    }

    /// Downloads a file into `out`, which may hold the beginning of it.
    ///
    /// When a connection breaks, or the observer stops the download, `out` keeps the bytes received so far, and a later
    /// call resumes from there. A caller that does not want to resume removes the file. Bytes that turn out to be wrong are
    /// removed from `out`. The observer of `work` receives the number of bytes so far, at least once per connection and per
    /// 128 KiB, so a download stops within one buffer, or, while a server is silent, within [`RemoteOptions::timeout`].
    ///
    /// # Errors
    /// [`Error::Cancelled`] when the observer stops the work; [`Error::Write`] when `out` cannot be written; otherwise when the
    /// server refuses, sends another file or one that is too long, or breaks several connections in a row.
    pub fn download(
        &self,
        wanted: &WantedFile<'_>,
        out: &mut File,
        work: ProgressReporter<'_>,
    ) -> Result<()> {
        let url = Url::parse(wanted.url).ok().filter(|url| matches!(url.scheme(), "https" | "http"));
        let url =
            url.ok_or_else(|| Error::Address { address: redact(wanted.url), expected: "https://HOST/PATH" })?;
        let target = RangeTarget { address: shown_url(&url), url, token: None, is_resolved: false };
        let (mut tries, mut most, mut is_restarted) = (Tries::default(), 0_u64, false);
        loop {
            let beginning = Beginning::read(out, work)?;
            let start = beginning.len;
            if start > 0 && beginning.hash.clone().digest() == *wanted.sha256 {
                return Ok(());
            }
            let Err(failure) = self.connect(wanted, &target, beginning, out, work) else { return Ok(()) };
            let is_wrong = matches!(failure.error, Error::Answer { .. } | Error::WrongHash { .. });
            if is_wrong && start > 0 && !is_restarted {
                // The server cannot go on from there, or the first bytes are those of another file.
                out.set_len(0).map_err(write_error)?;
                is_restarted = true;
                continue;
            }
            let there = out.metadata().map_err(write_error)?.len();
            let is_stopped = || work.advance(there).is_err();
            tries.try_again(failure, there > most, self.client.options.timeout, &is_stopped)?;
            most = most.max(there);
        }
    }

    /// Makes one connection, which delivers the rest of the file or the whole file anew.
    fn connect(
        &self,
        wanted: &WantedFile<'_>,
        target: &RangeTarget,
        mut beginning: Beginning,
        out: &mut File,
        work: ProgressReporter<'_>,
    ) -> Result<(), Failure> {
        let range = (beginning.len > 0).then(|| format!("bytes={}-", beginning.len));
        let (response, _) = self.client.follow(target, range.as_deref(), wanted.max_bytes)?;
        check_encoding(&response, &target.address)?;
        let continues =
            |text| parse_content_range(text).is_some_and(|(range, len)| range == (beginning.len..len));
        match response.status().as_u16() {
            200 => beginning = Beginning::none(out)?,
            206 if header(&response, "content-range").is_some_and(continues) => {}
            status => {
                let reason = format!("its status is {status}, expected the bytes from {} on", beginning.len);
                return Err(Error::Answer { address: target.address.clone(), reason }.into());
            }
        }
        Ok(self.receive(wanted, &target.address, response.into_body(), beginning, out, work)?)
    }

    /// Appends a body to the file, and compares the hash.
    fn receive(
        &self,
        wanted: &WantedFile<'_>,
        address: &str,
        body: Body,
        beginning: Beginning,
        out: &mut File,
        work: ProgressReporter<'_>,
    ) -> Result<()> {
        let (options, begun) = (&self.client.options, Instant::now());
        let Beginning { len: start, mut hash } = beginning;
        let total = body.content_length().map(|len| start.saturating_add(len));
        let too_large = || Error::TooLarge { address: address.to_owned(), limit: wanted.max_bytes };
        if total.is_some_and(|total| total > wanted.max_bytes) {
            return Err(too_large());
        }
        let work = work.with_total(total);
        let mut reader = body.into_reader();
        let (mut buffer, mut done) = (vec![0; BUFFER], start);
        loop {
            let count = reader.read(&mut buffer).map_err(|reason| connection_error(address, &reason))?;
            if count == 0 {
                break;
            }
            options.counter.add_bytes(count);
            done = done.saturating_add(count as u64);
            if done > wanted.max_bytes {
                // The beginning of a file that is too large is of no use.
                Beginning::none(out)?;
                return Err(too_large());
            }
            let bytes = buffer.get(..count).unwrap_or_default();
            out.write_all(bytes).map_err(write_error)?;
            hash.update(bytes);
            work.advance(done)?;
            let (received, after) = (done.saturating_sub(start), begun.elapsed());
            if after > slowest(options.timeout, received) {
                let expected = total.unwrap_or(wanted.max_bytes).saturating_sub(start);
                return Err(Error::Slow { address: address.to_owned(), received, expected, after });
            }
        }
        let found = hash.digest();
        if found == *wanted.sha256 {
            return Ok(());
        }
        Beginning::none(out)?;
        Err(Error::WrongHash { address: address.to_owned(), found, expected: *wanted.sha256 })
    }
}

impl Beginning {
    /// Hashes the bytes in `out` and leaves its position at the end.
    fn read(out: &mut File, work: ProgressReporter<'_>) -> Result<Self> {
        let mut hash = Sha256::default();
        out.rewind().map_err(write_error)?;
        let there = out.metadata().map_err(write_error)?.len();
        let mut buffer = vec![0; READ_BACK];
        loop {
            work.advance(there)?;
            let count = out.read(&mut buffer).map_err(write_error)?;
            if count == 0 {
                let len = out.stream_position().map_err(write_error)?;
                return Ok(Self { len, hash });
            }
            hash.update(buffer.get(..count).unwrap_or_default());
        }
    }

    /// Removes all bytes from `out`.
    fn none(out: &mut File) -> Result<Self> {
        out.set_len(0).and_then(|()| out.rewind()).map_err(write_error)?;
        Ok(Self { len: 0, hash: Sha256::default() })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is passed to `map_err`")]
fn write_error(reason: io::Error) -> Error {
    Error::Write { reason: reason.to_string() }
}

#[cfg(test)]
mod tests;

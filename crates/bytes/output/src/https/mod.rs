//! Downloads a file over HTTP in constant memory: resumes broken connections, and computes the SHA-256 on the fly.
//!
//! A connection has four steps, each a module: [`follow`] sends requests and follows redirects, [`accept`] checks the
//! response, [`decode`] undoes the content encoding, [`store`] writes the bytes.
//!
//! A URL may come from a hostile file, so the addresses that a host name resolves to are checked before anything
//! connects: private and loopback addresses are refused, also after a redirect. With [`DownloadOptions::allow_http`]
//! the first URL may name a private address itself, and its redirect targets may then be private too. Proxies are not
//! used, because they would connect to addresses that were never checked.
//!
//! Facts: RFC 9110 (redirects, ranges, content encodings).

mod accept;
mod decode;
mod failure;
mod follow;
mod store;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::time::Duration;

use byte_source::ProgressReporter;
use remote_source::is_public_address;
use sha2::{Digest, Sha256};

use self::failure::DownloadFailure;
use crate::{Error, Result};

/// Number of broken connections in a row, without a new byte, after which a download fails.
const BROKEN_CONNECTIONS_MAX: u32 = 5;
/// Pause before the first new connection; each further pause is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of the partial file that are read back at a time.
const READ_BACK: usize = 1 << 20;

/// Permissions and limits of a download.
#[derive(Clone, Copy, Debug)]
pub struct DownloadOptions {
    /// Allows http URLs, and URLs that themselves name a private address.
    pub allow_http: bool,
    /// Time without data after which a connection counts as broken.
    pub timeout: Duration,
    /// Largest size of the decoded file in bytes, because a server could send without end.
    pub max_bytes: u64,
}

/// Downloads the file with this SHA-256 from `url` into `out`, which may hold the beginning of the file.
///
/// When a connection breaks, or the observer stops the download, `out` keeps the bytes received so far, and a later
/// call resumes from there. A caller that does not want to resume removes the file. Bytes that turn out to be wrong are
/// removed from `out`. The observer of `work` receives the number of bytes so far, at least once per connection and per
/// 128 KiB, so a download stops within one buffer, or, while a server is silent, within [`DownloadOptions::timeout`].
///
/// # Errors
/// [`Error::Cancelled`] when the observer stops the work; [`Error::WriteDownload`] when `out` cannot be written;
/// otherwise a variant with a URL.
pub fn download(
    url: &str,
    sha256: &[u8; 32],
    out: &mut File,
    options: &DownloadOptions,
    work: ProgressReporter<'_>,
) -> Result<()> {
    Download { url, sha256, options, is_public: is_public_address }.run(out, work)
}

/// Parameters of one download: the URL, the expected SHA-256, and the rules.
struct Download<'d> {
    url: &'d str,
    sha256: &'d [u8; 32],
    options: &'d DownloadOptions,
    /// Predicate for addresses of the public Internet: [`is_public_address`] except in tests.
    is_public: fn(IpAddr) -> bool,
}

/// Partial file: the hash and the length of the bytes received so far.
struct PartialDownload {
    hash: Sha256,
    len: u64,
}

impl Download<'_> {
    fn run(&self, out: &mut File, work: ProgressReporter<'_>) -> Result<()> {
        let (mut tries, mut most, mut restarted) = (0_u32, 0_u64, false);
        loop {
            let beginning = PartialDownload::read(out, work)?;
            if beginning.len > 0 && beginning.sha256() == *self.sha256 {
                return Ok(());
            }
            let error = match self.connect(beginning, out, work) {
                Ok(()) => return Ok(()),
                Err(DownloadFailure::Final(error)) => return Err(error),
                Err(DownloadFailure::Restart(error)) => {
                    out.set_len(0).map_err(download_write_error)?;
                    if restarted {
                        return Err(error);
                    }
                    restarted = true;
                    continue;
                }
                Err(DownloadFailure::Resume(error)) => error,
            };
            let there = out.metadata().map_err(download_write_error)?.len();
            if there > most {
                (tries, most) = (0, there);
            }
            tries = tries.saturating_add(1);
            if tries >= BROKEN_CONNECTIONS_MAX {
                return Err(error);
            }
            std::thread::sleep(RETRY_PAUSE.saturating_mul(2_u32.saturating_pow(tries.saturating_sub(1))));
        }
    }

    /// Makes one connection, which delivers the rest of the partial file or the whole file anew.
    fn connect(
        &self,
        beginning: PartialDownload,
        out: &mut File,
        work: ProgressReporter<'_>,
    ) -> Result<(), DownloadFailure> {
        let (url, response) = self.follow(beginning.len)?;
        let accepted = accept::accept(&url, response, beginning.len)?;
        let body = decode::decode(&url, accepted.body, &accepted.encoding)?;
        let beginning = if accepted.is_resumed { beginning } else { PartialDownload::truncate_file(out)? };
        self.store(body, accepted.len, beginning, out, work)
    }
}

impl PartialDownload {
    /// Hashes the bytes in `out` and leaves its position at the end.
    fn read(out: &mut File, work: ProgressReporter<'_>) -> Result<Self> {
        let mut hash = Sha256::new();
        out.rewind().map_err(download_write_error)?;
        let there = out.metadata().map_err(download_write_error)?.len();
        let mut buffer = vec![0; READ_BACK];
        loop {
            work.advance(there)?;
            let read = out.read(&mut buffer).map_err(download_write_error)?;
            if read == 0 {
                break;
            }
            hash.update(buffer.get(..read).unwrap_or_default());
        }
        let len = out.seek(SeekFrom::End(0)).map_err(download_write_error)?;
        Ok(Self { hash, len })
    }

    /// Truncates `out` to no bytes.
    fn truncate_file(out: &mut File) -> Result<Self, DownloadFailure> {
        out.set_len(0)
            .and_then(|()| out.rewind())
            .map_err(|error| DownloadFailure::Final(download_write_error(error)))?;
        Ok(Self { hash: Sha256::new(), len: 0 })
    }

    fn sha256(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }
}

fn download_write_error(reason: io::Error) -> Error {
    Error::WriteDownload { reason }
}

#[cfg(test)]
mod tests;

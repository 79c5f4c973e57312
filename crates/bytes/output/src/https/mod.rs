//! A file over HTTP, in constant memory: resumed where a connection breaks, its SHA-256 checked as the bytes come.
//!
//! A connection is four steps, each a file here: [`follow`] the redirects, [`accept`] the answer, [`decode`] its
//! content encoding, [`store`] the bytes.
//!
//! A URL may come from a hostile file, so the addresses that a host name resolves to are checked before anything
//! connects: private and loopback addresses are refused, also when a redirect leads there. With
//! [`DownloadOptions::allow_http`] the first URL may name a private address itself; what it redirects to may then
//! be private too. Proxies are not used: they would connect to addresses that were never checked.
//!
//! Facts: RFC 9110 (redirects, ranges, content encodings).

mod accept;
mod address;
mod decode;
mod failure;
mod follow;
mod store;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::time::Duration;

use byte_source::Work;
use sha2::{Digest, Sha256};

use self::failure::Failure;
use crate::{Error, Result};

/// How often in a row a download is resumed without a new byte.
const TRIES: u32 = 5;
/// How long the first of these waits; each of the next waits twice as long.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of the file that are read back at a time.
const READ_BACK: usize = 1 << 20;

/// What a download may do.
#[derive(Clone, Copy, Debug)]
pub struct DownloadOptions {
    /// Whether http URLs are fetched, and URLs that name a private address themselves.
    pub allow_http: bool,
    /// How long nothing may come before a connection counts as broken.
    pub timeout: Duration,
    /// The most bytes that the file may have, decoded. A server could send without end.
    pub max_bytes: u64,
}

/// Fetches the file with this hash from `url` into `out`, which may hold the beginning of it.
///
/// When a connection breaks, or the observer stops the download, `out` keeps what came, and a later call resumes
/// from there. A caller that does not want to resume removes the file. Bytes that turn out to be wrong are removed
/// here. `work` learns how many bytes there are at least once per connection and per 128 KiB, so a download stops within
/// one buffer, or, while a server is silent, within [`DownloadOptions::timeout`].
///
/// # Errors
/// [`Error::Cancelled`] when the observer stops the work; [`Error::WriteDownload`] when `out` cannot be written; otherwise
/// the kinds that have a URL.
pub fn download(
    url: &str,
    sha256: &[u8; 32],
    out: &mut File,
    options: &DownloadOptions,
    work: Work<'_>,
) -> Result<()> {
    Download { url, sha256, options, is_public: address::is_public }.run(out, work)
}

/// What is downloaded, and under which rules.
struct Download<'d> {
    url: &'d str,
    sha256: &'d [u8; 32],
    options: &'d DownloadOptions,
    /// Which addresses belong to the Internet: [`address::is_public`] except in tests.
    is_public: fn(IpAddr) -> bool,
}

/// The part of the file that is there.
struct Beginning {
    hash: Sha256,
    len: u64,
}

impl Download<'_> {
    fn run(&self, out: &mut File, work: Work<'_>) -> Result<()> {
        let (mut tries, mut most, mut restarted) = (0_u32, 0_u64, false);
        loop {
            let beginning = Beginning::read(out, work)?;
            if beginning.len > 0 && beginning.sha256() == *self.sha256 {
                return Ok(());
            }
            let error = match self.connect(beginning, out, work) {
                Ok(()) => return Ok(()),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Restart(error)) => {
                    out.set_len(0).map_err(cannot_write)?;
                    if restarted {
                        return Err(error);
                    }
                    restarted = true;
                    continue;
                }
                Err(Failure::Resume(error)) => error,
            };
            let there = out.metadata().map_err(cannot_write)?.len();
            if there > most {
                (tries, most) = (0, there);
            }
            tries = tries.saturating_add(1);
            if tries >= TRIES {
                return Err(error);
            }
            std::thread::sleep(PAUSE.saturating_mul(2_u32.saturating_pow(tries.saturating_sub(1))));
        }
    }

    /// One connection, which brings what follows the beginning, or the whole file anew.
    fn connect(&self, beginning: Beginning, out: &mut File, work: Work<'_>) -> Result<(), Failure> {
        let (url, response) = self.follow(beginning.len)?;
        let accepted = accept::accept(&url, response, beginning.len)?;
        let body = decode::decode(&url, accepted.body, &accepted.encoding)?;
        let beginning = if accepted.resumes { beginning } else { Beginning::empty(out)? };
        self.store(body, accepted.len, beginning, out, work)
    }
}

impl Beginning {
    /// Hashes what is there. The file's position is its end then.
    fn read(out: &mut File, work: Work<'_>) -> Result<Self> {
        let mut hash = Sha256::new();
        out.rewind().map_err(cannot_write)?;
        let there = out.metadata().map_err(cannot_write)?.len();
        let mut buffer = vec![0; READ_BACK];
        loop {
            work.advance(there)?;
            let read = out.read(&mut buffer).map_err(cannot_write)?;
            if read == 0 {
                break;
            }
            hash.update(buffer.get(..read).unwrap_or_default());
        }
        let len = out.seek(SeekFrom::End(0)).map_err(cannot_write)?;
        Ok(Self { hash, len })
    }

    /// Removes what is there.
    fn empty(out: &mut File) -> Result<Self, Failure> {
        out.set_len(0).and_then(|()| out.rewind()).map_err(|error| Failure::Final(cannot_write(error)))?;
        Ok(Self { hash: Sha256::new(), len: 0 })
    }

    fn sha256(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }
}

fn cannot_write(reason: io::Error) -> Error {
    Error::WriteDownload { reason }
}

#[cfg(test)]
mod tests;

//! Writes a body to the file: counts and hashes the bytes, and compares the hash.

use std::fs::File;
use std::io::{self, Read, Write};

use byte_source::ProgressReporter;
use sha2::Digest;

use super::decode::BUFFER;
use super::failure::DownloadFailure;
use super::{Download, PartialDownload, download_write_error};
use crate::Error;

impl Download<'_> {
    /// Appends `body` to the partial file; `len` is the length of the body in bytes, if the server reports it.
    pub(super) fn store(
        &self,
        mut body: impl Read,
        len: Option<u64>,
        beginning: PartialDownload,
        out: &mut File,
        work: ProgressReporter<'_>,
    ) -> Result<(), DownloadFailure> {
        let PartialDownload { mut hash, len: start } = beginning;
        let total = len.map(|len| start.saturating_add(len));
        if total.is_some_and(|total| total > self.options.max_bytes) {
            return Err(self.too_large());
        }
        let work = work.with_total(total);
        let mut buffer = vec![0; BUFFER];
        let mut done = start;
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A truncated encoded body looks damaged, so a decoding error may be a broken connection.
                Err(reason) => {
                    return Err(DownloadFailure::Resume(Error::Broken { url: self.url.to_owned(), reason }));
                }
            };
            done = done.saturating_add(read as u64);
            if done > self.options.max_bytes {
                // The beginning of a file that is too large is of no use.
                PartialDownload::truncate_file(out)?;
                return Err(self.too_large());
            }
            let bytes = buffer.get(..read).unwrap_or_default();
            out.write_all(bytes).map_err(|error| DownloadFailure::Final(download_write_error(error)))?;
            hash.update(bytes);
            work.advance(done).map_err(|stopped| DownloadFailure::Final(stopped.into()))?;
        }
        let found: [u8; 32] = hash.finalize().into();
        if found == *self.sha256 {
            return Ok(());
        }
        PartialDownload::truncate_file(out)?;
        let error = Error::WrongHash { url: self.url.to_owned(), found, expected: *self.sha256 };
        // The bytes of an earlier connection or of another server may be the wrong ones.
        Err(if start > 0 { DownloadFailure::Restart(error) } else { DownloadFailure::Final(error) })
    }

    fn too_large(&self) -> DownloadFailure {
        DownloadFailure::Final(Error::TooLarge { url: self.url.to_owned(), limit: self.options.max_bytes })
    }
}

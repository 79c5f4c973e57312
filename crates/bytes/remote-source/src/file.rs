//! A remote file as a byte source.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{ReadError, Source};
use bytes::Bytes;
use url::Url;

use crate::answer::{Asked, Version};
use crate::client::{Client, Part, RangeTarget};
use crate::fetcher::Fetcher;
use crate::read_ahead::ReadAhead;
use crate::slot::Slot;
use crate::{Address, Error, HubAddress, RemoteOptions, RepositoryKind, Result, Traffic};

/// Bytes that are read at the start and at the end of a file when it is opened. The pickle of a large checkpoint and the
/// directory of its archive are about 100 kB each.
const EDGE: u64 = 256 << 10;
/// Distance in bytes up to which two ranges are requested as one.
const JOIN_GAP: u64 = 256 << 10;

/// File on a web server or on the Hub.
#[derive(Debug)]
pub struct RemoteFile {
    path: PathBuf,
    fetcher: Arc<Fetcher>,
    version: Arc<Version>,
    /// Bytes at the start and at the end of the file, by their offset.
    edges: Vec<(u64, Bytes)>,
    ahead: ReadAhead,
}

impl RemoteFile {
    /// Opens the file at `address`, and reads its first and last bytes in parallel.
    ///
    /// # Errors
    /// When the address names no file, the server refuses it or does not send ranges, or requests are switched off.
    pub fn open(address: &Address, options: &RemoteOptions) -> Result<Self> {
        let target = target(address, options)?;
        let fetcher = Arc::new(Fetcher { client: Client::new(options)?, target });
        let ask = |asked: Asked| {
            let fetcher = Arc::clone(&fetcher);
            Slot::start(move || fetcher.client.fetch(&fetcher.target, &asked, None))
        };
        let first = ask(Asked::Range(0..EDGE));
        // A safetensors file has all that describes it at the start.
        let last = (!address.file_name().ends_with(".safetensors")).then(|| ask(Asked::Last(EDGE)));
        let first: Part = first.wait(options)?;
        let mut edges = vec![(first.range.start, first.bytes)];
        if let Some(last) = last {
            let last = last.wait(options)?;
            first.version.check(&last.version, &fetcher.target.address)?;
            edges.push((last.range.start, last.bytes));
        }
        let version = Arc::new(first.version);
        let ahead = ReadAhead::new(Arc::clone(&fetcher), Arc::clone(&version));
        Ok(Self { path: PathBuf::from(address.to_string()), fetcher, version, edges, ahead })
    }

    /// Returns the requests and bytes so far.
    pub fn traffic(&self) -> Traffic {
        self.fetcher.client.options.traffic()
    }

    /// Returns the bytes of a range if they were read when the file was opened.
    fn edge_bytes(&self, range: &Range<u64>) -> Option<Bytes> {
        self.edges.iter().find_map(|(start, bytes)| {
            let at = |n: u64| usize::try_from(n.checked_sub(*start)?).ok();
            let (from, to) = (at(range.start)?, at(range.end)?);
            (from <= to && to <= bytes.len()).then(|| bytes.slice(from..to))
        })
    }
}

/// Returns the URL of a file.
fn target(address: &Address, options: &RemoteOptions) -> Result<RangeTarget> {
    let shown = address.to_string();
    match address {
        Address::Http(url) => Ok(RangeTarget { url: url.clone(), token: None, address: shown }),
        Address::Hub(hub) if hub.path.is_empty() => Err(Error::Repository { address: shown }),
        Address::Hub(hub) => {
            let url = hub_url(hub, &options.hub_endpoint)
                .ok_or(Error::Address { address: options.hub_endpoint.clone(), expected: "https://HOST" })?;
            Ok(RangeTarget { url, token: options.hub_token.clone(), address: shown })
        }
    }
}

/// Returns the URL that the Hub resolves to a file.
fn hub_url(hub: &HubAddress, endpoint: &str) -> Option<Url> {
    let mut url = Url::parse(endpoint).ok()?;
    {
        let mut segments = url.path_segments_mut().ok()?;
        segments.pop_if_empty();
        if hub.kind != RepositoryKind::Model {
            segments.push(hub.kind.plural());
        }
        segments.extend(hub.repository.split('/'));
        // A slash in a revision is part of its name: `push` encodes it.
        segments.push("resolve").push(hub.revision()).extend(hub.path.split('/'));
    }
    Some(url)
}

impl Source for RemoteFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.version.len
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), ReadError> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.version.len);
        let range = offset..end.ok_or(io::ErrorKind::UnexpectedEof)?;
        if let Some(bytes) = self.edge_bytes(&range) {
            buffer.copy_from_slice(&bytes);
            return Ok(());
        }
        Ok(self.ahead.read_at(buffer, offset)?)
    }

    /// Requests the ranges in parallel; neighbouring ones as one.
    fn read_ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, ReadError> {
        if ranges.iter().any(|range| range.start > range.end || range.end > self.version.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut missing: Vec<Range<u64>> = ranges
            .iter()
            .filter(|range| !range.is_empty() && self.edge_bytes(range).is_none())
            .cloned()
            .collect();
        missing.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in missing {
            match joined.last_mut() {
                Some(last) if range.start <= last.end.saturating_add(JOIN_GAP) => {
                    last.end = last.end.max(range.end);
                }
                _ => joined.push(range),
            }
        }
        let fetched = self.ahead.fetch_all(&joined)?;
        let find = |range: &Range<u64>| {
            if range.is_empty() {
                return Some(Bytes::new());
            }
            self.edge_bytes(range).or_else(|| {
                let found = joined.iter().zip(&fetched);
                let mut found =
                    found.filter(|(whole, _)| whole.start <= range.start && range.end <= whole.end);
                let (whole, bytes) = found.next()?;
                let at = |n: u64| usize::try_from(n.saturating_sub(whole.start)).ok();
                Some(bytes.slice(at(range.start)?..at(range.end)?))
            })
        };
        let parts: Option<Vec<Bytes>> = ranges.iter().map(find).collect();
        parts.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn in_memory(&self) -> Option<&[u8]> {
        None
    }

    /// Returns `Ok`: each answer is compared with the version that was opened.
    fn check_unchanged(&self) -> Result<(), ReadError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_hub_file_encodes_its_revision() {
        let url = |text: &str| match Address::parse(text).expect("an address") {
            Address::Hub(hub) => hub_url(&hub, "https://huggingface.co").expect("a URL").to_string(),
            Address::Http(url) => url.to_string(),
        };
        assert_eq!(url("hf://a/b/c d.bin"), "https://huggingface.co/a/b/resolve/main/c%20d.bin");
        assert_eq!(
            url("hf://datasets/a/b@refs/pr/1/x/c.bin"),
            "https://huggingface.co/datasets/a/b/resolve/refs%2Fpr%2F1/x/c.bin"
        );
    }
}

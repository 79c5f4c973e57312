//! A remote file as a byte source.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use byte_source::{Source, Window};
use bytes::Bytes;

use crate::answer::{RequestedBytes, Version};
use crate::cache::RangeCache;
use crate::client::Client;
use crate::fetcher::{Fetcher, FilePlace};
use crate::read_ahead::ReadAhead;
use crate::slot::Slot;
use crate::target::{Part, RangeTarget};
use crate::{Address, Error, RemoteOptions, Result, Traffic, hub};

/// Bytes that are read at the start and at the end of a file when it is opened. The pickle of a large checkpoint and the
/// directory of its archive are about 100 kB each.
pub(crate) const EDGE: u64 = 256 << 10;
/// Smallest number of bytes that are read at the end: the reader of archives asks for as many.
const END: u64 = 128 << 10;
/// Bytes that are read at the start of a single file of which the end is not needed: a header of 5,000 tensors.
const START_ALONE: u64 = 512 << 10;
/// Distance in bytes up to which two ranges are requested as one.
const JOIN_GAP: u64 = 256 << 10;

/// Largest length in bytes of a range that may be one of a sequence, such as the start of a record.
const IN_SEQUENCE_MAX: u64 = 8 << 20;

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
        let client = options.client()?;
        let place = place(address, options)?;
        Self::open_place(&client, place, None, EDGE)
    }

    /// Opens a file, whose listed version may be known, and reads `edge` bytes at its start, and as many or
    /// [`END`] at its end. Of a single safetensors file, [`START_ALONE`] are read at its start.
    ///
    /// # Errors
    /// When the server refuses the file or does not send ranges, or the file has another length.
    pub(crate) fn open_place(
        client: &Arc<Client>,
        place: FilePlace,
        listed: Option<Version>,
        edge: u64,
    ) -> Result<Self> {
        let address = place.address();
        let path = PathBuf::from(&address);
        let len = listed.as_ref().map(|version| version.len);
        // A safetensors file has all that describes it at the start.
        let has_end = path.extension().is_none_or(|extension| extension != "safetensors");
        let edge = if has_end || edge < EDGE { edge } else { START_ALONE };
        let fetcher = Arc::new(Fetcher { client: Arc::clone(client), place, cache: OnceLock::new() });
        let (options, end) = (&client.options, if has_end { edge.max(END) } else { END });
        if options.offline {
            return Self::open_cached(fetcher, path, listed.as_ref(), has_end, edge);
        }
        let ask = |asked: RequestedBytes| {
            let fetcher = Arc::clone(&fetcher);
            Slot::start(move || fetcher.fetch_part(&asked, None))
        };
        // A short file is read at once, and an empty one has nothing that could be asked for.
        let first = match len {
            Some(0) => None,
            Some(len) if len <= edge.saturating_add(end) => Some(ask(RequestedBytes::Range(0..len))),
            _ => Some(ask(RequestedBytes::Range(0..edge))),
        };
        let ask_last = |len: Option<u64>| match len {
            None => Some(ask(RequestedBytes::Last(end))),
            Some(len) if len <= edge.saturating_add(end) => None,
            Some(len) => Some(ask(RequestedBytes::Range(len.saturating_sub(end)..len))),
        };
        let is_parallel = len.is_some() || fetcher.place.has_suffix_ranges();
        let mut last = if has_end && is_parallel { ask_last(len) } else { None };
        let mut version = Version::default();
        let mut edges = Vec::new();
        if let Some(first) = first {
            let first: Part = first.wait(options)?;
            version = first.version;
            edges.push((first.range.start, first.bytes));
        }
        if let Some(listed) = listed {
            listed.check(&version, &address)?;
        }
        if has_end && !is_parallel {
            let rest = edge.max(version.len.saturating_sub(end))..version.len;
            last = (!rest.is_empty()).then(|| ask(RequestedBytes::Range(rest)));
        }
        if let Some(last) = last {
            let last = match last.wait(options) {
                // Some servers send ranges from the start only.
                Err(Error::NoRanges { .. }) if len.is_none() => {
                    ask(RequestedBytes::Range(version.len.saturating_sub(end)..version.len)).wait(options)?
                }
                last => last?,
            };
            version.check(&last.version, &address)?;
            edges.push((last.range.start, last.bytes));
        }
        if let Some(folder) = &options.cache {
            let cache = RangeCache::open(folder, &address, &version).map_err(|reason| Error::Cache {
                folder: folder.display().to_string(),
                reason: reason.to_string(),
            })?;
            if let Some(cache) = cache {
                for (start, bytes) in &edges {
                    let range = *start..start.saturating_add(bytes.len() as u64);
                    if cache.get(&range).is_none() {
                        cache.put(*start, bytes);
                    }
                }
                let _ = fetcher.cache.set(cache);
            }
        }
        Ok(Self::new(path, fetcher, version, edges))
    }

    fn open_cached(
        fetcher: Arc<Fetcher>,
        path: PathBuf,
        listed: Option<&Version>,
        has_end: bool,
        edge: u64,
    ) -> Result<Self> {
        let address = fetcher.place.address();
        let folder = fetcher.client.options.cache.as_ref();
        let Some((cache, version)) = folder.and_then(|folder| RangeCache::open_last(folder, &address)) else {
            return Err(Error::Offline { address });
        };
        // Of a file with a commit, that is what the cache tells versions apart by.
        let is_commit = |tag: &&String| tag.len() >= 40 && tag.bytes().all(|byte| byte.is_ascii_hexdigit());
        let commit = version.etag.as_ref().filter(is_commit).cloned();
        if listed
            .is_some_and(|listed| listed.check(&Version { commit, ..version.clone() }, &address).is_err())
        {
            return Err(Error::Offline { address });
        }
        let first = 0..edge.min(version.len);
        let last = has_end.then(|| version.len.saturating_sub(edge.max(END))..version.len);
        let cached = |range: Range<u64>| Some((range.start, cache.get(&range)?));
        let edges = std::iter::once(first).chain(last).filter_map(cached).collect();
        let _ = fetcher.cache.set(cache);
        Ok(Self::new(path, fetcher, version, edges))
    }

    fn new(path: PathBuf, fetcher: Arc<Fetcher>, version: Version, edges: Vec<(u64, Bytes)>) -> Self {
        let version = Arc::new(version);
        let end_of = |(start, bytes): &(u64, Bytes)| start.saturating_add(bytes.len() as u64);
        let last = edges.iter().filter(|edge| end_of(edge) == version.len).map(|(start, _)| *start).min();
        let end = last.unwrap_or(version.len);
        let ahead = ReadAhead::new(Arc::clone(&fetcher), Arc::clone(&version), end);
        Self { path, fetcher, version, edges, ahead }
    }

    /// Returns the requests and bytes so far.
    pub fn traffic(&self) -> Traffic {
        self.fetcher.client.options.traffic()
    }

    /// Reads a range, and requests what follows if the ranges before it were next to each other.
    fn read_in_sequence(&self, range: &Range<u64>) -> Result<Bytes> {
        if !self.has_edge_of(range)
            && let Some(bytes) = self.ahead.part_at(range)?
        {
            return Ok(bytes);
        }
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        self.fill(&mut bytes, range.start)?;
        Ok(bytes.into())
    }

    /// Fills `buffer` with the bytes that were read when the file was opened, and requests the others.
    fn fill(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let (mut rest, mut at) = (buffer, offset);
        while !rest.is_empty() {
            let left = rest.len() as u64;
            let is_later = |(start, _): &&(u64, Bytes)| *start > at;
            let next = self.edges.iter().filter(is_later).map(|(start, _)| start.saturating_sub(at)).min();
            let end_of = |(start, bytes): &(u64, Bytes)| start.saturating_add(bytes.len() as u64);
            let edge = self.edges.iter().find(|edge| edge.0 <= at && at < end_of(edge));
            let kept = edge.map(|edge| end_of(edge).saturating_sub(at));
            let len = kept.or(next).unwrap_or(left).min(left);
            let (now, later) = rest.split_at_mut(usize::try_from(len).unwrap_or(usize::MAX));
            match self.edge_bytes(&(at..at.saturating_add(len))) {
                Some(bytes) => now.copy_from_slice(&bytes),
                None => self.ahead.read_at(now, at)?,
            }
            (rest, at) = (later, at.saturating_add(len));
        }
        Ok(())
    }

    /// Returns true if some bytes of a range were read when the file was opened.
    fn has_edge_of(&self, range: &Range<u64>) -> bool {
        let end_of = |(start, bytes): &(u64, Bytes)| start.saturating_add(bytes.len() as u64);
        self.edges.iter().any(|edge| edge.0 < range.end && range.start < end_of(edge))
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

fn place(address: &Address, options: &RemoteOptions) -> Result<FilePlace> {
    let shown = address.to_string();
    match address {
        Address::Http(url) => {
            let (url, address) = (url.clone(), shown);
            Ok(FilePlace::Url(RangeTarget { url, token: None, is_resolved: false, address }))
        }
        Address::Hub(hub) if hub.path.is_empty() => Err(Error::Repository { address: shown }),
        Address::Hub(hub) => Ok(FilePlace::Url(hub::file_target(hub, hub.revision(), options)?)),
        #[cfg(feature = "buckets")]
        Address::Bucket(bucket) => {
            Ok(FilePlace::Object { bucket: options.bucket(bucket)?, key: bucket.key.clone() })
        }
        #[cfg(not(feature = "buckets"))]
        Address::Bucket(_) => Err(Error::Disabled { address: shown }),
    }
}

impl Source for RemoteFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.version.len
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), byte_source::Error> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.version.len);
        let range = offset..end.ok_or(io::ErrorKind::UnexpectedEof)?;
        if let Some(bytes) = self.edge_bytes(&range) {
            buffer.copy_from_slice(&bytes);
            return Ok(());
        }
        Ok(self.fill(buffer, offset)?)
    }

    fn read_window(&self, range: Range<u64>) -> Result<Window, byte_source::Error> {
        if range.start > range.end || range.end > self.version.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let kept = match self.edge_bytes(&range) {
            Some(bytes) => Some(bytes),
            None if self.has_edge_of(&range) => None,
            None => self.ahead.part_at(&range)?,
        };
        if let Some(bytes) = kept {
            return Ok(bytes.into());
        }
        let len = usize::try_from(range.end.saturating_sub(range.start));
        let len = len.map_err(|_| io::ErrorKind::InvalidInput)?;
        Window::filled(len, |bytes| Ok(self.fill(bytes, range.start)?))
    }

    fn read_first(&self, range: Range<u64>) -> Result<Window, byte_source::Error> {
        if range.is_empty() || range.end > self.version.len || self.has_edge_of(&range) {
            return self.read_window(range);
        }
        Ok(self.ahead.first_of(&range)?.into())
    }

    /// Requests the ranges in parallel; neighbouring ones as one.
    fn read_ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, byte_source::Error> {
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
        let fetched = match joined.as_slice() {
            // One range after the other, as of the records of an archive, is a sequence.
            [only]
                if only.end.saturating_sub(only.start) <= IN_SEQUENCE_MAX
                    || self.ahead.is_planned(only.start) =>
            {
                vec![self.read_in_sequence(only)?]
            }
            joined => self.ahead.fetch_all(joined)?,
        };
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

    fn has_latency(&self) -> bool {
        true
    }

    fn will_read(&self, ranges: &[Range<u64>]) {
        let range_of = |(start, bytes): &(u64, Bytes)| *start..start.saturating_add(bytes.len() as u64);
        self.ahead.plan(ranges, self.edges.iter().map(range_of));
    }

    /// Returns `Ok`: each answer is compared with the version that was opened.
    fn check_unchanged(&self) -> Result<(), byte_source::Error> {
        Ok(())
    }
}

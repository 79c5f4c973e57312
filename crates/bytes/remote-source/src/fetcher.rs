//! Where one file is, and the requests for its ranges.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::answer::{RequestedBytes, Version};
#[cfg(feature = "buckets")]
use crate::bucket::Bucket;
use crate::cache::RangeCache;
use crate::client::Client;
use crate::range_buffers::CHUNK;
use crate::target::{Part, RangeTarget};
use crate::{Error, Result};

/// Number of bytes of a file on the Hub that are requested at once.
const HUB_RUN: u64 = 4 * CHUNK;

#[derive(Clone, Debug)]
pub(crate) enum FilePlace {
    Url(RangeTarget),
    #[cfg(feature = "buckets")]
    Object {
        bucket: Bucket,
        key: String,
    },
}

impl FilePlace {
    /// Returns the address of the file, for messages.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Url(target) => target.address.clone(),
            #[cfg(feature = "buckets")]
            Self::Object { bucket, key } => bucket.address_of(key),
        }
    }

    /// Returns true if the service sends the last bytes of a file of unknown length.
    pub(crate) fn has_suffix_ranges(&self) -> bool {
        match self {
            Self::Url(_) => true,
            #[cfg(feature = "buckets")]
            Self::Object { bucket, .. } => bucket.has_suffix_ranges(),
        }
    }
}

/// Requests ranges of one file.
#[derive(Debug)]
pub(crate) struct Fetcher {
    pub(crate) client: Arc<Client>,
    pub(crate) place: FilePlace,
    /// Ranges that were read before, once the version is known.
    pub(crate) cache: OnceLock<RangeCache>,
}

impl Fetcher {
    pub(crate) fn fetch_part(&self, asked: &RequestedBytes, version: Option<&Version>) -> Result<Part> {
        match &self.place {
            FilePlace::Url(target) => self.client.fetch(target, asked, version),
            #[cfg(feature = "buckets")]
            FilePlace::Object { bucket, key } => bucket.fetch(key, asked, version),
        }
    }

    /// Returns the number of bytes that are requested at once of a long file: each request to the Hub is counted against a limit, and
    /// is redirected to an address for exactly this range.
    pub(crate) fn run_len(&self) -> u64 {
        if self.target().is_some_and(|target| target.is_resolved) { HUB_RUN } else { CHUNK }
    }

    /// Returns true if a long range arrives in pieces. An object store hands over a range as a whole.
    pub(crate) fn has_pieces(&self) -> bool {
        self.target().is_some()
    }

    /// Returns the URL of a file that is not in a bucket.
    #[cfg_attr(
        not(feature = "buckets"),
        expect(clippy::unnecessary_wraps, reason = "without buckets, each file has one")
    )]
    fn target(&self) -> Option<&RangeTarget> {
        match &self.place {
            FilePlace::Url(target) => Some(target),
            #[cfg(feature = "buckets")]
            FilePlace::Object { .. } => None,
        }
    }

    /// Fetches consecutive ranges by one request if none of them is in the cache, and hands over each; see [`Client::fetch_run`].
    pub(crate) fn fetch_run(
        &self,
        ranges: &[Range<u64>],
        version: &Version,
        next: &mut dyn FnMut(usize) -> bool,
        done: &mut dyn FnMut(usize, Bytes),
    ) -> Result<()> {
        let is_cached = |range: &Range<u64>| self.cache.get().is_some_and(|cache| cache.get(range).is_some());
        let Some(target) = self.target().filter(|_| !ranges.iter().any(is_cached)) else {
            for (number, range) in ranges.iter().enumerate() {
                if !next(number) {
                    return Err(byte_source::Cancelled.into());
                }
                done(number, self.fetch(range.clone(), version)?);
            }
            return Ok(());
        };
        self.client.fetch_run(target, ranges, version, next, &mut |number, bytes| {
            if let (Some(cache), Some(range)) = (self.cache.get(), ranges.get(number)) {
                cache.put(range.start, &bytes);
            }
            done(number, bytes);
        })
    }

    pub(crate) fn fetch(&self, range: Range<u64>, version: &Version) -> Result<Bytes> {
        if let Some(bytes) = self.cache.get().and_then(|cache| cache.get(&range)) {
            return Ok(bytes);
        }
        let (start, len) = (range.start, range.end.saturating_sub(range.start));
        let part = self.fetch_part(&RequestedBytes::Range(range), Some(version))?;
        if part.bytes.len() as u64 != len {
            let reason = format!("it has {} bytes, expected {len}", part.bytes.len());
            return Err(Error::Answer { address: self.place.address(), reason });
        }
        if let Some(cache) = self.cache.get() {
            cache.put(start, &part.bytes);
        }
        Ok(part.bytes)
    }
}

//! The client of one file, and its requests.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::answer::{Asked, Version};
use crate::client::{Client, RangeTarget};
use crate::{Error, Result};

/// Requests ranges of one file.
#[derive(Debug)]
pub(crate) struct Fetcher {
    pub(crate) client: Arc<Client>,
    pub(crate) target: RangeTarget,
}

impl Fetcher {
    pub(crate) fn fetch(&self, range: Range<u64>, version: &Version) -> Result<Bytes> {
        let len = range.end.saturating_sub(range.start);
        let part = self.client.fetch(&self.target, &Asked::Range(range), Some(version))?;
        if part.bytes.len() as u64 != len {
            let reason = format!("it has {} bytes, expected {len}", part.bytes.len());
            return Err(Error::Answer { address: self.target.address.clone(), reason });
        }
        Ok(part.bytes)
    }
}

//! What is requested, and what has been received.

use std::ops::Range;

use bytes::Bytes;
use url::Url;

use crate::answer::Version;

/// URL of a file, and what its requests need.
#[derive(Clone, Debug)]
pub(crate) struct RangeTarget {
    pub(crate) url: Url,
    /// Token for the host of the URL.
    pub(crate) token: Option<String>,
    /// True if the host redirects each request for a range to another address.
    pub(crate) is_resolved: bool,
    pub(crate) address: String,
}

/// Bytes of a file, and the version that they are from.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) range: Range<u64>,
    pub(crate) bytes: Bytes,
    pub(crate) version: Version,
}

//! Bytes as a source that readers take in place of a file.

use std::sync::Arc;

use byte_source::{BufferSource, Source};
use test_support::RemoteSource;

/// A source of these bytes.
pub fn source(bytes: &[u8]) -> Arc<dyn Source> {
    Arc::new(BufferSource::new("input", bytes.to_vec()))
}

/// A source of these bytes that is neither in memory nor mapped.
pub fn remote(bytes: &[u8]) -> Arc<dyn Source> {
    Arc::new(RemoteSource::new("input", bytes))
}

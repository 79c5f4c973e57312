//! Bytes as a source that readers take in place of a file.

use std::sync::Arc;

use mapped::{BufferSource, Source};

/// A source of these bytes.
pub fn source(bytes: &[u8]) -> Arc<dyn Source> {
    Arc::new(BufferSource::new("input", bytes.to_vec()))
}

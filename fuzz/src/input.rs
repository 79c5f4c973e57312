//! Bytes as a source that readers take in place of a file.

use std::sync::Arc;

use std::path::Path;

use mapped::{BufferSource, ReadError, Source};

/// A source of these bytes.
pub fn source(bytes: &[u8]) -> Arc<dyn Source> {
    Arc::new(BufferSource::new("input", bytes.to_vec()))
}

/// A source of these bytes that is neither in memory nor mapped.
pub fn remote(bytes: &[u8]) -> Arc<dyn Source> {
    Arc::new(Remote(source(bytes)))
}

#[derive(Debug)]
struct Remote(Arc<dyn Source>);

impl Source for Remote {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), ReadError> {
        self.0.read_at(buffer, offset)
    }

    fn in_memory(&self) -> Option<&[u8]> {
        None
    }

    fn check_unchanged(&self) -> Result<(), ReadError> {
        self.0.check_unchanged()
    }
}

//! A place for bytes that nobody reads.

use byte_source::{Sink, Window};

/// Sink that drops its bytes, for measurements.
#[derive(Debug)]
pub struct NullSink;

impl Sink for NullSink {
    fn write(&mut self, _: Window) -> Result<(), byte_source::Error> {
        Ok(())
    }
}

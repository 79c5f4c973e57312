//! Source like an object in a remote store.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use byte_source::Source;

/// A source like an object in a remote store: its bytes are not in memory for the reader. It consists of parts with zeros
/// between them, so that it can be larger than the memory, and records the ranges that are read.
#[derive(Debug, Default)]
pub struct RemoteSource {
    path: PathBuf,
    /// Parts that are not zeros, by their offsets. Parts do not overlap.
    pub parts: BTreeMap<u64, Vec<u8>>,
    len: u64,
    ranges_read: Mutex<Vec<Range<u64>>>,
}

impl RemoteSource {
    /// Returns a source of these bytes, called `path` in messages.
    pub fn new(path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) -> Self {
        let mut source = Self { path: path.into(), ..Self::default() };
        source.push(bytes);
        source
    }

    /// Appends bytes to the source.
    pub fn push(&mut self, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        let start = self.len;
        self.push_zeros(bytes.len() as u64);
        self.parts.insert(start, bytes);
    }

    /// Appends zeros to the source, which take no memory.
    pub fn push_zeros(&mut self, count: u64) {
        self.len = self.len.saturating_add(count);
    }

    /// Returns the ranges that were read since the last call, in order.
    pub fn take_ranges(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.ranges_read.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Source for RemoteSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), byte_source::Error> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        if range.end > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.fill(0);
        for (start, bytes) in &self.parts {
            let end = start.saturating_add(bytes.len() as u64);
            let (from, to) = (range.start.max(*start), range.end.min(end));
            let within = |start: u64| {
                let at = |n: u64| usize::try_from(n.saturating_sub(start)).unwrap_or(usize::MAX);
                at(from)..at(to)
            };
            if from < to
                && let (Some(part), Some(buffer)) =
                    (bytes.get(within(*start)), buffer.get_mut(within(offset)))
            {
                buffer.copy_from_slice(part);
            }
        }
        self.ranges_read.lock().unwrap_or_else(PoisonError::into_inner).push(range);
        Ok(())
    }

    fn has_latency(&self) -> bool {
        true
    }

    fn check_unchanged(&self) -> Result<(), byte_source::Error> {
        Ok(())
    }
}

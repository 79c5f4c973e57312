//! Buffers of the ranges of sequential readers and of the parts of uploads, which are used again: new pages for each of them would
//! cost more than filling them.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

/// Largest number of bytes of a range that is requested ahead, but for files of the Hub.
pub(crate) const CHUNK: u64 = 8 << 20;
/// Number of bytes of a long range that a reader gets at a time: few enough that they are still in the processor's caches.
pub(crate) const PIECE: u64 = 2 << 20;
/// Length in bytes from which a buffer is kept for the next range.
const KEPT_MIN: usize = 1 << 20;
/// First length in bytes of a buffer for an unknown number of bytes.
#[cfg(feature = "buckets")]
const SHORT: usize = 16 << 10;
/// Largest number of free buffers of each length.
const FREE_MAX: usize = 8;

/// Free buffers of [`PIECE`] and of [`CHUNK`] bytes. The one that was free last is taken first: it may be in the processor's caches.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeBuffers(Arc<Mutex<FreeBuffers>>);

#[derive(Debug, Default)]
struct FreeBuffers {
    pieces: Vec<Vec<u8>>,
    chunks: Vec<Vec<u8>>,
}

impl FreeBuffers {
    fn with_len(&mut self, len: usize) -> &mut Vec<Vec<u8>> {
        if len as u64 <= PIECE { &mut self.pieces } else { &mut self.chunks }
    }
}

/// Bytes of a range or part, which arrive one after the other.
#[derive(Debug)]
pub(crate) struct RangeBuffer {
    /// Filled up to `filled`; what follows has the bytes of an earlier range.
    bytes: Vec<u8>,
    filled: usize,
    /// Number of bytes of the range or part.
    expected: usize,
    free: Weak<Mutex<FreeBuffers>>,
}

impl RangeBuffers {
    /// Returns an empty buffer for `expected` bytes. A long one grows only as the bytes arrive.
    pub(crate) fn take(&self, expected: u64) -> RangeBuffer {
        let expected = usize::try_from(expected).unwrap_or(usize::MAX);
        let chunk = usize::try_from(CHUNK).unwrap_or(usize::MAX);
        let free = if (KEPT_MIN..=chunk).contains(&expected) { Arc::downgrade(&self.0) } else { Weak::new() };
        let kept = if free.strong_count() > 0 {
            let len = if expected as u64 <= PIECE { PIECE } else { CHUNK };
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).with_len(len).pop();
            kept.unwrap_or_else(|| vec![0; len])
        } else {
            vec![0; expected.min(chunk)]
        };
        RangeBuffer { bytes: kept, filled: 0, expected, free }
    }

    /// Returns an empty buffer for at most `limit` bytes, of which there are rather few.
    #[cfg(feature = "buckets")]
    pub(crate) fn take_up_to(limit: u64) -> RangeBuffer {
        let expected = usize::try_from(limit).unwrap_or(usize::MAX);
        RangeBuffer { bytes: vec![0; expected.min(SHORT)], filled: 0, expected, free: Weak::new() }
    }
}

impl RangeBuffer {
    /// Returns the number of bytes that have arrived.
    pub(crate) fn len(&self) -> u64 {
        self.filled as u64
    }

    /// Returns the number of bytes of the range or part.
    pub(crate) fn expected(&self) -> u64 {
        self.expected as u64
    }

    /// Returns room for bytes that are still to arrive; nothing once all have.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.filled == self.bytes.len() && self.filled < self.expected {
            self.bytes.resize(self.filled.saturating_mul(2).min(self.expected), 0);
        }
        let end = self.bytes.len().min(self.expected);
        self.bytes.get_mut(self.filled..end).unwrap_or_default()
    }

    /// Copies as many bytes as there is room for, and returns their number.
    #[cfg(feature = "buckets")]
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> usize {
        let mut copied = 0_usize;
        while let Some(rest) = bytes.get(copied..).filter(|rest| !rest.is_empty()) {
            let room = self.room();
            let count = room.len().min(rest.len());
            if count == 0 {
                break;
            }
            let (to, from) = (room.get_mut(..count), rest.get(..count));
            if let Some((to, from)) = to.zip(from) {
                to.copy_from_slice(from);
            }
            self.add(count);
            copied = copied.saturating_add(count);
        }
        copied
    }

    /// Counts bytes that were written to the start of the [`room`](Self::room).
    pub(crate) fn add(&mut self, count: usize) {
        self.filled = self.filled.saturating_add(count).min(self.bytes.len());
    }
}

impl AsRef<[u8]> for RangeBuffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }
}

impl From<RangeBuffer> for Bytes {
    fn from(buffer: RangeBuffer) -> Self {
        Self::from_owner(buffer)
    }
}

impl Drop for RangeBuffer {
    fn drop(&mut self) {
        let Some(free) = self.free.upgrade() else { return };
        let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = free.with_len(self.bytes.len());
        if free.len() < FREE_MAX {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_bytes_that_arrived() {
        let buffers = RangeBuffers::default();
        for expected in [0, 1, 1000, 1 << 20, 3 << 20, 8 << 20, (20 << 20) + 1] {
            let mut buffer = buffers.take(expected);
            let mut arrived = Vec::new();
            while !buffer.room().is_empty() {
                let room = buffer.room();
                let count = room.len().min(3_000_001);
                let byte = u8::try_from(arrived.len() % 251).expect("it is small");
                room[..count].fill(byte);
                arrived.resize(arrived.len() + count, byte);
                buffer.add(count);
            }
            assert_eq!(buffer.len(), expected);
            assert!(Bytes::from(buffer) == arrived, "{expected}");
        }
        let free = |buffers: &RangeBuffers| {
            let free = buffers.0.lock().expect("no test panicked");
            (free.pieces.len(), free.chunks.len())
        };
        assert_eq!(free(&buffers), (1, 1), "one buffer of each length was enough");
        let many: Vec<_> = (0..2 * FREE_MAX).map(|_| buffers.take(CHUNK)).collect();
        drop(many);
        assert_eq!(free(&buffers), (1, FREE_MAX));
    }
}

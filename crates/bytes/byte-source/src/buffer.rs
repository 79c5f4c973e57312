//! Pool of buffers for windows: allocating new pages for each window would cost more than filling them.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum length of a [`Window`](crate::Window) in bytes: 1 MiB. Larger windows were slower, smaller windows cost
/// calls.
pub const WINDOW: usize = 1 << 20;

/// Maximum number of free buffers of [`WINDOW`] bytes in the pool: the buffers that one copy has in flight, and some
/// more.
const POOL_BUFFERS_MAX: usize = 24;
/// Maximum length of a buffer, in bytes, that is cheaper to allocate than to keep in the pool.
const UNPOOLED_MAX: usize = WINDOW / 16;

static BUFFER_POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn buffer_pool() -> MutexGuard<'static, Vec<Vec<u8>>> {
    BUFFER_POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Buffer whose memory returns to the pool when it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Number of valid bytes at the start of `bytes`.
    len: usize,
}

impl Buffer {
    /// Returns a buffer of `len` bytes to fill, which may have the bytes of an earlier buffer.
    pub(crate) fn new(len: usize) -> Self {
        if len <= UNPOOLED_MAX || len > WINDOW {
            return Self::from(vec![0; len]);
        }
        let kept = buffer_pool().pop();
        Self { bytes: kept.unwrap_or_else(|| vec![0; WINDOW]), len }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self { bytes, len }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.len).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.len() == WINDOW {
            let mut free = buffer_pool();
            if free.len() < POOL_BUFFERS_MAX {
                free.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_length_that_was_asked_for() {
        for len in [0, 1, UNPOOLED_MAX, UNPOOLED_MAX + 1, WINDOW - 1, WINDOW, WINDOW + 1] {
            let mut buffer = Buffer::new(len);
            assert_eq!(buffer.len(), len);
            buffer.fill(7);
            drop(buffer);
            assert_eq!(Buffer::new(len).len(), len);
        }
        let many: Vec<Buffer> = (0..2 * POOL_BUFFERS_MAX).map(|_| Buffer::new(WINDOW)).collect();
        drop(many);
        assert!(buffer_pool().len() <= POOL_BUFFERS_MAX);
    }
}

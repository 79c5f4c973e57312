//! Limits the bytes of requests and responses in memory at a time, over all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Memory limit in bytes with the number of bytes in use, shared by all requests.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget(Arc<Account>);

#[derive(Debug)]
struct Account {
    limit: usize,
    used: AtomicUsize,
}

/// Bytes that count against a [`MemoryBudget`] until the charge is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl MemoryBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Account { limit, used: AtomicUsize::new(0) }))
    }

    /// Creates an empty charge, which [`Charge::grow`] fills.
    pub(crate) fn charge(&self) -> Charge {
        Charge { account: self.0.clone(), bytes: 0 }
    }
}

impl Charge {
    /// Charges `bytes` more; false if the budget has no room for them. A charge larger than the whole budget is cut to the
    /// budget.
    #[must_use]
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let bytes = bytes.min(self.account.limit);
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.account.limit);
        let grown = self.account.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if grown {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        grown
    }

    /// Wraps a buffer as [`Bytes`] that hold this charge until the last slice of them is dropped.
    pub(crate) fn attach(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(ChargedBuffer { bytes, _charge: Arc::new(self) })
    }

    /// Wraps several buffers as [`Bytes`] that share this charge, which ends with the last slice of any of them.
    pub(crate) fn attach_all(self, buffers: Vec<Bytes>) -> Vec<Bytes> {
        let charge = Arc::new(self);
        let attach = |bytes| Bytes::from_owner(ChargedBuffer { bytes, _charge: charge.clone() });
        buffers.into_iter().map(attach).collect()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

struct ChargedBuffer<B> {
    bytes: B,
    _charge: Arc<Charge>,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for ChargedBuffer<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_can_be_used_again() {
        let budget = MemoryBudget::new(10);
        let mut first = budget.charge();
        assert!(first.grow(6));
        let mut second = budget.charge();
        assert!(!second.grow(5));
        assert!(second.grow(4));
        let bytes = first.attach(vec![1, 2, 3, 4, 5, 6]);
        let part = bytes.slice(2..3);
        drop(bytes);
        assert!(!second.grow(1));
        drop(part);
        assert!(second.grow(6));
        drop(second);
        assert!(budget.charge().grow(1 << 40), "alone, it may be larger than the budget");
        assert_eq!(budget.0.used.load(Ordering::Relaxed), 0);
    }
}

//! Limits the bytes of requests and responses in memory at a time, over all connections.
//!
//! A text needs more memory with each token, up to a number that is known before. What is granted leaves an order in which each text can
//! have all of its memory after those before it have ended, so texts wait for each other and never for ever (the banker's algorithm of
//! Dijkstra, EWD 623).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Memory limit in bytes with the number of bytes in use, shared by all requests.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget(Arc<Account>);

#[derive(Debug)]
struct Account {
    limit: usize,
    used: AtomicUsize,
    claims: Mutex<Claims>,
}

/// Claims with their numbers.
#[derive(Debug, Default)]
struct Claims {
    all: Vec<(u64, Need)>,
    next: u64,
}

/// Bytes that a text has, and the most that it will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) held: usize,
    pub(crate) most: usize,
}

/// Bytes of a text that grows, which count against a [`MemoryBudget`] until the claim is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    charge: Charge,
    number: u64,
}

/// Bytes that count against a [`MemoryBudget`] until the charge is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl MemoryBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Account { limit, used: AtomicUsize::new(0), claims: Mutex::default() }))
    }

    /// Creates an empty charge, which [`Charge::grow`] fills.
    pub(crate) fn charge(&self) -> Charge {
        Charge { account: self.0.clone(), bytes: 0 }
    }

    /// Reserves the memory that a text needs at first; `None` if the budget has no room for it.
    pub(crate) fn claim(&self, need: Need) -> Option<Claim> {
        let mut claims = self.0.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let others = claims.all.iter().map(|(_, need)| *need);
        if !is_safe(self.0.limit, others.chain([need])) {
            return None;
        }
        let mut charge = self.charge();
        if !charge.grow(need.held) {
            return None;
        }
        let number = claims.next;
        claims.next = number.wrapping_add(1);
        claims.all.push((number, need));
        Some(Claim { charge, number })
    }
}

/// Returns true if there is an order in which each text can have all of its memory after those before it have ended.
pub(crate) fn is_safe(limit: usize, needs: impl Iterator<Item = Need>) -> bool {
    let mut needs: Vec<Need> = needs.collect();
    let held = needs.iter().fold(0_usize, |sum, need| sum.saturating_add(need.held));
    let Some(mut free) = limit.checked_sub(held) else { return false };
    let missing = |need: &Need| need.most.saturating_sub(need.held);
    needs.sort_unstable_by_key(missing);
    needs.iter().all(|need| {
        let fits = missing(need) <= free;
        free = free.saturating_add(need.held);
        fits
    })
}

impl Claim {
    /// Grants the text `held` bytes in total; false if it has to wait for others.
    #[must_use]
    pub(crate) fn grow(&mut self, held: usize) -> bool {
        let Some(more) = held.checked_sub(self.charge.bytes) else { return true };
        let account = self.charge.account.clone();
        let mut claims = account.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let grown = |(number, need): &(u64, Need)| {
            if *number == self.number { Need { held, most: need.most.max(held) } } else { *need }
        };
        let needs: Vec<Need> = claims.all.iter().map(grown).collect();
        if !is_safe(account.limit, needs.iter().copied()) || !self.charge.grow(more) {
            return false;
        }
        claims.all.iter_mut().zip(needs).for_each(|((_, need), grown)| *need = grown);
        true
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = self.charge.account.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.all.retain(|(number, _)| *number != self.number);
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
    fn texts_grow_if_each_can_have_all_of_its_memory() {
        let budget = MemoryBudget::new(100);
        let claim = |held, most| budget.claim(Need { held, most });
        let mut first = claim(10, 60).expect("there is room");
        let mut second = claim(10, 60).expect("one can end after the other");
        assert!(claim(10, 101).is_none(), "it never fits");
        assert!(claim(40, 100).is_none(), "none of the three could end");
        assert!(claim(10, 90).is_some(), "it can be the last");
        assert!(first.grow(40) && second.grow(40));
        assert!(claim(15, 40).is_none() && claim(15, 15).is_some());
        assert!(second.grow(41) && !first.grow(41), "the rest is for the second");
        assert!(second.grow(60));
        drop(second);
        assert!(first.grow(60) && first.grow(50));
        drop(first);
        assert_eq!(budget.0.used.load(Ordering::Relaxed), 0);
        assert!(claim(100, 100).is_some());
    }

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

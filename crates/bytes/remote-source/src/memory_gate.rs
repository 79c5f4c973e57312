//! Memory of the ranges that one request has for several readers in turn: a thread waits before it receives more than there is room for.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::slot::Slot;

/// Interval at which a thread that waits for memory looks whether it has been stopped.
const POLL: Duration = Duration::from_millis(100);

/// Number of bytes that are received or kept.
#[derive(Debug, Default)]
pub(crate) struct MemoryGate {
    held: Mutex<u64>,
    changed: Condvar,
}

/// Bytes that count as held until they are dropped.
#[derive(Debug)]
struct HeldBytes {
    bytes: Bytes,
    gate: Arc<MemoryGate>,
}

impl MemoryGate {
    /// Waits until `count` more bytes fit in `limit`, or a reader waits for `slot`, which gets them. Returns false if `is_stopped`
    /// returns true, or nobody but this thread has the slot.
    pub(crate) fn enter(
        &self,
        count: u64,
        slot: &Arc<Slot>,
        limit: &dyn Fn() -> u64,
        is_stopped: &dyn Fn() -> bool,
    ) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if is_stopped() || Arc::strong_count(slot) == 1 {
                return false;
            }
            if held.saturating_add(count) <= limit() || slot.is_wanted() {
                *held = held.saturating_add(count);
                return true;
            }
            held = self.changed.wait_timeout(held, POLL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets a thread go on that receives bytes for a reader that waits from now on.
    pub(crate) fn notify(&self) {
        drop(self.held.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Returns bytes that were let in, which count as held until they are dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(HeldBytes { bytes, gate: Arc::clone(self) })
    }
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let mut held = self.gate.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = held.saturating_sub(self.bytes.len() as u64);
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_let_in_when_there_is_room_or_a_reader_waits() {
        let (gate, slot) = (Arc::new(MemoryGate::default()), Arc::new(Slot::empty()));
        let kept = Arc::clone(&slot);
        let enter = |count| gate.enter(count, &slot, &|| 10, &|| false);
        assert!(enter(10));
        let bytes = gate.hold(Bytes::from(vec![0; 10]));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| enter(1));
            drop(bytes);
            assert!(waiting.join().expect("no panic"), "there is room again");
        });
        assert!(!gate.enter(100, &slot, &|| 10, &|| true), "it was stopped");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| enter(100));
            slot.want();
            gate.notify();
            assert!(waiting.join().expect("no panic"), "a reader waits");
        });
        let nobody = Arc::new(Slot::empty());
        assert!(!gate.enter(100, &nobody, &|| 10, &|| false), "nobody waits");
        drop(kept);
    }
}

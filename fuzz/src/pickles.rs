//! The properties that hold for any bytes that may be a pickle.

use std::io;

use pickle_vm::trace::{self, ListingOptions, PickleSummary, TraceView};
use pickle_vm::{Heap, Object, PickleLimits, load_with};

/// Enough for every program a fuzzer writes, and little enough that a bug in counting shows.
pub const LIMITS: PickleLimits = PickleLimits {
    opcodes: 1 << 20,
    objects: 1 << 20,
    memo: 1 << 20,
    text: 1 << 24,
    memory: 1 << 28,
    depth: 50,
    repeats_per_byte: 16,
    repeats_base: 16 << 20,
};

/// Checks a listing for bytes that must not reach a terminal, and rejects listings that grow too long.
struct Terminal {
    left: usize,
}

impl io::Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(
            bytes.iter().all(|&byte| byte == b'\n' || byte >= b' ' && byte != 0x7f),
            "a control character came through"
        );
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads, lists, traces and summarises the bytes, and compares the results.
pub fn check(bytes: &[u8]) {
    let loaded = load_with(bytes, &LIMITS);
    let summary = PickleSummary::read(bytes, &LIMITS);
    assert_eq!(loaded.as_ref().err(), summary.as_ref().err());
    if let (Ok(pickle), Ok(summary)) = (&loaded, &summary) {
        assert_eq!(summary.opcodes().map(|(_, count)| count).sum::<u64>(), pickle.opcodes);
        assert!(pickle.len <= bytes.len() as u64);
        assert!(pickle.heap.len() as u64 <= pickle.opcodes * 3);
        check_heap(&pickle.heap);
        assert!(pickle.heap.display(pickle.root).to_string().len() < 20_000);
    }
    for (view, full, limit) in
        [(TraceView::Steps, true, Some(100)), (TraceView::Steps, false, None), (TraceView::Json, false, None)]
    {
        let options = ListingOptions { view, full, limit, limits: LIMITS, ..ListingOptions::default() };
        match trace::write(bytes, &options, &mut Terminal { left: 1 << 22 }) {
            Ok(Some(pickle)) => {
                assert_eq!(Some(pickle.opcodes), loaded.as_ref().ok().map(|pickle| pickle.opcodes))
            }
            Ok(None) => assert!(limit.is_some()),
            Err(trace::TraceError::Pickle(error)) => assert_eq!(Some(&error), loaded.as_ref().err()),
            Err(_) => {}
        }
    }
    trace::dis(bytes, &mut Terminal { left: 1 << 22 }).ok();
}

/// Every id leads to an object.
fn check_heap(heap: &Heap<'_>) {
    for id in heap.ids() {
        let parts = heap.items(id).unwrap_or_default().iter();
        let pairs = heap.entries(id).unwrap_or_default().iter().flat_map(|&(key, value)| [key, value]);
        let recorded = heap.recorded_changes(id).into_iter().flat_map(|recorded| {
            let items = recorded.items().iter().flat_map(|&(key, value)| [key, value]);
            items.chain(recorded.appends().iter().copied()).chain(recorded.state().iter().copied())
        });
        for part in parts.copied().chain(pairs).chain(recorded) {
            assert!(part.index() < heap.len());
        }
        match heap.get(id) {
            Object::Global(_) => assert!(heap.global(id).is_some()),
            Object::Instance(instance) => {
                assert!(instance.callable.index() < heap.len() && instance.args.index() < heap.len());
            }
            _ => {}
        }
    }
}

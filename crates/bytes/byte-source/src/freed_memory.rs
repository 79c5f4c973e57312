//! Return of freed memory from the C library to the system.
//!
//! The heap belongs to the process. Libraries therefore only report that they have freed much memory, and the program
//! decides what to do.
//!
//! Sources: `malloc_trim(3)`, and "Freeing Memory Allocated with malloc" in the manual of the GNU C library: freed
//! memory below memory in use stays with the process.

use std::sync::OnceLock;

static ON_FREED: OnceLock<fn()> = OnceLock::new();

/// Registers a callback that is called, from any thread, whenever a library has freed much memory. Only the first
/// registration in a process takes effect; only programs, not libraries, register a callback.
pub fn on_memory_freed(act: fn()) {
    let _ = ON_FREED.set(act);
}

/// Reports that much memory was freed. Does nothing without a callback of [`on_memory_freed`].
///
/// The objects of a large pickle take more memory than all later steps, and the data made from them lie above them in
/// the heap.
pub fn report_memory_freed() {
    if let Some(act) = ON_FREED.get() {
        act();
    }
}

/// Returns freed memory to the system that the C library would keep for later allocations. Affects the memory of the
/// whole process, so no library calls it.
pub fn release_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "a function of the C library")]
    // SAFETY: it takes a number, may be called by any thread, and changes nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn only_the_first_act_of_a_program_is_called() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        report_memory_freed();
        on_memory_freed(|| {
            CALLS.fetch_add(1, Ordering::Relaxed);
        });
        on_memory_freed(|| panic!("it is the second one"));
        report_memory_freed();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    }

    /// In a process of its own: other tests take and free memory.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn freed_memory_between_memory_in_use_returns_to_the_system() {
        let test = "freed_memory::tests::freed_memory_between_memory_in_use_returns_to_the_system";
        test_support::each_in_own_process(test, ["1 of 256 pieces"], |_| {
            let pieces: Vec<Box<[u8]>> = (0..64 << 10).map(|_| vec![1; 1000].into()).collect();
            let kept: Vec<Box<[u8]>> = pieces.into_iter().step_by(256).collect();
            let before = resident();
            release_freed();
            let after = resident();
            assert!(before > 60_000 && after < before / 2, "{before} KiB before, {after} KiB after");
            drop(kept);
        });
    }

    /// Returns the memory of this process in KiB.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux counts it");
        line.trim_end_matches("kB").trim().parse().expect("it is a number")
    }
}

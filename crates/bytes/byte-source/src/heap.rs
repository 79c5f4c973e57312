//! Memory that was freed, and that the C library keeps.
//!
//! The heap belongs to the process. So the libraries only report that they have freed much memory, and the program decides
//! what follows from that.
//!
//! Facts: `malloc_trim(3)`, and "Freeing Memory Allocated with malloc" in the manual of the GNU C library: what is freed
//! below memory that is in use stays with the process.

use std::sync::OnceLock;

static ON_FREED: OnceLock<fn()> = OnceLock::new();

/// Has `act` called whenever a library has freed much memory, from any thread. Only the first call of a process counts, and
/// only its program makes it.
pub fn on_memory_freed(act: fn()) {
    let _ = ON_FREED.set(act);
}

/// Reports that much memory was freed. Without [`on_memory_freed`], it does nothing.
///
/// The objects of a large pickle take more memory than all that follows, and what was made from them is above them.
pub fn memory_freed() {
    if let Some(act) = ON_FREED.get() {
        act();
    }
}

/// Gives memory that was freed back to the system, where the C library would keep it for later allocations. It works on the
/// memory of the whole process, so no library calls it.
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
        memory_freed();
        on_memory_freed(|| {
            CALLS.fetch_add(1, Ordering::Relaxed);
        });
        on_memory_freed(|| panic!("it is the second one"));
        memory_freed();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    }
}

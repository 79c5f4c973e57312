//! Memory that was freed, and that the C library keeps.
//!
//! Facts: `malloc_trim(3)`, and "Freeing Memory Allocated with malloc" in the manual of the GNU C library: what is freed
//! below memory that is in use stays with the process.

/// Gives memory that was freed back to the system, where the C library would keep it for later allocations.
///
/// The objects of a large pickle take more memory than all that follows, and what was made from them is above them.
pub fn release_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "a function of the C library")]
    // SAFETY: it takes a number, may be called by any thread, and changes nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

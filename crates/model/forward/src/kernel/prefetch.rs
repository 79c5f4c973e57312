//! Loads bytes into the CPU's cache before they are needed.

#![expect(clippy::inline_always, reason = "it becomes one instruction")]

/// Tells the CPU to load the byte `ahead` bytes after the first of these into its cache, with its neighbours, because it is
/// needed soon. The CPU ignores an address that is not mapped.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    super::x86::prefetch(bytes, ahead);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, ahead);
}

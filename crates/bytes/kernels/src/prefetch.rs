//! Prefetching of bytes into the CPU's cache.

/// Prefetches the byte `ahead` bytes after the first of `bytes`, with its neighbours, into the CPU's cache. The CPU
/// ignores an address that is not mapped.
#[inline(always)]
pub fn prefetch(bytes: &[u8], ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    crate::x86::prefetch(bytes, ahead);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, ahead);
}

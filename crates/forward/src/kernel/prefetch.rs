//! Asks for bytes before they are needed.

#![expect(clippy::inline_always, reason = "it becomes one instruction")]

/// Asks the CPU to read the byte `ahead` bytes after the first of these, with its neighbours, because it is needed soon. Where
/// there is no such byte, nothing happens.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    super::x86::prefetch(bytes, ahead);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, ahead);
}

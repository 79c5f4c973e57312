//! SHA-256, and hexadecimal formatting.
//!
//! Facts: FIPS 180-4.

use std::fmt::{self, Write};
use std::sync::OnceLock;

use sha2::Digest;

use crate::{Blob, CancellableSink, Error, Observer, Sink, Window};

/// SHA-256 of the bytes so far; as a sink, of a [`Blob`].
///
/// ```
/// use byte_source::{Blob, OwnedBlob, Sha256, hex};
///
/// let mut hash = Sha256::default();
/// OwnedBlob(b"abc".to_vec()).write_to(&mut hash)?;
/// assert_eq!(hex(&hash.digest()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
/// # Ok::<(), byte_source::Error>(())
/// ```
#[derive(Clone)]
pub struct Sha256(Implementation);

#[derive(Clone)]
enum Implementation {
    /// The processor's SHA extensions.
    Sha2(sha2::Sha256),
    /// Assembly for processors without them, where `sha2` has only portable code.
    Ring(ring::digest::Context),
}

impl Sha256 {
    /// Returns the SHA-256 of bytes in memory.
    pub fn of(bytes: &[u8]) -> [u8; 32] {
        let mut hash = Self::default();
        hash.update(bytes);
        hash.digest()
    }

    /// Returns the name of the crate that computes it on this processor.
    pub fn implementation() -> &'static str {
        match Self::default().0 {
            Implementation::Sha2(_) => "sha2",
            Implementation::Ring(_) => "ring",
        }
    }

    /// Hashes more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Implementation::Sha2(hash) => hash.update(bytes),
            Implementation::Ring(hash) => hash.update(bytes),
        }
    }

    /// Returns the SHA-256 of all bytes so far.
    pub fn digest(self) -> [u8; 32] {
        match self.0 {
            Implementation::Sha2(hash) => hash.finalize().into(),
            Implementation::Ring(hash) => hash.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"),
        }
    }
}

/// Returns false if the processor lacks SHA extensions and `ring` has assembly for it, or the environment leaves them unused for a
/// comparison, as it does with the extensions of `kernels`.
fn uses_sha2() -> bool {
    static USED: OnceLock<bool> = OnceLock::new();
    *USED.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        let has = is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1");
        #[cfg(target_arch = "aarch64")]
        let has = std::arch::is_aarch64_feature_detected!("sha2");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let has = true;
        let unused = std::env::var("TORCH2CARTON_WITHOUT").unwrap_or_default();
        has && !unused.split(',').any(|name| name.trim() == "sha")
    })
}

impl Default for Sha256 {
    fn default() -> Self {
        Self(if uses_sha2() {
            Implementation::Sha2(sha2::Sha256::new())
        } else {
            Implementation::Ring(ring::digest::Context::new(&ring::digest::SHA256))
        })
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sha256").finish_non_exhaustive()
    }
}

impl Sink for Sha256 {
    fn write(&mut self, window: Window) -> Result<(), Error> {
        self.update(&window);
        Ok(())
    }
}

/// Computes the SHA-256 of a blob. The observer can cancel it between two windows.
///
/// # Errors
/// Returns an error if the blob cannot be read, or `observer` cancels the operation.
pub fn sha256(blob: &dyn Blob, observer: &dyn Observer) -> Result<[u8; 32], Error> {
    let mut sink = Sha256::default();
    blob.write_to(&mut CancellableSink { sink: &mut sink, observer })?;
    Ok(sink.digest())
}

/// Formats bytes as lower-case hexadecimal digits, two per byte.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        write!(digits, "{byte:02x}").expect("memory takes any text");
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implementations_agree() {
        let bytes: Vec<u8> = (0..700_u32).map(|i| (i * 31 % 251) as u8).collect();
        for len in (0..200).chain([255, 256, 257, 639]) {
            for start in 0..9 {
                let all = &bytes[start..start + len];
                let digests = [
                    Implementation::Sha2(sha2::Sha256::new()),
                    Implementation::Ring(ring::digest::Context::new(&ring::digest::SHA256)),
                ]
                .map(|implementation| {
                    let mut hash = Sha256(implementation);
                    let (first, rest) = all.split_at(len / 3);
                    hash.update(first);
                    hash.clone().update(b"not in this one");
                    hash.update(rest);
                    hash.digest()
                });
                assert_eq!(digests[0], digests[1], "{len} bytes at {start}");
            }
        }
    }
}

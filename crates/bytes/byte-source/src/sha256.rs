//! SHA-256 of blobs, and hexadecimal formatting.
//!
//! Facts: FIPS 180-4; the implementation is the `sha2` crate's, which uses the CPU's SHA extensions.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::{Blob, CancellableSink, Error, Observer, Sink, Window};

/// Sink that computes the SHA-256 of a [`Blob`].
///
/// ```
/// use byte_source::{Blob, OwnedBlob, Sha256Sink, hex};
///
/// let mut sink = Sha256Sink::default();
/// OwnedBlob(b"abc".to_vec()).write_to(&mut sink)?;
/// assert_eq!(hex(&sink.digest()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
/// # Ok::<(), byte_source::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Sha256Sink(Sha256);

impl Sha256Sink {
    /// Returns the SHA-256 of all bytes so far.
    pub fn digest(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

impl Sink for Sha256Sink {
    fn write(&mut self, window: Window) -> Result<(), Error> {
        self.0.update(&*window);
        Ok(())
    }
}

/// Computes the SHA-256 of a blob. The observer can cancel it between two windows.
///
/// # Errors
/// Returns an error if the blob cannot be read, or `observer` cancels the operation.
pub fn sha256(blob: &dyn Blob, observer: &dyn Observer) -> Result<[u8; 32], Error> {
    let mut sink = Sha256Sink::default();
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

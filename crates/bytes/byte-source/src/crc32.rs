//! CRC-32 of windows, computed once per window however many zip files receive the window.
//!
//! Facts: APPNOTE 4.4.7; the implementation is the `crc32fast` crate's, which can combine checksums of neighbouring bytes.

use crate::Window;

/// Number of bytes whose checksum takes about as long to compute as two checksums to combine.
const COMBINE_MIN: usize = 64 << 10;

/// Incremental CRC-32 of consecutive bytes.
///
/// ```
/// use byte_source::{Crc32, Window};
///
/// let mut sum = Crc32::default();
/// sum.add(&Window::owned(b"1234".to_vec()));
/// sum.add(&Window::owned(b"56789".to_vec()));
/// assert_eq!(sum.sum(), 0xcbf4_3926);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Crc32(crc32fast::Hasher);

impl Crc32 {
    /// Adds the bytes of a window.
    pub fn add(&mut self, window: &Window) {
        if window.len() < COMBINE_MIN {
            return self.0.update(window);
        }
        let sum = crc32fast::Hasher::new_with_initial_len(window.crc32(), window.len() as u64);
        self.0.combine(&sum);
    }

    /// Adds bytes whose checksum is not cached in a window.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Appends the bytes of another checksum after the bytes of this one.
    pub fn append(&mut self, next: &Self) {
        self.0.combine(&next.0);
    }

    /// Returns the CRC-32 of all bytes so far.
    pub fn sum(self) -> u32 {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_any_length_are_summed_as_one() {
        let bytes: Vec<u8> =
            (0..1_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        let (mut sum, mut start) = (Crc32::default(), 0);
        for len in [0, 1, COMBINE_MIN - 1, COMBINE_MIN, 3, 300_000, COMBINE_MIN + 1, 200_000] {
            let window = Window::owned(bytes[start..start + len].to_vec());
            sum.add(&window);
            assert_eq!(window.crc32(), crc32fast::hash(&window));
            start += len;
            assert_eq!(sum.clone().sum(), crc32fast::hash(&bytes[..start]), "{len}");
            let mut rest = Crc32::default();
            rest.add_bytes(&bytes[start..]);
            let mut whole = sum.clone();
            whole.append(&rest);
            assert_eq!(whole.sum(), crc32fast::hash(&bytes), "{len}");
        }
    }
}

//! Compiled replacements of a normalization: a double-array trie from texts to places of their replacements.
//!
//! Facts: `Normalizer::DecodePrecompiledCharsMap`, and the units of `darts-clone` 0.32: eight bits of label, one bit that says that a
//! value follows, and an offset to the children.

use bytes::Bytes;

use crate::{Error, Result};

/// Number of texts that the library looks at, from the shortest on.
const RESULTS_MAX: usize = 32;
/// Largest length of a replaced text and of a replacement, in bytes.
const LEN_MAX: usize = 1024;

/// Replacements of texts.
#[derive(Debug, Default)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    /// Replacements, each with a zero after it.
    texts: Bytes,
}

impl Charsmap {
    /// Reads the bytes of a model.
    ///
    /// # Errors
    /// When the trie is cut off.
    pub(crate) fn new(bytes: &Bytes) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let damaged = Error::Damaged("its table of replacements is cut off");
        let (len, rest) = bytes.split_first_chunk().ok_or(damaged.clone())?;
        let len = u32::from_le_bytes(*len) as usize;
        let (trie, texts) = rest.split_at_checked(len).ok_or(damaged.clone())?;
        let (units, []) = trie.as_chunks() else { return Err(damaged) };
        let units = units.iter().copied().map(u32::from_le_bytes).collect();
        Ok(Self { units, texts: bytes.slice_ref(texts) })
    }

    /// Returns the replacement of the longest text that `text` begins with, and the length of that text.
    ///
    /// # Errors
    /// When the replacement is outside of the table, or too long.
    pub(crate) fn replacement(&self, text: &[u8]) -> Result<Option<(&[u8], usize)>> {
        let Some((value, len)) = self.longest(text) else { return Ok(None) };
        let texts = self.texts.get(value..).unwrap_or_default();
        let end = texts.iter().take(LEN_MAX).position(|byte| *byte == 0);
        let replacement = end.and_then(|end| texts.get(..end));
        Ok(Some((replacement.ok_or(Error::Damaged("a replacement in it is cut off, or too long"))?, len)))
    }

    fn longest(&self, text: &[u8]) -> Option<(usize, usize)> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut place = offset(*self.units.first()?);
        let (mut found, mut count) = (None, 0_usize);
        for (byte, len) in text.iter().take(LEN_MAX).zip(1..) {
            place ^= usize::from(*byte);
            let Some(unit) = self.units.get(place).filter(|unit| **unit & 0x8000_00ff == u32::from(*byte))
            else {
                break;
            };
            place ^= offset(*unit);
            if unit & (1 << 8) != 0 && count < RESULTS_MAX {
                let value = self.units.get(place)? & 0x7fff_ffff;
                found = Some((value as usize, len));
                count = count.saturating_add(1);
            }
        }
        found
    }
}

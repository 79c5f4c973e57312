//! Changes of a text before it is divided.

use crate::charsmap::Charsmap;
use crate::index::PieceIndex;
use crate::{Error, Normalization, PieceModel, Result};

/// Largest length of a normalized text, in bytes.
pub(crate) const TEXT_MAX: usize = 8 << 20;
/// Character that stands for a space in pieces.
pub(crate) const SPACE: &[u8] = "▁".as_bytes();

/// The changes that a model makes.
#[derive(Debug)]
pub(crate) struct Normalizer {
    rules: Normalization,
    has_space_after_word: bool,
    charsmap: Charsmap,
}

impl Normalizer {
    /// # Errors
    /// When the table of replacements is damaged.
    pub(crate) fn new(model: &PieceModel) -> Result<Self> {
        let rules = model.normalization.clone();
        let charsmap = Charsmap::new(&rules.charsmap)?;
        Ok(Self { rules, has_space_after_word: model.has_space_after_word, charsmap })
    }

    fn space(&self) -> &'static [u8] {
        if self.rules.escapes_spaces { SPACE } else { b" " }
    }

    /// Returns the changed text. What `fixed` has stays as it is.
    ///
    /// # Errors
    /// When the text becomes too long, or the table of replacements is damaged.
    pub(crate) fn normalize(&self, text: &str, fixed: &PieceIndex) -> Result<Vec<u8>> {
        let mut rest = text.as_bytes();
        let removes = self.rules.removes_extra_spaces;
        while removes && !rest.is_empty() {
            let (part, len) = self.next_part(rest, fixed)?;
            if part != b" " {
                break;
            }
            rest = rest.get(len..).unwrap_or_default();
        }
        if rest.is_empty() {
            return Ok(Vec::new());
        }
        let (space, has_prefix) = (self.space(), self.rules.adds_dummy_prefix);
        let mut normalized = Vec::with_capacity(text.len().saturating_add(text.len() / 2).min(TEXT_MAX));
        if has_prefix && !self.has_space_after_word {
            normalized.extend_from_slice(space);
        }
        let mut is_after_space = removes;
        while !rest.is_empty() {
            let (mut part, len) = self.next_part(rest, fixed)?;
            while is_after_space && let Some(after) = part.strip_prefix(b" ") {
                part = after;
            }
            for byte in part {
                if *byte == b' ' { normalized.extend_from_slice(space) } else { normalized.push(*byte) }
            }
            if !part.is_empty() {
                is_after_space = part.ends_with(b" ");
            }
            is_after_space &= removes;
            if normalized.len() > TEXT_MAX {
                return Err(Error::LongText { limit: TEXT_MAX });
            }
            rest = rest.get(len..).unwrap_or_default();
        }
        while removes && normalized.ends_with(space) {
            normalized.truncate(normalized.len().saturating_sub(space.len()));
        }
        if has_prefix && self.has_space_after_word {
            normalized.extend_from_slice(space);
        }
        Ok(normalized)
    }

    /// Returns what becomes of the beginning of a text, and its length there, which is at least 1.
    fn next_part<'t>(&'t self, text: &'t [u8], fixed: &PieceIndex) -> Result<(&'t [u8], usize)> {
        let len = fixed.longest(text);
        if len == 0
            && let Some(replaced) = self.charsmap.replacement(text)?
        {
            return Ok(replaced);
        }
        let len = if len == 0 { char_len(text) } else { len };
        Ok((text.get(..len).unwrap_or_default(), len))
    }
}

/// Returns the length of the first character, as its first byte states it, at most that of the text.
pub(crate) fn char_len(text: &[u8]) -> usize {
    let len = match text.first() {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    };
    len.min(text.len())
}

//! Values that borrow their bytes from the pickle: text and byte strings.
//!
//! Text is CPython's `str` as `'utf-8', 'surrogatepass'` encodes it.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::ops::Deref;

use crate::limits::ALLOCATION;

/// A byte string, borrowed from the pickle, or owned if it was unescaped.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ByteString<'p>(ByteStringRepr<'p>);

#[derive(Clone)]
enum ByteStringRepr<'p> {
    Borrowed(&'p [u8]),
    #[expect(
        clippy::box_collection,
        reason = "16 bytes instead of 24, in a value of which there are millions"
    )]
    Owned(Box<Vec<u8>>),
}

impl PartialEq for ByteStringRepr<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for ByteStringRepr<'_> {}

impl std::hash::Hash for ByteStringRepr<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.get().hash(state);
    }
}

impl ByteStringRepr<'_> {
    fn get(&self) -> &[u8] {
        match self {
            ByteStringRepr::Borrowed(bytes) => bytes,
            ByteStringRepr::Owned(bytes) => bytes,
        }
    }
}

impl<'p> From<Cow<'p, [u8]>> for ByteString<'p> {
    fn from(bytes: Cow<'p, [u8]>) -> Self {
        ByteString(match bytes {
            Cow::Borrowed(bytes) => ByteStringRepr::Borrowed(bytes),
            Cow::Owned(bytes) => ByteStringRepr::Owned(Box::new(bytes)),
        })
    }
}

impl<'p> From<&'p [u8]> for ByteString<'p> {
    fn from(bytes: &'p [u8]) -> Self {
        ByteString(ByteStringRepr::Borrowed(bytes))
    }
}

impl ByteString<'_> {
    /// Returns the bytes of the blocks that an unescaped string owns.
    pub(crate) fn owned_nbytes(&self) -> usize {
        match &self.0 {
            ByteStringRepr::Borrowed(_) => 0,
            ByteStringRepr::Owned(bytes) => {
                bytes.capacity().saturating_add(size_of::<Vec<u8>>()).saturating_add(2 * ALLOCATION)
            }
        }
    }
}

impl Deref for ByteString<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.get()
    }
}

impl fmt::Debug for ByteString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

/// A Python `str`: Unicode code points, including lone surrogates.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text<'p>(TextRepr<'p>);

#[derive(Clone)]
enum TextRepr<'p> {
    Str(&'p str),
    Other(Box<BoxedText<'p>>),
}

#[derive(Clone)]
enum BoxedText<'p> {
    Owned(String),
    /// UTF-8, with surrogates encoded as three bytes each.
    Surrogates(Cow<'p, [u8]>),
}

impl PartialEq for TextRepr<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for TextRepr<'_> {}

impl std::hash::Hash for TextRepr<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl TextRepr<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            TextRepr::Str(text) => text.as_bytes(),
            TextRepr::Other(other) => match other.as_ref() {
                BoxedText::Owned(text) => text.as_bytes(),
                BoxedText::Surrogates(bytes) => bytes,
            },
        }
    }
}

impl Text<'_> {
    /// Returns the bytes of the blocks that a text owns if it was unescaped or has surrogates.
    pub(crate) fn owned_nbytes(&self) -> usize {
        let TextRepr::Other(other) = &self.0 else { return 0 };
        let owned = match other.as_ref() {
            BoxedText::Owned(text) => text.capacity(),
            BoxedText::Surrogates(Cow::Owned(bytes)) => bytes.capacity(),
            BoxedText::Surrogates(Cow::Borrowed(_)) => 0,
        };
        owned.saturating_add(size_of::<BoxedText<'_>>()).saturating_add(2 * ALLOCATION)
    }
}

impl<'p> Text<'p> {
    /// Creates text from UTF-8 in which surrogates may be encoded as three bytes each. Returns `None` for other bytes.
    pub fn from_bytes(bytes: Cow<'p, [u8]>) -> Option<Self> {
        let repr = match bytes {
            Cow::Borrowed(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => TextRepr::Str(text),
                Err(_) if is_utf8_with_surrogates(bytes) => {
                    TextRepr::Other(Box::new(BoxedText::Surrogates(Cow::Borrowed(bytes))))
                }
                Err(_) => return None,
            },
            Cow::Owned(bytes) => match String::from_utf8(bytes) {
                Ok(text) => TextRepr::Other(Box::new(BoxedText::Owned(text))),
                Err(error) if is_utf8_with_surrogates(error.as_bytes()) => {
                    TextRepr::Other(Box::new(BoxedText::Surrogates(Cow::Owned(error.into_bytes()))))
                }
                Err(_) => return None,
            },
        };
        Some(Text(repr))
    }

    /// Returns the text, or `None` if it contains a lone surrogate.
    pub fn as_str(&self) -> Option<&str> {
        match &self.0 {
            TextRepr::Str(text) => Some(text),
            TextRepr::Other(other) => match other.as_ref() {
                BoxedText::Owned(text) => Some(text),
                BoxedText::Surrogates(_) => None,
            },
        }
    }

    /// Returns the text with each lone surrogate written as `\udc80`, like Python's `backslashreplace`.
    pub fn to_str(&self) -> Cow<'_, str> {
        if let Some(text) = self.as_str() {
            return Cow::Borrowed(text);
        }
        let mut out = String::new();
        for code_point in self.code_points() {
            match char::from_u32(code_point) {
                Some(c) => out.push(c),
                None => write!(out, "\\u{code_point:04x}").unwrap_or_default(),
            }
        }
        Cow::Owned(out)
    }

    /// Returns the text as UTF-8, with each lone surrogate in three bytes: Python's `'utf-8', 'surrogatepass'`.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Returns the code points, including surrogates.
    pub fn code_points(&self) -> impl Iterator<Item = u32> + '_ {
        CodePoints(self.bytes())
    }
}

impl<'p> From<&'p str> for Text<'p> {
    fn from(text: &'p str) -> Self {
        Text(TextRepr::Str(text))
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Text(TextRepr::Other(Box::new(BoxedText::Owned(text))))
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_str())
    }
}

/// Iterator over the code points of UTF-8 with surrogates; it ends at the first invalid byte.
struct CodePoints<'a>(&'a [u8]);

impl Iterator for CodePoints<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let (&first, mut rest) = self.0.split_first()?;
        let (extra, least, mut value) = match first {
            0..=0x7f => (0, 0, u32::from(first)),
            0xc2..=0xdf => (1, 0x80, u32::from(first & 0x1f)),
            0xe0..=0xef => (2, 0x800, u32::from(first & 0x0f)),
            0xf0..=0xf4 => (3, 0x1_0000, u32::from(first & 0x07)),
            _ => return None,
        };
        for _ in 0..extra {
            let (&next, after) = rest.split_first()?;
            if next & 0xc0 != 0x80 {
                return None;
            }
            value = value << 6 | u32::from(next & 0x3f);
            rest = after;
        }
        if value < least || value > 0x0010_ffff {
            return None;
        }
        self.0 = rest;
        Some(value)
    }
}

fn is_utf8_with_surrogates(bytes: &[u8]) -> bool {
    let mut code_points = CodePoints(bytes);
    while code_points.next().is_some() {}
    code_points.0.is_empty()
}

/// Appends a code point to UTF-8, surrogates included.
pub(crate) fn push_code_point(out: &mut Vec<u8>, code_point: u32) {
    if let Some(c) = char::from_u32(code_point) {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        let low = |shift: u32| u8::try_from(code_point >> shift & 0x3f).unwrap_or(0x3f) | 0x80;
        let high = u8::try_from(code_point >> 12 & 0x0f).unwrap_or(0x0f) | 0xe0;
        out.extend_from_slice(&[high, low(6), low(0)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_kept() {
        let bytes = b"a\xed\xb2\x80\xf0\x9f\x98\x80";
        let text = Text::from_bytes(Cow::Borrowed(bytes)).expect("surrogates pass");
        assert_eq!(text.as_str(), None);
        assert_eq!(text.to_str(), "a\\udc80\u{1f600}");
        assert_eq!(text.bytes(), bytes);
        assert_eq!(text.code_points().collect::<Vec<_>>(), [0x61, 0xdc80, 0x1f600]);
        let mut again = Vec::new();
        text.code_points().for_each(|code_point| push_code_point(&mut again, code_point));
        assert_eq!(again, bytes);
        for bad in [&b"\xff"[..], b"\xc0\x80", b"\xe0\x80\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"] {
            assert!(Text::from_bytes(Cow::Borrowed(bad)).is_none());
        }
    }
}

//! Finds the byte strings and texts in msgpack, in which Flax and spaCy keep weights.
//!
//! Facts: the specification of msgpack; `decode` of msgpack-numpy, which unpickles the `data` of a map with the `kind` `O`;
//! `PyTorchShim.from_bytes` of thinc 8, which gives a byte string in the msgpack of a byte string to `torch.load`; `_msgpack_ext_unpack`
//! of `flax.serialization`, which makes arrays of numbers of the extensions 1 to 3. `numpy.ndarray` with a buffer and the dtype `O`, as
//! msgpack-numpy and srsly call it, takes the bytes for addresses of objects.

use std::borrow::Cow;

use super::documents::judge::Judge;
use super::nested::{NestedBytes, is_pickle};
use crate::container::sniff;

/// Types of the extensions in which Flax keeps numbers.
const FLAX_EXTENSIONS: [u8; 3] = [1, 2, 3];
/// Type of the extension for times, which is -1.
const TIME: u8 = 0xff;

/// Returns true for maps and arrays of msgpack, to the end of the bytes. Most bytes are a number of msgpack, which no file consists of.
pub(super) fn is_msgpack(bytes: &[u8]) -> bool {
    starts_as_msgpack(bytes) && Tokens { bytes, at: 0, pending: 0 }.all(|token| token.is_some())
}

/// Returns true for the first byte of a map or an array.
fn starts_as_msgpack(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(0x80..=0x9f | 0xdc..=0xdf))
}

/// Returns the byte strings, texts and extensions that a program may unpickle and that look as if it could.
pub(super) fn nested(bytes: &[u8]) -> Vec<NestedBytes<'_>> {
    let may_matter = |text: &NestedBytes<'_>| {
        is_pickle(&text.bytes) || starts_as_msgpack(&text.bytes) || sniff::is_hdf5(&text.bytes)
    };
    texts(bytes).filter(may_matter).collect()
}

fn texts(bytes: &[u8]) -> impl Iterator<Item = NestedBytes<'_>> {
    Tokens { bytes, at: 0, pending: 0 }.flatten().filter_map(|Token { at, payload, extension, .. }| {
        let is_numbers = extension.is_some_and(|kind| FLAX_EXTENSIONS.contains(&kind));
        let is_some = !payload.is_empty() && !is_numbers;
        let bytes = || latin1(payload).map_or(Cow::Borrowed(payload), Cow::Owned);
        is_some.then(|| NestedBytes { at: at as u64, bytes: bytes(), is_loaded: false })
    })
}

/// Returns the bytes of a pickle that was written as a text of its bytes' characters.
fn latin1(payload: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(payload).ok().filter(|text| text.starts_with('\u{80}'))?;
    text.chars().map(|char| u8::try_from(u32::from(char)).ok()).collect()
}

/// Gives the events of the objects to a judge, as those of a document.
pub(super) fn judge(bytes: &[u8], judge: &mut Judge<'_>) {
    let mut left: Vec<u64> = Vec::new();
    for Token { at, payload, inside, .. } in (Tokens { bytes, at: 0, pending: 0 }).flatten() {
        if let Some(count) = left.last_mut() {
            *count = count.saturating_sub(1);
        }
        match inside {
            Some((is_map, count)) => {
                if !judge.open(is_map) {
                    return;
                }
                left.push(count);
            }
            None if payload.is_empty() => judge.other(),
            None => match std::str::from_utf8(payload) {
                Ok(text) => judge.text(text, at as u64),
                Err(_) => judge.other(),
            },
        }
        while left.last() == Some(&0) {
            left.pop();
            judge.close(at as u64);
        }
    }
}

/// Returns the first type of an extension that is neither Flax's nor a time, which only a program's own code reads.
pub(super) fn own_extension(bytes: &[u8]) -> Option<u8> {
    let extensions = Tokens { bytes, at: 0, pending: 0 }.flatten().filter_map(|token| token.extension);
    extensions.into_iter().find(|kind| *kind != TIME && !FLAX_EXTENSIONS.contains(kind))
}

/// Returns true if an array may have objects: its `type` says so, or that of one of its fields.
pub(super) fn has_objects(bytes: &[u8]) -> bool {
    let (mut before, mut has_fields, mut any) = (&b""[..], false, false);
    for Token { payload, .. } in (Tokens { bytes, at: 0, pending: 0 }).flatten() {
        let is_object = is_object_dtype(payload);
        if before == b"type" && is_object {
            return true;
        }
        any |= is_object;
        has_fields |= before == b"kind" && payload == b"V";
        before = payload;
    }
    has_fields && any
}

/// Returns true for a dtype of NumPy with objects, such as `|O` or `i4,O`.
fn is_object_dtype(text: &[u8]) -> bool {
    let is_prefix = |byte: &u8| byte.is_ascii_digit() || b"|<>=() ".contains(byte);
    let mut names = text.split(|byte| *byte == b',').map(|part| {
        let prefix = part.iter().take_while(|byte| is_prefix(byte)).count();
        part.get(prefix..).unwrap_or_default()
    });
    names.any(|name| matches!(name, b"O" | b"O4" | b"O8" | b"object" | b"object_" | b"object0"))
}

/// An object: its offset, the bytes of a text, a byte string or an extension, and the type of an extension.
struct Token<'m> {
    at: usize,
    payload: &'m [u8],
    extension: Option<u8>,
    /// True for a map, and the number of the objects in it or in an array.
    inside: Option<(bool, u64)>,
}

/// Reads the objects of msgpack one by one, those in maps and arrays after these; ends with `None` where the bytes are none.
struct Tokens<'m> {
    bytes: &'m [u8],
    at: usize,
    /// Objects of open maps and arrays that are not read yet.
    pending: u64,
}

impl<'m> Tokens<'m> {
    fn take(&mut self, len: u64) -> Option<&'m [u8]> {
        let end = self.at.checked_add(usize::try_from(len).ok()?)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn number(&mut self, width: u64) -> Option<u64> {
        Some(self.take(width)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn read(&mut self) -> Option<Token<'m>> {
        let at = self.at;
        if self.pending == 0 && !starts_as_msgpack(self.bytes.get(at..)?) {
            return None;
        }
        self.pending = self.pending.saturating_sub(1);
        let marker = self.number(1)?;
        let (mut inside, mut len, mut extension) = (None, 0, None);
        match marker {
            0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => {}
            0x80..=0x8f => inside = Some((true, (marker & 0x0f).saturating_mul(2))),
            0x90..=0x9f => inside = Some((false, marker & 0x0f)),
            0xa0..=0xbf => len = marker & 0x1f,
            0xc4..=0xc6 => len = self.number(1 << (marker & 3))?,
            0xd9..=0xdb => len = self.number(1 << (marker.wrapping_sub(0xd9)))?,
            0xc7..=0xc9 => {
                len = self.number(1 << (marker.wrapping_sub(0xc7)))?;
                extension = Some(self.number(1)?);
            }
            0xd4..=0xd8 => {
                extension = Some(self.number(1)?);
                len = 1 << marker.wrapping_sub(0xd4);
            }
            0xca | 0xcb => drop(self.take(4 << (marker & 1))?),
            0xcc..=0xd3 => drop(self.take(1 << (marker & 3))?),
            0xdc | 0xdd => inside = Some((false, self.number(2 << (marker & 1))?)),
            0xde | 0xdf => inside = Some((true, self.number(2 << (marker & 1))?.saturating_mul(2))),
            _ => return None,
        }
        self.pending = self.pending.saturating_add(inside.map_or(0, |(_, count)| count));
        let payload = self.take(len)?;
        // Each object has a byte.
        let left = self.bytes.len().saturating_sub(self.at) as u64;
        let extension = extension.and_then(|kind| u8::try_from(kind).ok());
        (self.pending <= left).then_some(Token { at, payload, extension, inside })
    }
}

impl<'m> Iterator for Tokens<'m> {
    type Item = Option<Token<'m>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return (std::mem::take(&mut self.pending) > 0).then_some(None);
        }
        let token = self.read();
        if token.is_none() {
            (self.at, self.pending) = (self.bytes.len(), 0);
        }
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_object_is_read() {
        let found = |bytes: &[u8]| texts(bytes).map(|it| it.bytes.to_vec()).collect::<Vec<_>>();
        for (bytes, expected) in [
            (&b"\x80"[..], &[][..]),
            (b"\x82\xa1a\x01\xa1b\xc4\x02cd", &[&b"a"[..], b"b", b"cd"]),
            (b"\x92\xd9\x01a\xda\x00\x01b", &[b"a", b"b"]),
            (b"\xdc\x00\x02\xdb\0\0\0\x01c\xc5\0\x01d", &[b"c", b"d"]),
            (b"\xde\x00\x01\xc0\xc6\0\0\0\x01e", &[b"e"]),
            (b"\x95\xca1234\xcb12345678\xcc1\xcd12\xd1xx", &[]),
            (b"\x95\xce1234\xcf12345678\xd0x\xd2xxxx\xd3xxxxxxxx", &[]),
            (b"\x93\xc7\x02\x01ab\xc7\x02\x05cd\xd5\x7fef", &[b"cd", b"ef"]),
            (b"\x91\xc3\x91\xe0", &[]),
            (b"\x80\x81\xa1a\xa1b", &[b"a", b"b"]),
        ] {
            assert!(is_msgpack(bytes), "{}", bytes.escape_ascii());
            assert_eq!(found(bytes), expected, "{}", bytes.escape_ascii());
        }
        for (dtype, expected) in
            [("<f4", false), ("|O", true), ("i4,2O8", true), ("NO", false), ("object", true)]
        {
            assert_eq!(is_object_dtype(dtype.as_bytes()), expected, "{dtype}");
        }
        for bytes in [
            &b""[..],
            b"\x80\x02}.",
            b"\x01",
            b"\x91",
            b"\x91\xc1",
            b"\x81\xa1a",
            b"\xdd\xff\xff\xff\xff\0",
            b"\x91\xa5abc",
        ] {
            assert!(!is_msgpack(bytes), "{}", bytes.escape_ascii());
        }
    }
}

//! Reads msgpack, in which Flax and spaCy keep weights: the arrays of numbers, the texts, and the byte strings, of which programs unpickle some.
//!
//! Facts: the specification of msgpack; `encode` and `decode` of msgpack-numpy, which unpickles the `data` of a map with the `kind` `O`, and gives
//! any other `type` to `numpy.dtype`: one with objects takes bytes for their addresses; `PyTorchShim.from_bytes` of thinc 8, which gives a
//! byte string in the msgpack of a byte string to `torch.load`; `_msgpack_ext_unpack` of `flax.serialization`, which makes arrays, complex
//! numbers and numbers of the extensions 1 to 3. Programs have their own code for the same types, so an extension is numbers only if it is
//! what Flax writes.

use std::borrow::Cow;

use super::documents::judge::Judge;
use super::nested::{NestedBytes, is_pickle};
use super::unread::is_text;
use crate::container::sniff;

/// Type of the extension for times, which is -1.
const TIME: u8 = 0xff;
/// Dimensions of an array of NumPy.
const DIMENSIONS_MAX: usize = 64;
/// Bytes of the elements of an array, by the name that NumPy and `ml_dtypes` have for its dtype.
const SIZES: [(u64, &str); 6] = [
    (
        1,
        "bool int8 uint8 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2 float8_e5m2fnuz int4 uint4",
    ),
    (2, "bfloat16 float16 int16 uint16"),
    (4, "float32 int32 uint32"),
    (8, "complex64 float64 int64 uint64"),
    (16, "complex128 float128"),
    (32, "complex256"),
];

/// Returns true for maps and arrays of msgpack, to the end of the bytes. Most bytes are a number of msgpack, which no file consists of.
pub(super) fn is_msgpack(bytes: &[u8]) -> bool {
    starts_as_msgpack(bytes) && Tokens::new(bytes).all(|token| token.is_some())
}

/// Returns true for the first byte of a map or an array.
fn starts_as_msgpack(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(0x80..=0x9f | 0xdc..=0xdf))
}

/// What is in msgpack besides numbers and texts.
#[derive(Default)]
pub(super) struct Contents<'m> {
    /// Byte strings that may be unpickled, and texts that look as if they could.
    pub(super) nested: Vec<NestedBytes<'m>>,
    /// The first type of an extension for which a program has its own code.
    pub(super) own_extension: Option<u8>,
    /// True if a map means an array for msgpack-numpy and is not one of numbers.
    pub(super) has_other_array: bool,
}

/// Reads the objects, and gives their texts to a judge, as those of a document.
pub(super) fn read<'m>(bytes: &'m [u8], judge: &mut Judge<'_>) -> Contents<'m> {
    let mut found = Contents::default();
    // For each open container, whether it is a map, and how many objects of it follow.
    let mut left: Vec<(bool, u64)> = Vec::new();
    let mut tokens = Tokens::new(bytes);
    while let Some(Some(token)) = tokens.next() {
        let mut is_key = false;
        if let Some((is_map, count)) = left.last_mut() {
            is_key = *is_map && count.is_multiple_of(2);
            *count = count.saturating_sub(1);
        }
        let Token { at, payload, extension, inside, .. } = token;
        let array = inside.and_then(|inside| after_array(inside, tokens.clone()));
        match (inside, extension) {
            _ if array.is_some() => {
                tokens = array.unwrap_or(tokens);
                judge.other();
            }
            (Some((is_map, count)), _) => {
                if !judge.open(is_map) {
                    return found;
                }
                left.push((is_map, count));
            }
            (None, Some(kind)) => {
                if !is_known_extension(kind, payload) {
                    found.own_extension = found.own_extension.or(Some(kind));
                    found.nested.push(NestedBytes { at: at as u64, bytes: payload.into(), is_loaded: false });
                }
                judge.other();
            }
            (None, None) => {
                found.has_other_array |= is_key && payload == b"nd";
                match std::str::from_utf8(payload) {
                    Ok(text) if !text.is_empty() => judge.text(text, at as u64),
                    _ => judge.other(),
                }
                found.nested.extend(nested(at, payload));
            }
        }
        while left.last().is_some_and(|(_, count)| *count == 0) {
            left.pop();
            judge.close(at as u64);
        }
    }
    found
}

/// Returns a byte string that nothing has read, or a text that looks like a pickle.
fn nested(at: usize, payload: &[u8]) -> Option<NestedBytes<'_>> {
    let bytes = latin1(payload).map_or(Cow::Borrowed(payload), Cow::Owned);
    let is_read = is_readable(payload) || is_plain(payload);
    let may_matter = !is_read || is_pickle(&bytes) || starts_as_msgpack(&bytes) || sniff::is_hdf5(&bytes);
    may_matter.then_some(NestedBytes { at: at as u64, bytes, is_loaded: false })
}

/// Returns true for one number or text of msgpack, as thinc keeps the attributes of a model.
fn is_plain(bytes: &[u8]) -> bool {
    let mut tokens = Tokens { bytes, at: 0, pending: 1 };
    tokens.plain().is_some_and(|token| is_readable(token.payload)) && tokens.next().is_none()
}

fn is_readable(payload: &[u8]) -> bool {
    is_text(payload) && std::str::from_utf8(payload).is_ok()
}

/// Returns the bytes of a pickle that was written as a text of its bytes' characters.
fn latin1(payload: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(payload).ok().filter(|text| text.starts_with('\u{80}'))?;
    text.chars().map(|char| u8::try_from(u32::from(char)).ok()).collect()
}

/// Returns true for an extension that is a time, or numbers as Flax writes them.
fn is_known_extension(kind: u8, payload: &[u8]) -> bool {
    let mut tokens = Tokens { bytes: payload, at: 0, pending: 1 };
    let is_known = match kind {
        TIME => return matches!(payload.len(), 4 | 8 | 12),
        1 | 3 => tokens.flax_array(),
        2 => tokens.complex(),
        _ => None,
    };
    is_known.is_some() && tokens.at == payload.len()
}

/// Returns the tokens after an array of numbers as msgpack-numpy writes it; `None` if the container, of which the first token was
/// taken, is not one.
fn after_array(inside: (bool, u64), mut tokens: Tokens<'_>) -> Option<Tokens<'_>> {
    const PAIRS: u64 = 2;
    let size = match inside {
        (true, count) if count == 5 * PAIRS => {
            tokens.expect(b"nd", &[])?;
            tokens.expect(b"", &[0xc3])?;
            let size = tokens.described_size()?;
            tokens.expect(b"kind", &[])?;
            tokens.expect(b"", &[])?;
            tokens.expect(b"shape", &[])?;
            size.checked_mul(tokens.shape()?)?
        }
        (true, count) if count == 3 * PAIRS => {
            tokens.expect(b"nd", &[])?;
            tokens.expect(b"", &[0xc2])?;
            tokens.described_size()?
        }
        _ => return None,
    };
    tokens.expect(b"data", &[])?;
    (tokens.plain()?.payload.len() as u64 == size).then_some(tokens)
}

/// An object: its offset and first byte, the bytes of a text, a byte string or an extension, and the type of an extension.
struct Token<'m> {
    at: usize,
    marker: u8,
    payload: &'m [u8],
    extension: Option<u8>,
    /// True for a map, and the number of the objects in it or in an array.
    inside: Option<(bool, u64)>,
}

impl Token<'_> {
    /// Returns true for a text or a byte string.
    fn is_bytes(&self) -> bool {
        matches!(self.marker, 0xa0..=0xbf | 0xc4..=0xc6 | 0xd9..=0xdb)
    }
}

/// Reads the objects of msgpack one by one, those in maps and arrays after these; ends with `None` where the bytes are none.
#[derive(Clone)]
struct Tokens<'m> {
    bytes: &'m [u8],
    at: usize,
    /// Objects of open maps and arrays that are not read yet.
    pending: u64,
}

impl<'m> Tokens<'m> {
    fn new(bytes: &'m [u8]) -> Self {
        Self { bytes, at: 0, pending: 0 }
    }

    /// Takes an object that is not a container or an extension.
    fn plain(&mut self) -> Option<Token<'m>> {
        self.next()?.filter(|token| token.inside.is_none() && token.extension.is_none())
    }

    /// Takes an object with these bytes, and one of these markers if there are some.
    fn expect(&mut self, payload: &[u8], markers: &[u8]) -> Option<()> {
        let token = self.plain()?;
        let is_marked = if markers.is_empty() { token.is_bytes() } else { markers.contains(&token.marker) };
        (token.payload == payload && is_marked).then_some(())
    }

    /// Takes `type` and a dtype of numbers or texts as NumPy describes it, such as `<f4`. Returns the bytes of an element.
    fn described_size(&mut self) -> Option<u64> {
        self.expect(b"type", &[])?;
        let [b'<' | b'>' | b'|' | b'=', kind, size @ ..] = self.plain()?.payload else { return None };
        let size: u64 = std::str::from_utf8(size).ok()?.parse().ok()?;
        match kind {
            b'b' | b'i' | b'u' | b'f' | b'c' | b'S' => Some(size),
            b'U' => size.checked_mul(4),
            _ => None,
        }
    }

    /// Takes the shape of an array. Returns the number of its elements.
    fn shape(&mut self) -> Option<u64> {
        let Some((false, count)) = self.next()??.inside else { return None };
        let count = usize::try_from(count).ok().filter(|count| *count <= DIMENSIONS_MAX)?;
        (0..count).try_fold(1_u64, |numel, _| {
            let at = self.at;
            let token = self.plain().filter(|token| matches!(token.marker, 0..=0x7f | 0xcc..=0xcf))?;
            let digits = self.bytes.get(at..self.at)?.get(usize::from(token.marker > 0x7f)..)?;
            numel.checked_mul(digits.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        })
    }

    /// Takes the array of Flax: its shape, the name of its dtype, and its bytes.
    fn flax_array(&mut self) -> Option<()> {
        self.next()??.inside.filter(|inside| *inside == (false, 3))?;
        let numel = self.shape()?;
        let name = std::str::from_utf8(self.plain()?.payload).ok()?;
        let (size, _) = SIZES.iter().find(|(_, names)| names.split(' ').any(|known| known == name))?;
        (self.plain()?.payload.len() as u64 == numel.checked_mul(*size)?).then_some(())
    }

    /// Takes an array of two numbers.
    fn complex(&mut self) -> Option<()> {
        self.next()??.inside.filter(|inside| *inside == (false, 2))?;
        (0..2).try_for_each(|_| self.plain().filter(|token| token.marker == 0xcb).map(drop))
    }

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
        let marker = u8::try_from(marker).unwrap_or_default();
        (self.pending <= left).then_some(Token { at, marker, payload, extension, inside })
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

    fn contents(bytes: &[u8]) -> Contents<'_> {
        read(bytes, &mut Judge::new(&|_| false))
    }

    #[test]
    fn each_kind_of_object_is_read() {
        let found =
            |bytes: &[u8]| contents(bytes).nested.iter().map(|it| it.bytes.to_vec()).collect::<Vec<_>>();
        for (bytes, expected) in [
            (&b"\x80"[..], &[][..]),
            (b"\x82\xa1a\x01\xa1b\xc4\x02\xffd", &[&b"\xffd"[..]]),
            (b"\x92\xd9\x01\xc1\xda\x00\x02\0b", &[b"\xc1", b"\0b"]),
            (b"\xdc\x00\x02\xdb\0\0\0\x01c\xc5\0\x01\x80", &[b"\x80"]),
            (b"\xde\x00\x01\xc0\xc6\0\0\0\x02e\0", &[b"e\0"]),
            (b"\x95\xca1234\xcb12345678\xcc1\xcd12\xd1xx", &[]),
            (b"\x95\xce1234\xcf12345678\xd0x\xd2xxxx\xd3xxxxxxxx", &[]),
            (b"\x93\xc7\x02\x01ab\xc7\x02\x05cd\xd5\x7fef", &[b"ab", b"cd", b"ef"]),
            (b"\x91\xc3\x91\xe0", &[]),
            // Numbers of msgpack in a byte string.
            (b"\x92\xc4\x01\x05\xc4\x09\xcb12345678", &[]),
        ] {
            assert!(is_msgpack(bytes), "{}", bytes.escape_ascii());
            assert_eq!(found(bytes), expected, "{}", bytes.escape_ascii());
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

    #[test]
    fn an_array_is_numbers_if_its_bytes_are_those_of_its_shape() {
        let array = |dtype: &str, kind: &str, bytes: u8| {
            let len = |text: &str| u8::try_from(text.len()).expect("it is short");
            let text = |text: &str| [&[0xa0 | len(text)], text.as_bytes()].concat();
            let data = [b"\xc4", &[bytes][..], &vec![0xff; usize::from(bytes)]].concat();
            [
                &b"\x85\xa2nd\xc3\xa4type"[..],
                &text(dtype),
                b"\xa4kind",
                &text(kind),
                b"\xa5shape\x92\xcc\x02\x03\xa4data",
                &data,
            ]
            .concat()
        };
        for (dtype, kind, bytes, expected) in [
            ("<f4", "", 24, true),
            ("|u1", "", 6, true),
            ("<U1", "", 24, true),
            ("<f4", "", 20, false),
            ("<f4", "V", 24, false),
            ("|O", "", 48, false),
            ("|O8", "O", 48, false),
            ("f4,O", "", 24, false),
        ] {
            let bytes = array(dtype, kind, bytes);
            let found = contents(&bytes);
            assert_eq!(
                (found.nested.is_empty(), !found.has_other_array),
                (expected, expected),
                "{dtype} {kind}"
            );
        }
        let number = b"\x83\xa2nd\xc2\xa4type\xa3<f8\xa4data\xc4\x08\xff\xff\xff\xff\xff\xff\xff\xff";
        assert!(contents(number).nested.is_empty());
        assert!(!contents(b"\x92\xa2nd\xc3").has_other_array, "a text that is not a key");
    }

    #[test]
    fn an_extension_is_numbers_if_flax_writes_it() {
        let f32s = b"\x93\x91\x02\xa7float32\xc4\x08\0\0\x80\x3f\0\0\x80\x3f";
        for (kind, payload, expected) in [
            (1, &f32s[..], true),
            (3, b"\x93\x90\xa4bool\xc4\x01\x01", true),
            (2, b"\x92\xcb\0\0\0\0\0\0\0\0\xcb\0\0\0\0\0\0\0\0", true),
            (TIME, b"\0\0\0\0", true),
            (1, &[&f32s[..], b"\0"].concat(), false),
            (1, b"\x93\x91\x03\xa7float32\xc4\x08\0\0\0\0\0\0\0\0", false),
            (1, b"\x93\x91\x01\xa6object\xc4\x08\0\0\0\0\0\0\0\0", false),
            (2, f32s, false),
            (4, f32s, false),
            (TIME, b"\x80\x02}.\0", false),
            (1, b"cos\nsystem\n", false),
        ] {
            assert_eq!(is_known_extension(kind, payload), expected, "{kind} {}", payload.escape_ascii());
        }
    }
}

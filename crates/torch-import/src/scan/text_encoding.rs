//! Encodings of texts.

use std::borrow::Cow;

/// Returns a text as UTF-8 without its byte order mark, if it is UTF-16 or UTF-32.
pub(super) fn decode_text(bytes: &[u8]) -> Cow<'_, [u8]> {
    let units = |is_big: bool, bytes: &[u8]| -> String {
        let unit = |pair: &[u8]| match pair {
            [high, low] if is_big => u16::from_be_bytes([*high, *low]),
            [low, high] => u16::from_le_bytes([*low, *high]),
            _ => 0xfffd,
        };
        let decoded = char::decode_utf16(bytes.chunks(2).map(unit));
        decoded.map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    let wide = |is_big: bool, bytes: &[u8]| -> String {
        let unit = |four: &[u8]| {
            let four: [u8; 4] = four.try_into().ok()?;
            char::from_u32(if is_big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
        };
        bytes.chunks(4).map(|four| unit(four).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    let text = match bytes {
        [0, 0, 0xfe, 0xff, rest @ ..] => wide(true, rest),
        [0xff, 0xfe, 0, 0, rest @ ..] => wide(false, rest),
        [0xfe, 0xff, rest @ ..] => units(true, rest),
        [0xff, 0xfe, rest @ ..] => units(false, rest),
        [0xef, 0xbb, 0xbf, rest @ ..] => return Cow::Borrowed(rest),
        [0, 0, _, _, ..] => wide(true, bytes),
        [0, _, ..] => units(true, bytes),
        [_, 0, 0, 0, ..] => wide(false, bytes),
        [_, 0, ..] => units(false, bytes),
        _ => return Cow::Borrowed(bytes),
    };
    Cow::Owned(text.into_bytes())
}

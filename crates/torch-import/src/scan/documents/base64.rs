//! Base64 as Python reads it.
//!
//! Facts: `base64.b64decode` without `validate`, and `Modules/binascii.c` of CPython 3.13: other characters are skipped, and what
//! follows the padding is ignored.

/// Decodes a text; what follows an error is left out.
pub(in crate::scan) fn decode_as_python(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let (mut bits, mut count, mut pads) = (0_u32, 0_u32, 0_u32);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte.wrapping_sub(b'A'),
            b'a'..=b'z' => byte.wrapping_sub(b'a').wrapping_add(26),
            b'0'..=b'9' => byte.wrapping_sub(b'0').wrapping_add(52),
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                pads = pads.saturating_add(1);
                if count >= 2 && count.saturating_add(pads) >= 4 {
                    return bytes;
                }
                continue;
            }
            _ => continue,
        };
        pads = 0;
        bits = (bits << 6) | u32::from(value);
        count = count.wrapping_add(1) % 4;
        let shift = match count {
            2 => 4,
            3 => 2,
            0 => 0,
            _ => continue,
        };
        bytes.push(u8::try_from((bits >> shift) & 0xff).unwrap_or_default());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_characters_are_skipped() {
        for (text, bytes) in [
            ("gAN9Lg==", &b"\x80\x03}."[..]),
            ("gA*N9 \nLg==gggg", b"\x80\x03}."),
            ("gA=N9Lg=x=", b"\x80\x03}.\x0c"),
            ("", b""),
            ("====", b""),
        ] {
            assert_eq!(decode_as_python(text), bytes, "{text}");
        }
    }
}

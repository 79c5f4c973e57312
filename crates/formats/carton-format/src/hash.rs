//! Parser of a SHA-256 in hexadecimal: 64 lower-case digits, as in MANIFEST and LINKS.

/// Parses a SHA-256 of 64 lower-case hexadecimal digits; `None` for any other text.
pub fn sha256_from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_64_lower_case_digits_are_a_hash() {
        let text = "0123456789abcdef".repeat(4);
        let hash = sha256_from_hex(&text).expect("64 digits");
        assert_eq!(hash.first_chunk(), Some(&[0x01, 0x23, 0x45, 0x67]));
        assert_eq!(byte_source::hex(&hash), text);
        for other in ["", &text[1..], &text.to_uppercase(), &text.replace('f', "g"), &format!("{text}0")] {
            assert_eq!(sha256_from_hex(other), None, "{other}");
        }
    }
}

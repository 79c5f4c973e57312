//! The bytes of a single token, which may be a part of a character.

use super::json::JsonTokenizer;

impl JsonTokenizer {
    /// Returns the bytes that a token stands for in a text, with its first space; empty if the vocabulary has no such token.
    pub(super) fn token_bytes(&self, token: u32) -> Vec<u8> {
        let Some(piece) = self.inner.id_to_token(token) else { return Vec::new() };
        if self.inner.get_added_vocabulary().get_added_tokens_decoder().contains_key(&token) {
            return piece.into_bytes();
        }
        let byte = piece.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
        if let Some(byte) = byte.filter(|hex| hex.len() == 2).and_then(|hex| u8::from_str_radix(hex, 16).ok())
        {
            return vec![byte];
        }
        let bytes = piece.chars().map(byte_of_char).collect::<Option<Vec<u8>>>();
        let bytes = bytes.filter(|_| self.is_byte_level);
        bytes.unwrap_or_else(|| piece.replace('▁', " ").into_bytes())
    }
}

/// Returns the byte that a character of a byte-level vocabulary stands for.
///
/// Facts: `bytes_to_unicode` of GPT-2: printable characters of Latin-1 are themselves, and the other bytes follow from U+0100 on.
fn byte_of_char(c: char) -> Option<u8> {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
    match u32::from(c).checked_sub(0x100) {
        None => u8::try_from(c).ok().filter(is_printable),
        Some(number) => (0..=u8::MAX).filter(|byte| !is_printable(byte)).nth(usize::try_from(number).ok()?),
    }
}

#[cfg(test)]
mod tests {
    use super::byte_of_char;

    #[test]
    fn each_byte_has_a_character() {
        let mut bytes: Vec<u8> = ('\0'..='\u{143}').filter_map(byte_of_char).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=u8::MAX).collect::<Vec<_>>());
        assert_eq!(
            (byte_of_char('Ġ'), byte_of_char('Ċ'), byte_of_char(' ')),
            (Some(b' '), Some(b'\n'), None)
        );
    }
}

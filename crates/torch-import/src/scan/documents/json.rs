//! Reads JSON as Python's `json` does, and a little more: the events of what it accepts, and of the part before an error.
//!
//! Facts: `Lib/json/decoder.py`, `Lib/json/scanner.py` and `json.detect_encoding` of CPython 3.13. It reads `NaN`, `Infinity` and
//! lone surrogates, and numbers, documents and levels without a limit; of two equal keys, it keeps the last, so both count here.

use std::borrow::Cow;

use super::judge::Judge;

/// Reads a document, or several in a row, as in JSON Lines. Returns false if Python's reader refuses one.
pub(super) fn read(bytes: &[u8], judge: &mut Judge<'_>) -> bool {
    let text = crate::scan::text_encoding::decode_text(bytes);
    let mut reader = Reader { text: &text, at: 0 };
    let (mut levels, mut documents) = (Vec::<bool>::new(), 0_usize);
    loop {
        // A value, or the end of a container that has none yet.
        reader.skip_blanks();
        let Some(first) = reader.peek() else { return documents > 0 && levels.is_empty() };
        match first {
            b'{' | b'[' => {
                reader.at = reader.at.saturating_add(1);
                let is_map = first == b'{';
                if !judge.open(is_map) {
                    return true;
                }
                levels.push(is_map);
                reader.skip_blanks();
                match reader.peek() {
                    Some(b'}') if is_map => {}
                    Some(b']') if !is_map => {}
                    _ if !is_map => continue,
                    _ if reader.key(judge) => continue,
                    _ => return false,
                }
            }
            b'"' => {
                if !reader.text(judge) {
                    return false;
                }
            }
            _ => {
                let start = reader.at as u64;
                match reader.word() {
                    Some(b"true") => judge.text("true", start),
                    Some(_) => judge.other(),
                    None => return false,
                }
            }
        }
        // What follows a value.
        loop {
            let Some(&is_map) = levels.last() else {
                documents = documents.saturating_add(1);
                break;
            };
            reader.skip_blanks();
            let next = reader.peek();
            reader.at = reader.at.saturating_add(1);
            match next {
                Some(b'}') if is_map => {}
                Some(b']') if !is_map => {}
                Some(b',') if !is_map => break,
                Some(b',') if is_map && reader.key(judge) => break,
                _ => return false,
            }
            levels.pop();
            judge.close(reader.at as u64);
        }
    }
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn skip_blanks(&mut self) {
        let blanks =
            self.rest().iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
        self.at = self.at.saturating_add(blanks);
    }

    /// Reads a number or a literal; `None` if it is neither.
    fn word(&mut self) -> Option<&'t [u8]> {
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let len = self.rest().iter().take_while(is_part).count();
        let word = self.rest().get(..len).unwrap_or_default();
        self.at = self.at.saturating_add(len);
        let is_literal = matches!(word, b"null" | b"true" | b"false" | b"NaN" | b"Infinity" | b"-Infinity");
        Some(word).filter(|word| is_literal || is_number(word))
    }

    /// Reads a key and the colon after it.
    fn key(&mut self, judge: &mut Judge<'_>) -> bool {
        self.skip_blanks();
        if self.peek() != Some(b'"') || !self.text(judge) {
            return false;
        }
        self.skip_blanks();
        let is_colon = self.peek() == Some(b':');
        self.at = self.at.saturating_add(1);
        is_colon
    }

    /// Reads a text, and gives it to the judge.
    fn text(&mut self, judge: &mut Judge<'_>) -> bool {
        let start = self.at as u64;
        let rest = self.rest().get(1..).unwrap_or_default();
        let mut end = 0_usize;
        loop {
            let Some(tail) = rest.get(end..) else { return false };
            let Some(next) = tail.iter().position(|byte| matches!(byte, b'"' | b'\\')) else { return false };
            end = end.saturating_add(next);
            if rest.get(end) == Some(&b'"') {
                break;
            }
            end = end.saturating_add(2);
        }
        let content = rest.get(..end).unwrap_or_default();
        self.at = self.at.saturating_add(end).saturating_add(2);
        let Some(text) = unescape(content) else { return false };
        judge.text(&text, start);
        true
    }
}

/// Returns true for `-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?`.
fn is_number(word: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = word.strip_prefix(b"-").unwrap_or(word);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest.starts_with(b"0")) {
        return false;
    }
    let mut rest = rest.get(whole..).unwrap_or_default();
    if let Some(fraction) = rest.strip_prefix(b".") {
        let len = digits(fraction);
        rest = fraction.get(len..).unwrap_or_default();
        if len == 0 {
            return false;
        }
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = exponent.strip_prefix(b"-").or(exponent.strip_prefix(b"+")).unwrap_or(exponent);
        return !exponent.is_empty() && digits(exponent) == exponent.len();
    }
    rest.is_empty()
}

/// Returns a text without its escapes; a lone surrogate becomes a replacement character.
fn unescape(content: &[u8]) -> Option<Cow<'_, str>> {
    if !content.contains(&b'\\') {
        return Some(String::from_utf8_lossy(content));
    }
    let mut units: Vec<u16> = Vec::new();
    let text = String::from_utf8_lossy(content);
    let mut left = text.chars();
    while let Some(next) = left.next() {
        if next != '\\' {
            units.extend(next.encode_utf16(&mut [0; 2]).iter());
            continue;
        }
        units.push(match left.next()? {
            'b' => 8,
            't' => 9,
            'n' => 10,
            'f' => 12,
            'r' => 13,
            same @ ('"' | '\\' | '/') => u16::try_from(u32::from(same)).ok()?,
            'u' => {
                let digits = left
                    .as_str()
                    .get(..4)
                    .filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()))?;
                let unit = u16::from_str_radix(digits, 16).ok()?;
                left = left.as_str().get(4..)?.chars();
                unit
            }
            _ => return None,
        });
    }
    Some(Cow::Owned(String::from_utf16_lossy(&units)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_reads_is_read() {
        let read = |text: &[u8]| read(text, &mut Judge::new(&|_| false));
        let deep = [b"[".repeat(5000), b"]".repeat(5000)].concat();
        for text in [
            &b"{\"a\": NaN, \"b\": [Infinity, -Infinity, 1e999, -0.5E-7, null, true, false, {}, []]}"[..],
            b"\xef\xbb\xbf[1]",
            b"\"\\ud800 \\u00e9 \\/\"",
            b"\xff\xfe[\0]\0",
            &deep,
            b"[1] [2]\n",
        ] {
            assert!(read(text), "{}", text.escape_ascii());
        }
        for text in [
            "",
            "[",
            "[1,]",
            "{\"a\" 1}",
            "{1: 2}",
            "01",
            "1.",
            "+1",
            "nan",
            "\"\\x\"",
            "\"\\u12g4\"",
            "[1}",
            "'a'",
        ] {
            assert!(!read(text.as_bytes()), "{text}");
        }
    }
}

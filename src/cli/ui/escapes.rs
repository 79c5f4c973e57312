//! Escapes for text from files: characters that are invisible, reorder text or control a terminal are not printed raw.
//!
//! Facts: the Unicode Character Database 16.0. `HIDDEN` has the code points of category Cf, Zl or Zp in `UnicodeData.txt`,
//! and the code points with the property `Default_Ignorable_Code_Point` in `DerivedCoreProperties.txt`, including reserved
//! ones. Category Cc is `char::is_control`. No crate has both properties without the tables of all others.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use serde_json::ser::Formatter;

/// Ranges of hidden code points, as first and last code point, sorted.
const HIDDEN: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Returns true if the character is invisible, reorders text or controls a terminal.
fn is_hidden(c: char) -> bool {
    if c < '\u{ad}' {
        return c.is_control();
    }
    let after = HIDDEN.partition_point(|(first, _)| *first <= c);
    after.checked_sub(1).and_then(|at| HIDDEN.get(at)).is_some_and(|(_, last)| c <= *last)
}

/// Returns true if all characters are printable ASCII, which is the common case.
fn is_printable_ascii(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Escapes hidden characters in text from a file: they could move the cursor, rename a window, or make two names look alike.
pub(crate) fn escape_hidden(text: impl Display) -> String {
    let text = text.to_string();
    if is_printable_ascii(&text) || !text.contains(is_hidden) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// JSON formatter that escapes hidden characters as `\u0000`, which a parser reads back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EscapingJsonFormatter;

impl Formatter for EscapingJsonFormatter {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        if is_printable_ascii(fragment) {
            return out.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_hidden(*c)) {
            let (before, after) = rest.split_at(at);
            out.write_all(before.as_bytes())?;
            out.write_all(json_escape(c).as_bytes())?;
            rest = after.get(c.len_utf8()..).unwrap_or_default();
        }
        out.write_all(rest.as_bytes())
    }
}

/// Returns the character as one or two JSON escapes.
fn json_escape(c: char) -> String {
    let mut text = String::new();
    for unit in c.encode_utf16(&mut [0; 2]) {
        write!(text, "\\u{unit:04x}").expect("memory takes any text");
    }
    text
}

/// Writer of lines of text or JSON that escapes hidden characters other than line feeds.
pub(crate) struct EscapingWriter<W> {
    out: W,
    json: bool,
}

impl<W: Write> EscapingWriter<W> {
    pub(crate) fn new(out: W, json: bool) -> Self {
        Self { out, json }
    }
}

impl<W: Write> Write for EscapingWriter<W> {
    /// Writes whole characters: each call must contain complete UTF-8 sequences.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_plain = |byte: &u8| matches!(byte, b'\n' | b' '..=b'~');
        if bytes.iter().all(is_plain) {
            self.out.write_all(bytes)?;
            return Ok(bytes.len());
        }
        for line in String::from_utf8_lossy(bytes).split_inclusive('\n') {
            let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
            if self.json {
                EscapingJsonFormatter.write_string_fragment(&mut self.out, text)?;
            } else {
                self.out.write_all(escape_hidden(text).as_bytes())?;
            }
            self.out.write_all(end.as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    fn json(value: &str) -> String {
        let mut out = Vec::new();
        value
            .serialize(&mut serde_json::Serializer::with_formatter(&mut out, EscapingJsonFormatter))
            .expect("memory takes it");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn what_a_person_would_not_see_is_escaped() {
        assert_eq!(escape_hidden("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
        for c in "\u{80}\u{9b}\u{9f}\u{ad}\u{34f}\u{61c}\u{180e}\u{200b}\u{200d}\u{200f}\u{2028}\u{2029}\u{202e}\
                  \u{2060}\u{2065}\u{2066}\u{2069}\u{3164}\u{fe0f}\u{feff}\u{fff9}\u{e0001}\u{e0041}\u{e007f}\u{e01ef}"
            .chars()
        {
            let code = u32::from(c);
            assert_eq!(escape_hidden(format!("a{c}b")), format!("a\\u{{{code:x}}}b"));
            let text = format!("a{c}\"\\\n");
            let escaped = json(&text);
            assert!(escaped.is_ascii(), "{escaped}");
            assert_eq!(serde_json::from_str::<String>(&escaped).expect("JSON"), text);
        }
        assert_eq!(json("\u{85}\u{e0041}"), "\"\\u0085\\udb40\\udc41\"");
        for plain in ["läyer.0", "层", "א", "α\u{301}", "🤗", "a b", "\\u{1b}"] {
            assert_eq!(escape_hidden(plain), plain);
        }
        assert_eq!(json("层🤗"), "\"层🤗\"");
    }

    #[test]
    fn ranges_are_sorted() {
        let ends = HIDDEN.iter().flat_map(|(first, last)| [first, last]);
        assert!(ends.is_sorted());
    }

    #[test]
    fn lines_stay_lines() {
        let escaped = |json: bool| {
            let mut out = Vec::new();
            let mut writer = EscapingWriter::new(&mut out, json);
            writer.write_all("a\u{200b}\nb\n\u{feff}".as_bytes()).expect("memory takes it");
            String::from_utf8(out).expect("text")
        };
        assert_eq!(escaped(false), "a\\u{200b}\nb\n\\u{feff}");
        assert_eq!(escaped(true), "a\\u200b\nb\n\\ufeff");
    }
}

//! Strings, bytes and floats as Python's `repr` writes them; characters that a terminal would interpret are escaped.
//!
//! Sources: `unicode_repr`, `bytes_repr` and `float_repr` of CPython. Rust's own table, which follows the same Unicode
//! categories, decides which characters are printable.

use std::fmt::{self, Write};

use crate::value::Text;

/// Writes text between quotes. Text of more than `most` characters is truncated, with `…` after the closing quote.
pub(crate) fn text(out: &mut dyn Write, text: &Text<'_>, most: usize) -> fmt::Result {
    match text.as_str() {
        Some(text) => str(out, text, most),
        None => quoted(out, || text.code_points(), most),
    }
}

/// Writes a `str` between quotes, truncated as in [`text`].
pub(crate) fn str(out: &mut dyn Write, text: &str, most: usize) -> fmt::Result {
    // Nearly every string is short and plain.
    if text.len() <= most
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\'))
    {
        out.write_char('\'')?;
        out.write_str(text)?;
        return out.write_char('\'');
    }
    quoted(out, || text.chars().map(u32::from), most)
}

/// Writes a byte string decoded as latin-1, as pickletools shows Python 2's `str`.
pub(crate) fn latin1(out: &mut dyn Write, bytes: &[u8], most: usize) -> fmt::Result {
    quoted(out, || bytes.iter().map(|&byte| u32::from(byte)), most)
}

/// Writes bytes as `b'…'`, truncated after `most` bytes.
pub(crate) fn bytes(out: &mut dyn Write, bytes: &[u8], most: usize) -> fmt::Result {
    byte_string(out, bytes, most, false)
}

/// Writes a bytearray as `bytearray(b'…')`. CPython escapes single quotes in it even between double quotes.
pub(crate) fn bytearray(out: &mut dyn Write, bytes: &[u8], most: usize) -> fmt::Result {
    out.write_str("bytearray(")?;
    byte_string(out, bytes, most, true)?;
    out.write_char(')')
}

fn byte_string(out: &mut dyn Write, bytes: &[u8], most: usize, escape_single: bool) -> fmt::Result {
    out.write_char('b')?;
    let quote = quote(|| bytes.iter().map(|&byte| u32::from(byte)), most);
    out.write_char(quote)?;
    for &byte in bytes.iter().take(most) {
        match byte {
            b'\\' => out.write_str("\\\\")?,
            b'\n' => out.write_str("\\n")?,
            b'\r' => out.write_str("\\r")?,
            b'\t' => out.write_str("\\t")?,
            b'\'' if escape_single => out.write_str("\\'")?,
            b' '..=b'~' if char::from(byte) == quote => write!(out, "\\{quote}")?,
            b' '..=b'~' => out.write_char(char::from(byte))?,
            _ => write!(out, "\\x{byte:02x}")?,
        }
    }
    out.write_char(quote)?;
    if bytes.len() > most { out.write_char('…') } else { Ok(()) }
}

/// Writes a name or an annotator's text without quotes, with unprintable characters escaped.
pub(crate) fn plain(out: &mut dyn Write, text: &str) -> fmt::Result {
    let mut rest = text;
    while let Some(at) = rest.find(|c| !is_terminal_safe(c)) {
        let (before, after) = rest.split_at(at);
        out.write_str(before)?;
        let mut characters = after.chars();
        if let Some(c) = characters.next() {
            escape(out, u32::from(c))?;
        }
        rest = characters.as_str();
    }
    out.write_str(rest)
}

/// Writes text without quotes, as [`plain`] does. Text of more than `most` characters is truncated with `…`.
pub(crate) fn name(out: &mut dyn Write, text: &str, most: usize) -> fmt::Result {
    match text.char_indices().nth(most) {
        Some((end, _)) => {
            plain(out, text.get(..end).unwrap_or_default())?;
            out.write_char('…')
        }
        None => plain(out, text),
    }
}

/// Writes a float as Python does: `1.0`, `1e+16`, `1e-05`.
pub(crate) fn float(out: &mut dyn Write, value: f64) -> fmt::Result {
    if value.is_nan() {
        return out.write_str("nan");
    }
    if value.is_infinite() {
        return out.write_str(if value > 0.0 { "inf" } else { "-inf" });
    }
    let shortest = format!("{value:e}");
    // If two shortest strings are equally near, Python takes the one with an even last digit, as exact rounding does.
    let places = shortest.bytes().take_while(|&byte| byte != b'e').filter(u8::is_ascii_digit).count();
    let rounded = format!("{value:.*e}", places.saturating_sub(1));
    let scientific = if rounded.parse() == Ok(value) { rounded } else { shortest };
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent @ -4..16) => fixed(out, digits, exponent),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        Err(_) => Err(fmt::Error),
    }
}

/// Writes the digits `d.ddd` with a decimal exponent from -4 to 15 in positional notation.
fn fixed(out: &mut dyn Write, digits: &str, exponent: i32) -> fmt::Result {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    out.write_str(sign)?;
    let mut digits = digits.chars().filter(char::is_ascii_digit);
    if exponent < 0 {
        out.write_str("0.")?;
        (1..exponent.unsigned_abs()).try_for_each(|_| out.write_char('0'))?;
        return digits.try_for_each(|digit| out.write_char(digit));
    }
    for _ in 0..=exponent {
        out.write_char(digits.next().unwrap_or('0'))?;
    }
    out.write_char('.')?;
    out.write_char(digits.next().unwrap_or('0'))?;
    digits.try_for_each(|digit| out.write_char(digit))
}

/// Returns the quote that Python uses: double quotes only if the text has single quotes and no double quotes.
fn quote<I: Iterator<Item = u32>>(code_points: impl Fn() -> I, most: usize) -> char {
    let has = |quote: char| code_points().take(most).any(|c| c == u32::from(quote));
    if has('\'') && !has('"') { '"' } else { '\'' }
}

fn quoted<I: Iterator<Item = u32>>(
    out: &mut dyn Write,
    code_points: impl Fn() -> I,
    most: usize,
) -> fmt::Result {
    let quote = quote(&code_points, most);
    out.write_char(quote)?;
    let mut rest = code_points();
    for code_point in rest.by_ref().take(most) {
        match char::from_u32(code_point) {
            Some('\\') => out.write_str("\\\\")?,
            Some(c) if c == quote => write!(out, "\\{c}")?,
            Some(c) if is_terminal_safe(c) => out.write_char(c)?,
            _ => escape(out, code_point)?,
        }
    }
    out.write_char(quote)?;
    if rest.next().is_some() { out.write_char('…') } else { Ok(()) }
}

fn escape(out: &mut dyn Write, code_point: u32) -> fmt::Result {
    match code_point {
        0x09 => out.write_str("\\t"),
        0x0a => out.write_str("\\n"),
        0x0d => out.write_str("\\r"),
        0..=0xff => write!(out, "\\x{code_point:02x}"),
        0x100..=0xffff => write!(out, "\\u{code_point:04x}"),
        _ => write!(out, "\\U{code_point:08x}"),
    }
}

pub(crate) fn is_terminal_safe(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // The character is tested after an `a`, because Rust escapes a combining character only at the start of a string.
    let mut text = [b'a'; 5];
    let length = text.split_first_mut().map_or(0, |(_, rest)| c.encode_utf8(rest).len());
    let text = text.get(..length.saturating_add(1)).map(std::str::from_utf8);
    text.and_then(Result::ok).is_some_and(|text| text.escape_debug().count() == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(f: impl FnOnce(&mut dyn Write) -> fmt::Result) -> String {
        let mut out = String::new();
        f(&mut out).expect("a String takes everything");
        out
    }

    #[test]
    fn floats_are_written_as_in_python() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.5, "1.5"),
            (100.0, "100.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00012, "0.00012"),
            (0.00001, "1e-05"),
            (5e-324, "5e-324"),
            (-5_846_371_216_317_177.0 / 4.0, "-1461592804079294.2"),
            (0.000_3, "0.0003"),
            (1234.5, "1234.5"),
            (f64::NEG_INFINITY, "-inf"),
            (-f64::NAN, "nan"),
        ] {
            assert_eq!(written(|out| float(out, value)), expected);
        }
    }

    #[test]
    fn strings_are_written_as_in_python() {
        for (value, expected) in [
            ("", "''"),
            ("a'b", "\"a'b\""),
            ("a'b\"c", "'a\\'b\"c'"),
            ("a\\\n\t\r\x1b\x7f", "'a\\\\\\n\\t\\r\\x1b\\x7f'"),
            ("é\u{9b}\u{202e}\u{1f600}", "'é\\x9b\\u202e\u{1f600}'"),
        ] {
            assert_eq!(written(|out| str(out, value, usize::MAX)), expected);
        }
        assert_eq!(written(|out| str(out, "abcdef", 3)), "'abc'…");
        assert_eq!(written(|out| bytes(out, b"a'\xff\0", 9)), "b\"a'\\xff\\x00\"");
        assert_eq!(written(|out| bytearray(out, b"a'", 9)), "bytearray(b\"a\\'\")");
        assert_eq!(written(|out| plain(out, "a\x1b[2Jb")), "a\\x1b[2Jb");
        assert_eq!(written(|out| name(out, "añb", 2)), "añ…");
        assert_eq!(written(|out| name(out, "añb", 3)), "añb");
    }
}

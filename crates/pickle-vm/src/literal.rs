//! Text literals of protocol 0: decimal integers, floats, quoted strings and escaped text.
//!
//! Sources: the readers in `Lib/pickletools.py`; `int` and `float` of Python for the syntax of numbers; the
//! codecs `escape_decode` and `raw-unicode-escape`.

use std::borrow::Cow;

use crate::error::ErrorKind;
use crate::integer::{Integer, MAX_DIGITS};
use crate::value::push_code_point;

/// Parses an integer as picklers write it: a minus or nothing, and digits without a leading zero. Python's unpicklers read spaces, a plus,
/// underscores and zeros, too, but not all of them alike: after a zero, the one in C reads octal digits, and `Lib/pickle.py` stops.
pub(crate) fn integer(line: &[u8]) -> Result<Integer<'static>, ErrorKind> {
    let (negative, digits) = match line {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(ErrorKind::NotAnInteger);
    }
    if digits.starts_with(b"0") && line != b"0" {
        return Err(ErrorKind::AmbiguousNumber);
    }
    if digits.len() > MAX_DIGITS {
        return Err(ErrorKind::TooManyDigits { max: MAX_DIGITS });
    }
    Ok(Integer::from_digits(negative, digits))
}

/// Parses a float as picklers write it, with `repr`. The C unpickler stops at a number that is too large, which is infinite in Python.
pub(crate) fn float(line: &[u8]) -> Result<f64, ErrorKind> {
    let number: Option<f64> = std::str::from_utf8(line).ok().and_then(|number| number.parse().ok());
    let number = number.ok_or(ErrorKind::NotAFloat)?;
    let overflows = number.is_infinite() && line.iter().any(u8::is_ascii_digit);
    if overflows { Err(ErrorKind::AmbiguousNumber) } else { Ok(number) }
}

/// Strips the quotes from a string, and unescapes the string.
pub(crate) fn unquote(line: &[u8]) -> Result<Cow<'_, [u8]>, ErrorKind> {
    let Some(&quote @ (b'"' | b'\'')) = line.first() else { return Err(ErrorKind::NoQuotes) };
    match line {
        [first, inner @ .., last] if *first == quote && *last == quote => decode_escapes(inner),
        // pickletools accepts a lone quote as an empty string.
        [_] => Ok(Cow::Borrowed(&[])),
        _ => Err(ErrorKind::NoQuotes),
    }
}

/// Decodes backslash escapes like Python's `codecs.escape_decode`.
pub(crate) fn decode_escapes(escaped: &[u8]) -> Result<Cow<'_, [u8]>, ErrorKind> {
    if !escaped.contains(&b'\\') {
        return Ok(Cow::Borrowed(escaped));
    }
    let mut out = Vec::new();
    let mut rest = escaped;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (&letter, after) = rest.split_first().ok_or(ErrorKind::BadEscape)?;
        rest = after;
        match letter {
            b'\n' => {}
            b'\\' | b'\'' | b'"' => out.push(letter),
            b'a' => out.push(0x07),
            b'b' => out.push(0x08),
            b'f' => out.push(0x0c),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(0x0b),
            b'x' => {
                let (value, after) = hex(rest, 2)?;
                out.push(u8::try_from(value).map_err(|_| ErrorKind::BadEscape)?);
                rest = after;
            }
            b'0'..=b'7' => {
                let mut value = octal(letter);
                for _ in 0..2 {
                    let Some((&digit @ b'0'..=b'7', after)) = rest.split_first() else { break };
                    // Values above 0o377 lose their top bit, as in CPython.
                    value = value << 3 | octal(digit);
                    rest = after;
                }
                out.push(value);
            }
            _ => out.extend_from_slice(&[b'\\', letter]),
        }
    }
    Ok(Cow::Owned(out))
}

/// Decodes text like Python's codec `raw-unicode-escape`, to UTF-8 with surrogates.
pub(crate) fn decode_raw_unicode(line: &[u8]) -> Result<Cow<'_, [u8]>, ErrorKind> {
    if line.is_ascii() && !line.contains(&b'\\') {
        return Ok(Cow::Borrowed(line));
    }
    let mut out = Vec::new();
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            push_code_point(&mut out, u32::from(byte));
            continue;
        }
        let digits = match rest.first() {
            Some(b'u') => 4,
            Some(b'U') => 8,
            other => {
                out.push(b'\\');
                if let Some(&other) = other {
                    push_code_point(&mut out, u32::from(other));
                    rest = rest.get(1..).unwrap_or_default();
                }
                continue;
            }
        };
        let (value, after) = hex(rest.get(1..).unwrap_or_default(), digits)?;
        if value > 0x0010_ffff {
            return Err(ErrorKind::BadEscape);
        }
        push_code_point(&mut out, value);
        rest = after;
    }
    Ok(Cow::Owned(out))
}

fn hex(bytes: &[u8], digits: usize) -> Result<(u32, &[u8]), ErrorKind> {
    let (number, rest) = bytes.split_at_checked(digits).ok_or(ErrorKind::BadEscape)?;
    let value =
        number.iter().try_fold(0_u32, |value, &digit| Some(value << 4 | char::from(digit).to_digit(16)?));
    Ok((value.ok_or(ErrorKind::BadEscape)?, rest))
}

fn octal(digit: u8) -> u8 {
    digit & 7
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(line: &str) -> Option<String> {
        integer(line.as_bytes()).ok().map(|value| match value {
            Integer::Small(value) => value.to_string(),
            Integer::Large(value) => value.to_string(),
        })
    }

    #[test]
    fn integers_are_those_that_picklers_write() {
        for (line, expected) in [
            ("0", Some("0")),
            ("7", Some("7")),
            ("-12", Some("-12")),
            (" 1", None),
            ("1 ", None),
            ("+1", None),
            ("1_000", None),
            ("010", None),
            ("00", None),
            ("-0", None),
            ("-01", None),
            ("", None),
            ("-", None),
            ("0x10", None),
            ("1L", None),
            ("- 1", None),
        ] {
            assert_eq!(int(line).as_deref(), expected, "{line:?}");
        }
        assert!(integer("9".repeat(4300).as_bytes()).is_ok());
        assert!(integer("9".repeat(4301).as_bytes()).is_err());
    }

    #[test]
    fn floats_are_those_that_picklers_write() {
        for (line, expected) in [
            ("1.5", Some(1.5)),
            ("-0", Some(-0.0)),
            (" 0", None),
            ("0 ", None),
            ("1e5", Some(1e5)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("1_0.0_1", None),
            ("1e999", None),
            ("-1e999", None),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1_.5", None),
            ("1e", None),
            ("0x1p3", None),
            ("", None),
        ] {
            assert_eq!(float(line.as_bytes()).ok(), expected, "{line:?}");
        }
        assert!(float(b"nan").is_ok_and(f64::is_nan));
    }

    #[test]
    fn strings_are_unescaped() {
        let cases: [(&[u8], &[u8]); 8] = [
            (br"'abc'", b"abc"),
            (br#""a'b""#, b"a'b"),
            (br"'\n\\b\x00c\td'", b"\n\\b\x00c\td"),
            (br"'\1012\0'", b"A2\0"),
            (br"'\q\''", b"\\q'"),
            (b"'\\777'", b"\xff"),
            (b"'a\\\nb\\a\\b\\f\\r\\v'", b"ab\x07\x08\x0c\r\x0b"),
            (b"'", b""),
        ];
        for (line, expected) in cases {
            assert_eq!(unquote(line).as_deref(), Ok(expected));
        }
        for bad in [&b"abc"[..], b"'abc", b"", b"'\\", b"'\\x1'", b"'\\'"] {
            assert!(unquote(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn raw_unicode_keeps_lone_surrogates_and_other_backslashes() {
        assert_eq!(
            decode_raw_unicode(br"a\u20ac\\u0041\d").as_deref(),
            Ok("a\u{20ac}\\\\u0041\\d".as_bytes())
        );
        assert_eq!(decode_raw_unicode(br"\ud800").as_deref(), Ok(&b"\xed\xa0\x80"[..]));
        assert_eq!(decode_raw_unicode(b"\xe9").as_deref(), Ok("\u{e9}".as_bytes()));
        assert_eq!(decode_raw_unicode(br"\U0001f600").as_deref(), Ok("\u{1f600}".as_bytes()));
        assert_eq!(decode_raw_unicode(br"\U0010ffff").as_deref(), Ok("\u{10ffff}".as_bytes()));
        for bad in [&br"\u12"[..], br"\U00110000", br"\uzzzz"] {
            assert!(decode_raw_unicode(bad).is_err());
        }
    }
}

//! Streaming writer of JSON strings and values.
//!
//! Source: RFC 8259. Characters that a terminal would interpret are escaped too, although JSON does not require it;
//! lone surrogates are written as the escapes that RFC 8259 (8.2) allows.

use std::fmt::{self, Write};

use super::repr;
use crate::reader::Arg;

/// Writer that escapes text for the inside of a JSON string.
pub(crate) struct JsonEscaper<'a>(pub(crate) &'a mut dyn Write);

impl Write for JsonEscaper<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(|c| matches!(c, '"' | '\\') || !repr::is_terminal_safe(c)) {
            let (before, after) = rest.split_at(at);
            self.0.write_str(before)?;
            let mut characters = after.chars();
            if let Some(c) = characters.next() {
                escape(self.0, u32::from(c))?;
            }
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

pub(crate) fn arg(out: &mut dyn Write, arg: &Arg<'_>) -> fmt::Result {
    match arg {
        Arg::None => out.write_str("null"),
        Arg::Bool(value) => write!(out, "{value}"),
        Arg::Int(value) => write!(out, "{value}"),
        Arg::FrameLength(value) => write!(out, "{value}"),
        Arg::Long(value) => match value.to_decimal() {
            Some(digits) => out.write_str(&digits),
            None => write!(out, "\"{value}\""),
        },
        Arg::Float(value) if value.is_finite() => repr::float(out, *value),
        Arg::Float(value) => {
            out.write_char('"')?;
            repr::float(out, *value)?;
            out.write_char('"')
        }
        Arg::Text(text) => match text.as_str() {
            Some(text) => string(out, |out| out.write_str(text)),
            None => string(out, |out| characters(out, text.code_points())),
        },
        Arg::String(bytes) => string(out, |out| characters(out, bytes.iter().map(|&byte| u32::from(byte)))),
        Arg::Bytes(bytes) => string(out, |out| characters(out, bytes.iter().map(|&byte| u32::from(byte)))),
        Arg::Global { module, name } => string(out, |out| write!(out, "{module} {name}")),
    }
}

pub(crate) fn text(out: &mut dyn Write, text: &str) -> fmt::Result {
    string(out, |out| out.write_str(text))
}

fn string(out: &mut dyn Write, f: impl FnOnce(&mut JsonEscaper<'_>) -> fmt::Result) -> fmt::Result {
    out.write_char('"')?;
    f(&mut JsonEscaper(out))?;
    out.write_char('"')
}

fn characters(inside: &mut JsonEscaper<'_>, code_points: impl Iterator<Item = u32>) -> fmt::Result {
    for code_point in code_points {
        match char::from_u32(code_point) {
            Some(c) => inside.write_char(c)?,
            None => escape(inside.0, code_point)?,
        }
    }
    Ok(())
}

fn escape(out: &mut dyn Write, code_point: u32) -> fmt::Result {
    match code_point {
        0x22 => out.write_str("\\\""),
        0x5c => out.write_str("\\\\"),
        0x0a => out.write_str("\\n"),
        0x0d => out.write_str("\\r"),
        0x09 => out.write_str("\\t"),
        0..=0xffff => write!(out, "\\u{code_point:04x}"),
        _ => match char::from_u32(code_point) {
            Some(c) => c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}")),
            None => Err(fmt::Error),
        },
    }
}

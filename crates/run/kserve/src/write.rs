//! JSON output of strings, booleans and numbers, with the bare tokens `NaN`, `Infinity` and `-Infinity`.
//!
//! `serde_json` writes `null` for non-finite floats, so it is used only for strings.
//!
//! Facts: RFC 8259; `json.loads` of Python for the three tokens.

pub(crate) fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

pub(crate) fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// The only `f32`, apart from its negative, whose shortest decimal changes if it is read as `f64` and then rounded to `f32`,
/// as Python and JavaScript do. All other values were tried.
const ROUNDED_TWICE: f32 = 7.038_531e-26;

pub(crate) fn f32(out: &mut Vec<u8>, value: f32) {
    if !value.is_finite() || value.abs() == ROUNDED_TWICE {
        f64(out, f64::from(value));
    } else {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    }
}

/// Writes the shortest decimal that parses back to `value`, or the token of a non-finite value.
pub(crate) fn f64(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    } else {
        let token = if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        };
        out.extend_from_slice(token.as_bytes());
    }
}

/// Writes a string in quotes, with JSON escapes.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a Vec takes all bytes, and a text has no keys");
}

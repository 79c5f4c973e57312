//! Values of a checkpoint in Python's notation.

use std::fmt::Write;

use serde_json::Value as Json;

/// Returns the text of a value of a report. Values are nested at most a few levels deep, as `open` limits them.
pub(crate) fn value_text(value: &Json) -> String {
    match value {
        Json::Null => "None".to_owned(),
        Json::Bool(true) => "True".to_owned(),
        Json::Bool(false) => "False".to_owned(),
        Json::Number(_) => value.to_string(),
        Json::String(text) => quoted(text),
        Json::Array(items) => format!("[{}]", joined(items)),
        Json::Object(object) => object_text(object),
    }
}

fn joined(items: &[Json]) -> String {
    items.iter().map(value_text).collect::<Vec<_>>().join(", ")
}

/// Returns a text between quotes, with backslashes before quotes and hidden characters left to the terminal's escapes.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            character if character == quote => {
                out.push('\\');
                out.push(character);
            }
            character => out.push(character),
        }
    }
    out.push(quote);
    out
}

/// Returns the text of a value without a JSON form.
fn object_text(object: &serde_json::Map<String, Json>) -> String {
    let text = |key: &str| object.get(key).and_then(Json::as_str);
    let items = |key: &str| object.get(key).and_then(Json::as_array).map(Vec::as_slice);
    if let Some(call) = text("$call") {
        let mut out = format!("{call}({})", joined(items("args").unwrap_or_default()));
        for state in items("state").unwrap_or_default() {
            let _ = write!(out, " with state {}", value_text(state));
        }
        return out;
    }
    if let Some(pairs) = items("$items") {
        let pairs = pairs.iter().map(|pair| match pair.as_array().map(Vec::as_slice) {
            Some([key, value]) => format!("{}: {}", value_text(key), value_text(value)),
            _ => value_text(pair),
        });
        return format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "));
    }
    if let Some([re, im]) = items("$complex") {
        let (re, im) = (value_text(re), value_text(im));
        let sign = if im.starts_with('-') { "" } else { "+" };
        return format!("({re}{sign}{im}j)");
    }
    if let Some(digits) = text("$bytes") {
        return bytes_text(digits);
    }
    if let Some(plain) = text("$int").or(text("$float")).or(text("$global")) {
        return plain.to_owned();
    }
    if let Some(kind) = text("$more") {
        return format!("<{kind} too large to show>");
    }
    if object.contains_key("$cycle") {
        return "...".to_owned();
    }
    let pairs = object.iter().map(|(key, value)| format!("{}: {}", quoted(key), value_text(value)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
}

/// Returns hexadecimal digits as a byte string.
fn bytes_text(digits: &str) -> String {
    let pairs = digits.as_bytes().as_chunks::<2>().0;
    let bytes = pairs.iter().filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let bytes: Vec<u8> = bytes.collect();
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { '"' } else { '\'' };
    let mut out = format!("b{quote}");
    for byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            byte if char::from(byte) == quote => {
                out.push('\\');
                out.push(quote);
            }
            b' '..=b'~' => out.push(char::from(byte)),
            byte => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_shown_as_python_prints_them() {
        for (value, text) in [
            (json!(null), "None"),
            (json!([1, 2.5, "it's"]), r#"[1, 2.5, "it's"]"#),
            (json!({ "$bytes": "616227ff0a" }), r#"b"ab'\xff\n""#),
            (json!({ "$items": [[0, "person"], [1, {}]] }), "{0: 'person', 1: {}}"),
            (json!({ "$call": "m.Color", "args": [1], "state": [] }), "m.Color(1)"),
            (json!({ "$complex": [1.0, -2.0] }), "(1.0-2.0j)"),
            (json!({ "$float": "nan" }), "nan"),
            (json!({ "$global": "m.f" }), "m.f"),
        ] {
            assert_eq!(value_text(&value), text);
        }
    }
}

//! Values as Python's `str`, `repr` and `json.dumps` write them.
//!
//! Facts: Python 3's `float.__repr__` has an exponent below 1e-4 and from 1e16, with at least two digits. `json.dumps` separates by
//! `", "` and `": "`, and by `","` with an indentation; keys of other types become texts.

use std::fmt::Write;

use minijinja::value::{ValueIter, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Maximum number of lists and maps inside each other.
const DEPTH_MAX: usize = 100;
/// Number of bytes that one step of the budget pays for.
const BYTES_PER_STEP: usize = 64;
/// Number of values that one step pays for.
const VALUES_PER_STEP: usize = 2;

/// Creates an error with a reason.
pub(super) fn failed(reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// Refuses a value with too many levels or parts for the steps that are left. `is_stored` refuses maps and objects that a template
/// can change, too.
///
/// # Errors
/// Returns an error if the value is refused.
pub(super) fn check_size(state: &State<'_, '_>, value: &Value, is_stored: bool) -> Result<(), Error> {
    if value.as_object().is_none() {
        return Ok(());
    }
    let (mut stack, mut count) = (Vec::new(), 0_usize);
    let mut current = Some(value.clone());
    loop {
        if let Some(value) = current.take() {
            count = count.saturating_add(1);
            if count.is_multiple_of(VALUES_PER_STEP) {
                state.consume_fuel(1)?;
            }
            if let Some(object) = value.as_object() {
                if is_stored && is_changeable(object.type_name()) {
                    return Err(failed("a namespace keeps texts, numbers, lists and maps only"));
                }
                if stack.len() >= DEPTH_MAX {
                    return Err(too_deep());
                }
                match value.kind() {
                    ValueKind::Seq | ValueKind::Iterable => stack.push((value.try_iter()?, None)),
                    ValueKind::Map => stack.push((value.try_iter()?, Some(value))),
                    _ => {}
                }
            }
        }
        let Some((items, map)) = stack.last_mut() else { return Ok(()) };
        match items.next() {
            None => drop(stack.pop()),
            Some(item) => {
                current = Some(match map {
                    Some(map) => map.get_item(&item)?,
                    None => item,
                });
            }
        }
    }
}

fn is_changeable(type_name: &str) -> bool {
    ["Namespace", "Macro", "Loop", "Closure"].iter().any(|name| type_name.ends_with(name))
}

fn too_deep() -> Error {
    failed(format!("more than {DEPTH_MAX} lists and maps are inside each other"))
}

/// Form of a text.
#[derive(Clone, Debug)]
pub(super) enum Style {
    /// Text that Python's `repr` returns.
    Repr,
    Json(JsonStyle),
}

/// Arguments of `json.dumps` that change its text.
#[derive(Clone, Debug)]
pub(super) struct JsonStyle {
    pub(super) is_ascii: bool,
    pub(super) sorts_keys: bool,
    /// Text that is repeated for each level, on lines of their own.
    pub(super) indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
}

/// Returns the text of a value as `str` makes it.
///
/// # Errors
/// Returns an error if the value has too many levels, or its text is too long for the steps that are left.
pub(crate) fn str_of(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None if value.is_undefined() => Ok(String::new()),
        None => write_value(state, value, &Style::Repr),
    }
}

/// A list or a map that is being written.
struct Level {
    items: ValueIter,
    /// The map, for its values.
    map: Option<Value>,
    /// Keys in their order, if they are sorted.
    close: &'static str,
    count: usize,
}

/// Returns the text of a value.
///
/// # Errors
/// Returns an error if the value has too many levels, its text is too long for the steps that are left, or JSON has no such value.
pub(super) fn write_value(state: &State<'_, '_>, value: &Value, style: &Style) -> Result<String, Error> {
    let (mut out, mut stack, mut paid) = (String::new(), Vec::<Level>::new(), 0_usize);
    let mut current = Some(value.clone());
    loop {
        let cost = out.len().saturating_sub(paid).checked_div(BYTES_PER_STEP).unwrap_or(0);
        if cost > 0 {
            state.consume_fuel(u64::try_from(cost).unwrap_or(u64::MAX))?;
            paid = out.len();
        }
        if let Some(value) = current.take()
            && let Some(level) = open(&mut out, &value, style)?
        {
            if stack.len() >= DEPTH_MAX {
                return Err(too_deep());
            }
            stack.push(level);
        }
        let depth = stack.len();
        let Some(level) = stack.last_mut() else { return Ok(out) };
        let Some(item) = level.items.next() else {
            if level.close == ")" && level.count == 1 {
                out.push(',');
            }
            if level.count > 0 {
                break_line(&mut out, style, depth.saturating_sub(1));
            }
            out.push_str(level.close);
            stack.pop();
            continue;
        };
        if level.count > 0 {
            out.push_str(match style {
                Style::Repr => ", ",
                Style::Json(json) => &json.item_separator,
            });
        }
        level.count = level.count.saturating_add(1);
        break_line(&mut out, style, depth);
        current = Some(match &level.map {
            None => item,
            Some(map) => {
                let value = map.get_item(&item)?;
                write_key(&mut out, &item, style)?;
                value
            }
        });
    }
}

fn break_line(out: &mut String, style: &Style, depth: usize) {
    if let Style::Json(JsonStyle { indent: Some(indent), .. }) = style {
        out.push('\n');
        out.extend(std::iter::repeat_n(indent.as_str(), depth));
    }
}

/// Writes a value without parts, or the start of a list or map, which is returned.
fn open(out: &mut String, value: &Value, style: &Style) -> Result<Option<Level>, Error> {
    let (start, close) = match value.kind() {
        ValueKind::Seq if value.is_tuple() && matches!(style, Style::Repr) => ("(", ")"),
        ValueKind::Seq | ValueKind::Iterable => ("[", "]"),
        ValueKind::Map => ("{", "}"),
        _ => return write_scalar(out, value, style).map(|()| None),
    };
    out.push_str(start);
    let map = (value.kind() == ValueKind::Map).then(|| value.clone());
    let items = match (style, &map) {
        (Style::Json(json), Some(map)) if json.sorts_keys => {
            let mut keys: Vec<Value> = map.try_iter()?.collect();
            keys.sort();
            Value::from(keys).try_iter()?
        }
        _ => value.try_iter()?,
    };
    Ok(Some(Level { items, map, close, count: 0 }))
}

fn write_key(out: &mut String, key: &Value, style: &Style) -> Result<(), Error> {
    match style {
        Style::Repr => {
            if key.as_object().is_some() {
                return Err(failed("a list is the key of a map"));
            }
            write_scalar(out, key, style)?;
            out.push_str(": ");
        }
        Style::Json(json) => {
            if key.as_str().is_some() {
                write_scalar(out, key, style)?;
            } else {
                out.push('"');
                write_scalar(out, key, style)?;
                out.push('"');
            }
            out.push_str(&json.key_separator);
        }
    }
    Ok(())
}

fn write_scalar(out: &mut String, value: &Value, style: &Style) -> Result<(), Error> {
    let words = match style {
        Style::Repr => ["None", "True", "False", "nan", "inf"],
        Style::Json(_) => ["null", "true", "false", "NaN", "Infinity"],
    };
    let [none, yes, no, nan, infinity] = words;
    match value.kind() {
        ValueKind::None => out.push_str(none),
        ValueKind::Bool => out.push_str(if value.is_true() { yes } else { no }),
        ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
        ValueKind::Number => {
            let number = f64::try_from(value.clone())?;
            if number.is_nan() {
                out.push_str(nan);
            } else if number.is_infinite() {
                out.push_str(if number < 0.0 { "-" } else { "" });
                out.push_str(infinity);
            } else {
                out.push_str(&float_text(number));
            }
        }
        ValueKind::String => match (style, value.as_str().unwrap_or_default()) {
            (Style::Repr, text) => write_repr(out, text),
            (Style::Json(json), text) => write_json_text(out, text, json.is_ascii),
        },
        ValueKind::Undefined if matches!(style, Style::Repr) => out.push_str("Undefined"),
        kind => return Err(failed(format!("a value of the kind {kind} has no text here"))),
    }
    Ok(())
}

/// Returns the shortest text of a finite number, as Python writes it.
pub(super) fn float_text(number: f64) -> String {
    // `{:e}` has the shortest digits that read back as the number.
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    let plain = number.to_string();
    if plain.contains('.') { plain } else { format!("{plain}.0") }
}

/// Writes a text in quotes, as Python's `repr` does.
pub(super) fn write_repr(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => write_escape(out, c),
        }
    }
    out.push(quote);
}

fn write_escape(out: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a text cannot fail.
    let _ = match code {
        0..=0xff => write!(out, "\\x{code:02x}"),
        0x100..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// Returns true if Python writes the character as it is. Characters that no version of Unicode has yet count as printable.
fn is_printable(c: char) -> bool {
    c == ' '
        || !(c.is_control()
            || c.is_whitespace()
            || matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
                | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}' | '\u{e000}'..='\u{f8ff}'
                | '\u{f0000}'..='\u{10ffff}'))
}

fn write_json_text(out: &mut String, text: &str, is_ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 || (is_ascii && !(' '..='~').contains(&c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

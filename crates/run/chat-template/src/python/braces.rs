//! Fields in braces, as Python's `str.format` fills them.

use minijinja::value::{Kwargs, from_args};
use minijinja::{Error, State, Value};

use super::values::{failed, str_of};

/// Fills the fields `{}`, `{0}` and `{name}` of a text.
///
/// # Errors
/// Returns an error if a field has no value, or has a format.
pub(super) fn format_braces(state: &State<'_, '_>, text: &str, args: &[Value]) -> Result<Value, Error> {
    let (positional, named) = match args.split_last() {
        Some((last, rest)) if last.is_kwargs() => {
            (rest, Some(from_args::<(Kwargs,)>(std::slice::from_ref(last))?.0))
        }
        _ => (args, None),
    };
    let (mut out, mut rest, mut next) = (String::new(), text, 0_usize);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, tail) = rest.split_at_checked(at).unwrap_or((rest, ""));
        out.push_str(before);
        if let Some(after) = tail.strip_prefix("{{").or_else(|| tail.strip_prefix("}}")) {
            out.push_str(tail.get(..1).unwrap_or_default());
            rest = after;
            continue;
        }
        let field = tail.strip_prefix('{').and_then(|tail| tail.split_once('}'));
        let (field, after) = field.ok_or_else(|| failed("a field of a format has no end"))?;
        let number = if field.is_empty() { Some(next) } else { field.parse().ok() };
        next = next.saturating_add(usize::from(field.is_empty()));
        let value = match (number, &named) {
            (Some(number), _) => positional.get(number).cloned(),
            (None, Some(named)) if named.has(field) => Some(named.get::<Value>(field)?),
            _ => None,
        };
        let value = value.ok_or_else(|| failed(format!("the field `{field}` of a format has no value")))?;
        out.push_str(&str_of(state, &value)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(Value::from(out))
}

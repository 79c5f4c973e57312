//! Methods of Python's texts, lists and dictionaries.
//!
//! Facts: the sandbox of `transformers` refuses methods that change a list or dictionary.

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::arguments::CallArguments;
use super::values::{check_size, failed};
use super::{braces, text};

/// Maximum size in bytes of a text that a method makes longer.
const LENGTH_MAX: usize = 16 << 20;
/// Maximum number of pieces of a text.
const PIECES_MAX: usize = 1 << 20;

/// Calls a method of a value that the engine does not know.
///
/// # Errors
/// Returns an error if there is no such method, or its arguments do not fit.
pub(crate) fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    for arg in args {
        check_size(state, arg, false)?;
    }
    let mut arguments = CallArguments::new(args)?;
    let result = match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            match text_method(state, text, method, &mut arguments)? {
                // Python's `format` takes any arguments.
                None if method == "format" => return braces::format_braces(state, text, args),
                found => found,
            }
        }
        ValueKind::Map => map_method(value, method, &mut arguments)?,
        ValueKind::Seq | ValueKind::Iterable => list_method(value, method, &mut arguments)?,
        _ => None,
    };
    let result = result.ok_or_else(|| Error::from(ErrorKind::UnknownMethod))?;
    arguments.end()?;
    Ok(result)
}

fn map_method(map: &Value, method: &str, arguments: &mut CallArguments) -> Result<Option<Value>, Error> {
    let pairs = || -> Result<Vec<(Value, Value)>, Error> {
        map.try_iter()?.map(|key| Ok((key.clone(), map.get_item(&key)?))).collect()
    };
    Ok(Some(match method {
        "get" => {
            let (key, default) = (arguments.required("key")?, arguments.optional("default")?);
            let found = map.get_item(&key).ok().filter(|found| !found.is_undefined());
            found.or(default).unwrap_or(Value::from(()))
        }
        "keys" => map.try_iter()?.collect(),
        "values" => pairs()?.into_iter().map(|(_, value)| value).collect(),
        "items" => {
            let pair = |(key, value)| Value::from(Tuple::from(vec![key, value]));
            pairs()?.into_iter().map(pair).collect()
        }
        "copy" => pairs()?.into_iter().collect(),
        "clear" | "pop" | "popitem" | "setdefault" | "update" => return Err(changes(method)),
        _ => return Ok(None),
    }))
}

fn list_method(list: &Value, method: &str, arguments: &mut CallArguments) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "count" => {
            let wanted = arguments.required("value")?;
            Value::from(list.try_iter()?.filter(|item| *item == wanted).count())
        }
        "index" => {
            let wanted = arguments.required("value")?;
            let found = list.try_iter()?.position(|item| item == wanted);
            Value::from(found.ok_or_else(|| failed("the list has no such item"))?)
        }
        "copy" => list.try_iter()?.collect(),
        "append" | "clear" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort" => {
            return Err(changes(method));
        }
        _ => return Ok(None),
    }))
}

fn changes(method: &str) -> Error {
    failed(format!("`{method}` changes a value, which a chat template may not"))
}

fn text_method(
    state: &mut State<'_, '_>,
    text: &str,
    method: &str,
    arguments: &mut CallArguments,
) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let chars = arguments.optional_text("chars")?;
            text::strip(text, chars.as_deref(), (method != "rstrip", method != "lstrip")).into()
        }
        "upper" => text.to_uppercase().into(),
        "lower" | "casefold" => text.to_lowercase().into(),
        "title" => text::title(text).into(),
        "capitalize" => text::capitalize(text).into(),
        "swapcase" => {
            let swap = |c: char| {
                if c.is_uppercase() { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() }
            };
            text.chars().map(swap).collect::<String>().into()
        }
        "startswith" | "endswith" => affix_test(text, method == "startswith", arguments)?.into(),
        "removeprefix" | "removesuffix" => {
            let affix = arguments.text("affix")?;
            let is_prefix = method == "removeprefix";
            let rest = if is_prefix { text.strip_prefix(&*affix) } else { text.strip_suffix(&*affix) };
            rest.unwrap_or(text).into()
        }
        "replace" => {
            let (old, new) = (arguments.text("old")?, arguments.text("new")?);
            let count = arguments.optional_number("count")?;
            replace(text, &old, &new, count)?.into()
        }
        "split" | "rsplit" => {
            let (separator, limit) =
                (arguments.optional_text("sep")?, arguments.optional_number("maxsplit")?);
            if separator.as_deref() == Some("") {
                return Err(failed("the separator is empty"));
            }
            let limit = limit.and_then(|limit| usize::try_from(limit).ok());
            list_of(text::split(text, separator.as_deref(), limit, method == "rsplit"))?
        }
        "splitlines" => list_of(text::lines(text, arguments.flag("keepends")?))?,
        "partition" | "rpartition" => partition(text, &arguments.text("sep")?, method == "rpartition")?,
        "join" => join(state, text, &arguments.required("iterable")?)?.into(),
        "find" | "rfind" | "index" | "rindex" | "count" => search(text, method, arguments)?,
        "center" | "ljust" | "rjust" | "zfill" => pad(text, method, arguments)?.into(),
        "expandtabs" => replace(text, "\t", "        ", None)?.into(),
        _ => return Ok(text_test(text, method).map(Value::from)),
    }))
}

/// Returns what a method such as `isdigit` says; `None` if there is no such method.
fn text_test(text: &str, method: &str) -> Option<bool> {
    let all = |test: &dyn Fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    let cased = |wrong: fn(char) -> bool, right: fn(char) -> bool| {
        text.chars().any(right) && !text.chars().any(wrong)
    };
    Some(match method {
        "isspace" => all(&text::is_space),
        "isalpha" => all(&char::is_alphabetic),
        "isalnum" => all(&char::is_alphanumeric),
        "isdigit" | "isdecimal" => all(&|c| c.is_numeric() && (c.is_ascii_digit() || !c.is_ascii())),
        "isnumeric" => all(&char::is_numeric),
        "isascii" => text.is_ascii(),
        "islower" => cased(char::is_uppercase, char::is_lowercase),
        "isupper" => cased(char::is_lowercase, char::is_uppercase),
        "istitle" => !text.is_empty() && text::title(text) == text && text.chars().any(char::is_uppercase),
        _ => return None,
    })
}

fn affix_test(text: &str, is_prefix: bool, arguments: &mut CallArguments) -> Result<bool, Error> {
    let affixes = arguments.required("prefix")?;
    let start = arguments.optional_number("start")?.unwrap_or(0);
    let end = arguments.optional_number("end")?;
    let text = part(text, start, end).unwrap_or_default();
    let has = |affix: &Value| {
        let affix = affix.as_str().ok_or_else(|| failed("the prefix or suffix is not a text"))?;
        Ok(if is_prefix { text.starts_with(affix) } else { text.ends_with(affix) })
    };
    if affixes.as_str().is_some() {
        return has(&affixes);
    }
    for affix in affixes.try_iter()? {
        if has(&affix)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the characters from `start` to `end`, which count from the end if they are negative.
fn part(text: &str, start: i64, end: Option<i64>) -> Option<&str> {
    if start == 0 && end.is_none() {
        return Some(text);
    }
    let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let at = |position: i64| {
        let position = if position < 0 { position.saturating_add(count).max(0) } else { position.min(count) };
        let position = usize::try_from(position).unwrap_or(0);
        text.char_indices().nth(position).map_or(text.len(), |(at, _)| at)
    };
    text.get(at(start)..end.map_or(text.len(), at))
}

/// Replaces the first `count` occurrences of a text.
pub(super) fn replace(text: &str, old: &str, new: &str, count: Option<i64>) -> Result<String, Error> {
    let limit = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let found = text.matches(old).count().min(limit);
    check_length(found.saturating_mul(new.len()).saturating_add(text.len()))?;
    Ok(text.replacen(old, new, limit))
}

/// Refuses a text that a method would make too long.
pub(super) fn check_length(found: usize) -> Result<(), Error> {
    if found > LENGTH_MAX {
        Err(failed(format!("a text of {found} bytes is made, at most {LENGTH_MAX} are")))
    } else {
        Ok(())
    }
}

fn list_of(pieces: Vec<&str>) -> Result<Value, Error> {
    if pieces.len() > PIECES_MAX {
        return Err(failed(format!("a text has more than {PIECES_MAX} pieces")));
    }
    Ok(pieces.into_iter().map(Value::from).collect())
}

fn partition(text: &str, separator: &str, from_right: bool) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(failed("the separator is empty"));
    }
    let found = if from_right { text.rsplit_once(separator) } else { text.split_once(separator) };
    let parts = match found {
        Some((before, after)) => [before, separator, after],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from).to_vec())))
}

/// Joins the texts of a list.
fn join(state: &State<'_, '_>, separator: &str, items: &Value) -> Result<String, Error> {
    let mut out = String::new();
    for (at, item) in items.try_iter()?.enumerate() {
        let text = item.as_str().ok_or_else(|| failed("an item to join is not a text"))?;
        push_joined(state, &mut out, if at == 0 { "" } else { separator }, text)?;
    }
    Ok(out)
}

/// Appends a separator and a text, within the steps that are left.
pub(super) fn push_joined(
    state: &State<'_, '_>,
    out: &mut String,
    separator: &str,
    text: &str,
) -> Result<(), Error> {
    let added = separator.len().saturating_add(text.len());
    state.consume_fuel(u64::try_from(added.div_ceil(64)).unwrap_or(u64::MAX))?;
    check_length(out.len().saturating_add(added))?;
    out.push_str(separator);
    out.push_str(text);
    Ok(())
}

fn search(text: &str, method: &str, arguments: &mut CallArguments) -> Result<Value, Error> {
    let wanted = arguments.text("sub")?;
    let start = arguments.optional_number("start")?.unwrap_or(0);
    let searched = part(text, start, arguments.optional_number("end")?).unwrap_or_default();
    if method == "count" {
        return Ok(Value::from(searched.matches(&*wanted).count()));
    }
    let found = if method.starts_with('r') { searched.rfind(&*wanted) } else { searched.find(&*wanted) };
    let skipped = text.len().saturating_sub(part(text, start, None).unwrap_or_default().len());
    let characters = |end: usize| text.get(..end).map(|text| text.chars().count());
    match found.and_then(|at| characters(at.saturating_add(skipped))) {
        Some(at) => Ok(Value::from(at)),
        None if method.ends_with("index") => Err(failed("the text has no such part")),
        None => Ok(Value::from(-1)),
    }
}

fn pad(text: &str, method: &str, arguments: &mut CallArguments) -> Result<String, Error> {
    let width =
        arguments.optional_number("width")?.and_then(|width| usize::try_from(width).ok()).unwrap_or(0);
    let fill = match method {
        "zfill" => "0".to_owned(),
        _ => arguments.optional_text("fillchar")?.unwrap_or_else(|| " ".to_owned()),
    };
    let missing = width.saturating_sub(text.chars().count());
    check_length(missing.saturating_mul(fill.len()).saturating_add(text.len()))?;
    let (left, right) = match method {
        "ljust" => (0, missing),
        "rjust" | "zfill" => (missing, 0),
        // Python puts the odd one to the left of an odd width.
        _ => {
            let half = missing / 2;
            let left = half.saturating_add(missing & width & 1);
            (left, missing.saturating_sub(left))
        }
    };
    let sign = text.get(..1).filter(|sign| method == "zfill" && matches!(*sign, "+" | "-")).unwrap_or("");
    let rest = text.get(sign.len()..).unwrap_or_default();
    Ok([sign, &fill.repeat(left), rest, &fill.repeat(right)].concat())
}

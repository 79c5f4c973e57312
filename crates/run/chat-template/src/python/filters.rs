//! Filters and tests of Jinja, where the engine's are not Python's or walk a value without counting the steps.
//!
//! Facts: `jinja2/filters.py` of Jinja 3.1. `transformers` replaces `tojson` by `json.dumps` without escapes.

use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State, Value, filters, tests};

use super::arguments::CallArguments;
use super::methods::{check_length, push_joined, replace};
use super::text;
use super::values::{JsonStyle, Style, check_size, failed, str_of, write_value};
use crate::guards::{GUARD, STORE, STRING};

/// Arguments of a filter, by position and by name.
type Args = Rest<ValueOrKwargs>;

/// Filters of the engine that Jinja does not have.
const FOREIGN: &[&str] = &["bool", "chain", "lines", "pprint", "split", "zip"];

/// Adds the filters and tests to an environment.
pub(crate) fn add_filters(env: &mut Environment<'_>) {
    for name in FOREIGN {
        env.remove_filter(name);
    }
    for (name, filter) in TEXT_FILTERS {
        env.add_filter(*name, |state: &mut State<'_, '_>, args: Args| {
            text_filter(state, &args.into_values(), *filter)
        });
    }
    env.add_filter(STRING, |state: &mut State<'_, '_>, value: &Value| match value.kind() {
        ValueKind::String => Ok(value.clone()),
        _ => str_of(state, value).map(Value::from),
    });
    env.add_filter("safe", |state: &mut State<'_, '_>, value: &Value| str_of(state, value));
    env.add_filter("format", format);
    env.add_filter("__format", filters::format);
    env.add_filter("int", |value: &Value, args: Args| {
        let mut arguments = CallArguments::new(&args.into_values())?;
        let default = arguments.optional("default")?.unwrap_or(Value::from(0));
        let base = arguments.optional_number("base")?.unwrap_or(10);
        arguments.end()?;
        Ok::<_, Error>(to_int(value, base).unwrap_or(default))
    });
    env.add_filter("float", |value: &Value, default: Option<Value>| {
        let number = match value.as_str() {
            Some(text) => float_of(text),
            None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
            None => f64::try_from(value.clone()).ok(),
        };
        number.map(Value::from).or(default).unwrap_or(Value::from(0.0))
    });
    env.add_filter("join", join);
    env.add_filter("tojson", to_json);
    env.add_filter(GUARD, |state: &mut State<'_, '_>, value: &Value| {
        check_size(state, value, false).map(|()| value.clone())
    });
    env.add_filter(STORE, |state: &mut State<'_, '_>, value: &Value| {
        check_size(state, value, true).map(|()| value.clone())
    });
    /// Adds filters of the engine whose arguments are checked first.
    macro_rules! checked_filters {
        ($($name:literal => $filter:path),+ $(,)?) => {$(
            env.add_filter(concat!("__", $name), $filter);
            env.add_filter($name, |state: &mut State<'_, '_>, args: Args| {
                let args = args.into_values();
                check_all(state, &args)?;
                state.apply_filter(concat!("__", $name), &args)
            });
        )+};
    }
    checked_filters! {
        "batch" => filters::batch, "dictsort" => filters::dictsort, "groupby" => filters::groupby, "max" => filters::max, "min" => filters::min,
        "slice" => filters::slice, "sort" => filters::sort, "sum" => filters::sum, "unique" => filters::unique,
    }
    /// Adds tests of the engine whose arguments are checked first.
    macro_rules! checked_tests {
        ($($test:path: $($name:literal),+;)+) => {$($(
            env.add_test($name, |state: &State<'_, '_>, value: &Value, other: &Value| {
                check_size(state, value, false)?;
                check_size(state, other, false)?;
                Ok::<_, Error>($test(value, other))
            });
        )+)+};
    }
    checked_tests! {
        tests::is_eq: "eq", "equalto", "==";
        tests::is_ne: "ne", "!=";
        tests::is_lt: "lt", "lessthan", "<";
        tests::is_le: "le", "<=";
        tests::is_gt: "gt", "greaterthan", ">";
        tests::is_ge: "ge", ">=";
    }
    env.add_test("sequence", |value: &Value| {
        use ValueKind::{Iterable, Map, Seq, String, Undefined};
        matches!(value.kind(), Seq | Iterable | String | Map | Undefined)
    });
    env.add_test("iterable", |value: &Value| {
        value.kind() == ValueKind::String || (!value.is_none() && value.try_iter().is_ok())
    });
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
}

fn check_all(state: &State<'_, '_>, args: &[Value]) -> Result<(), Error> {
    args.iter().try_for_each(|arg| check_size(state, arg, false))
}

/// Filter of a text with further arguments.
type TextFilter = fn(&str, &mut CallArguments) -> Result<String, Error>;

/// Filters that convert their value into a text first.
const TEXT_FILTERS: &[(&str, TextFilter)] = &[
    ("upper", |text, _| Ok(text.to_uppercase())),
    ("lower", |text, _| Ok(text.to_lowercase())),
    ("title", |text, _| Ok(title(text))),
    ("capitalize", |text, _| Ok(text::capitalize(text))),
    ("trim", |text, arguments| {
        Ok(text::strip(text, arguments.optional_text("chars")?.as_deref(), (true, true)).to_owned())
    }),
    ("replace", |text, arguments| {
        let (old, new) = (arguments.text("old")?, arguments.text("new")?);
        replace(text, &old, &new, arguments.optional_number("count")?)
    }),
    ("e", |text, _| Ok(escape(text))),
    ("escape", |text, _| Ok(escape(text))),
    ("forceescape", |text, _| Ok(escape(text))),
    ("indent", indent),
    ("wordcount", |text, _| {
        Ok(text
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .count()
            .to_string())
    }),
    ("center", |text, arguments| {
        let width = arguments.optional_number("width")?.unwrap_or(80);
        let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars().count());
        check_length(missing.saturating_add(text.len()))?;
        let left = (missing / 2).saturating_add(missing & usize::try_from(width).unwrap_or(0) & 1);
        Ok([&" ".repeat(left), text, &" ".repeat(missing.saturating_sub(left))].concat())
    }),
];

fn text_filter(state: &State<'_, '_>, args: &[Value], filter: TextFilter) -> Result<Value, Error> {
    let (value, rest) = args.split_first().ok_or_else(|| failed("the filter has no value"))?;
    let mut arguments = CallArguments::new(rest)?;
    let text = str_of(state, value)?;
    let result = filter(&text, &mut arguments)?;
    arguments.end()?;
    Ok(Value::from(result))
}

/// Returns the text with upper case at the start of each word, as Jinja's filter does.
fn title(text: &str) -> String {
    let is_between = |c: char| text::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(is_between) {
        let mut chars = piece.chars();
        out.extend(chars.next().into_iter().flat_map(char::to_uppercase));
        out.push_str(&chars.as_str().to_lowercase());
    }
    out
}

/// Escapes the characters of HTML, as `markupsafe` does.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Fills the fields of a text such as `%s`, with lists and maps as Python writes them.
fn format(state: &mut State<'_, '_>, args: Args) -> Result<Value, Error> {
    let mut args = args.into_values();
    for arg in args.iter_mut().filter(|arg| arg.as_object().is_some() && !arg.is_kwargs()) {
        *arg = Value::from(str_of(state, arg)?);
    }
    check_all(state, &args)?;
    state.apply_filter("__format", &args)
}

/// Returns the whole number that Python's `int` makes of a value; `None` if it makes none.
fn to_int(value: &Value, base: i64) -> Option<Value> {
    #[expect(clippy::cast_possible_truncation, reason = "the number is in the range")]
    let whole = |number: f64| (number.abs() < 1e38).then(|| Value::from(number as i128));
    let Some(text) = value.as_str() else {
        return match value.kind() {
            ValueKind::Bool => Some(Value::from(i32::from(value.is_true()))),
            ValueKind::Number if value.is_integer() => Some(value.clone()),
            ValueKind::Number => whole(f64::try_from(value.clone()).ok()?),
            _ => None,
        };
    };
    let digits = text::strip(text, None, (true, true)).replace('_', "").to_ascii_lowercase();
    let prefix = match base {
        16 => "0x",
        8 => "0o",
        2 => "0b",
        _ => "",
    };
    let digits = digits.strip_prefix(prefix).unwrap_or(&digits);
    let base = u32::try_from(base).ok().filter(|base| (2..=36).contains(base))?;
    match i128::from_str_radix(digits, base) {
        Ok(number) => Some(Value::from(number)),
        Err(_) => whole(float_of(text)?),
    }
}

/// Returns the number that Python's `float` makes of a text.
fn float_of(text: &str) -> Option<f64> {
    text::strip(text, None, (true, true)).replace('_', "").parse().ok()
}

fn indent(text: &str, arguments: &mut CallArguments) -> Result<String, Error> {
    let width = arguments.optional("width")?;
    let (first, blank) = (arguments.flag("first")?, arguments.flag("blank")?);
    let indentation = match width.as_ref().map(|width| (width.as_str(), width.as_usize())) {
        None => "    ".to_owned(),
        Some((Some(text), _)) => text.to_owned(),
        Some((None, count)) => {
            let count = count.unwrap_or(0);
            check_length(count)?;
            " ".repeat(count)
        }
    };
    // The filter adds a line feed, so that a last one counts.
    let whole = format!("{text}\n");
    let lines = text::lines(&whole, false);
    check_length(lines.len().saturating_mul(indentation.len().saturating_add(1)).saturating_add(text.len()))?;
    let mut out = String::new();
    for (at, line) in lines.into_iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        if if at == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&indentation);
        }
        out.push_str(line);
    }
    Ok(out)
}

fn join(state: &mut State<'_, '_>, value: &Value, args: Args) -> Result<Value, Error> {
    let mut arguments = CallArguments::new(&args.into_values())?;
    let separator =
        arguments.optional("d")?.map_or(Ok(String::new()), |separator| str_of(state, &separator))?;
    let attribute = arguments.optional("attribute")?;
    arguments.end()?;
    let mut out = String::new();
    let items: Vec<Value> = match value.as_str() {
        Some(text) => text.chars().map(Value::from).collect(),
        None => value.try_iter()?.collect(),
    };
    for (at, item) in items.iter().enumerate() {
        let text = match &attribute {
            Some(path) => str_of(state, &member(item, path)?)?,
            None => str_of(state, item)?,
        };
        push_joined(state, &mut out, if at == 0 { "" } else { &separator }, &text)?;
    }
    Ok(Value::from(out))
}

/// Returns the member at a path such as `function.name`.
fn member(item: &Value, path: &Value) -> Result<Value, Error> {
    let Some(path) = path.as_str() else { return item.get_item(path) };
    path.split('.').try_fold(item.clone(), |item, name| match name.parse::<usize>() {
        Ok(index) => item.get_item(&Value::from(index)),
        Err(_) => item.get_attr(name),
    })
}

fn to_json(state: &mut State<'_, '_>, value: &Value, args: Args) -> Result<Value, Error> {
    let mut arguments = CallArguments::new(&args.into_values())?;
    let is_ascii = arguments.flag("ensure_ascii")?;
    let indent = arguments.optional("indent")?;
    let separators = arguments.optional("separators")?;
    let sorts_keys = arguments.flag("sort_keys")?;
    arguments.end()?;
    let indent = match indent.as_ref().map(|indent| (indent.as_str(), indent.as_usize())) {
        None => None,
        Some((Some(text), _)) => Some(text.to_owned()),
        Some((None, count)) => Some(" ".repeat(count.unwrap_or(0).min(100))),
    };
    let (item_separator, key_separator) = match separators {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some(pair) => {
            let at =
                |index| pair.get_item_by_index(index).ok().and_then(|text| text.as_str().map(str::to_owned));
            at(0).zip(at(1)).ok_or_else(|| failed("separators are two texts"))?
        }
    };
    let style = JsonStyle { is_ascii, sorts_keys, indent, item_separator, key_separator };
    write_value(state, value, &Style::Json(style)).map(Value::from)
}

//! Calls between their marks, at the start of a text that may still grow.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

use super::{CallBody, Tool, ToolCall};

pub(super) const FUNCTION: &str = "<function=";
pub(super) const FUNCTION_END: &str = "</function>";
pub(super) const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
pub(super) const KEY: &str = "<arg_key>";
const KEY_END: &str = "</arg_key>";
const VALUE: &str = "<arg_value>";
pub(super) const VALUE_END: &str = "</arg_value>";

/// Calls at the start of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The text may become calls.
    Unfinished,
    /// The text is not a call.
    Nothing,
    /// Calls, and the number of bytes before and in them.
    Calls(Vec<ToolCall>, usize),
}

/// Reading of a text that may end too early: the value, or what the text is instead.
type CallResult<T> = Result<T, Found>;

impl CallBody {
    /// Finds the calls at the start of `text`.
    pub(super) fn find(&self, text: &str, tools: &[Tool]) -> Found {
        let mut reader = CallReader { text, at: 0 };
        let calls = match self {
            Self::Object { name_key, arguments_key, .. } => {
                reader.objects(|reader| reader.call(name_key, arguments_key))
            }
            Self::Named { before_id, before_arguments } => {
                reader.named(before_id.as_deref(), before_arguments).map(|call| vec![call])
            }
            Self::Elements => reader.elements(tools).map(|call| vec![call]),
            Self::KeysAndValues => reader.keys_and_values(tools).map(|call| vec![call]),
        };
        calls.map_or_else(|found| found, |calls| Found::Calls(calls, reader.at))
    }
}

/// Reads a text from its start.
struct CallReader<'t> {
    text: &'t str,
    /// Number of bytes that were read.
    at: usize,
}

impl<'t> CallReader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.skip(rest.len().saturating_sub(rest.trim_start().len()));
    }

    /// Returns true and reads a text if it comes next.
    fn takes(&mut self, expected: &str) -> CallResult<bool> {
        let rest = self.rest();
        if rest.starts_with(expected) {
            self.skip(expected.len());
            return Ok(true);
        }
        if expected.starts_with(rest) { Err(Found::Unfinished) } else { Ok(false) }
    }

    fn expect(&mut self, expected: &str) -> CallResult<()> {
        if self.takes(expected)? { Ok(()) } else { Err(Found::Nothing) }
    }

    /// Reads up to a text, which must come.
    fn until(&mut self, end: &str) -> CallResult<&'t str> {
        let (before, _) = self.rest().split_once(end).ok_or(Found::Unfinished)?;
        self.skip(before.len().saturating_add(end.len()));
        Ok(before)
    }

    /// Reads a JSON value.
    fn value<T: DeserializeOwned>(&mut self) -> CallResult<(T, &'t str)> {
        let rest = self.rest();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<T>();
        match values.next() {
            Some(Ok(value)) => {
                let end = values.byte_offset();
                self.skip(end);
                Ok((value, rest.get(..end).unwrap_or_default()))
            }
            // Half a number at the end, such as `1e`, is an error of its own.
            Some(Err(error)) if !error.is_eof() && !rest.ends_with(is_in_number) => Err(Found::Nothing),
            _ => Err(Found::Unfinished),
        }
    }

    /// Reads a JSON object or a list of objects.
    fn objects<T>(&mut self, mut read: impl FnMut(&mut Self) -> CallResult<T>) -> CallResult<Vec<T>> {
        self.skip_space();
        if !self.takes("[")? {
            return Ok(vec![read(self)?]);
        }
        let mut all = Vec::new();
        loop {
            all.push(read(self)?);
            self.skip_space();
            if self.takes("]")? {
                return Ok(all);
            }
            self.expect(",")?;
        }
    }

    /// Reads an object with a name and arguments.
    fn call(&mut self, name_key: &str, arguments_key: &str) -> CallResult<ToolCall> {
        self.skip_space();
        self.expect("{")?;
        let (mut name, mut arguments, mut is_first) = (None, None, true);
        loop {
            self.skip_space();
            if is_first && self.takes("}")? {
                return Err(Found::Nothing);
            }
            is_first = false;
            let (key, _) = self.value::<String>()?;
            self.skip_space();
            self.expect(":")?;
            self.skip_space();
            let (IgnoredAny, value) = self.value()?;
            if key == name_key {
                name = serde_json::from_str::<String>(value).ok();
            } else if key == arguments_key || ["arguments", "parameters"].contains(&&*key) {
                arguments = Some(arguments_of(value).ok_or(Found::Nothing)?);
            }
            self.skip_space();
            if self.takes("}")? {
                let name = name.filter(|name| !name.is_empty()).ok_or(Found::Nothing)?;
                return Ok(ToolCall { name, arguments: arguments.ok_or(Found::Nothing)? });
            }
            self.expect(",")?;
        }
    }

    /// Reads the name of a function.
    fn name(&mut self) -> CallResult<&'t str> {
        self.skip_space();
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let rest = self.rest();
        let len = rest.find(|c| !is_name(c)).ok_or(Found::Unfinished)?;
        self.skip(len);
        rest.get(..len).filter(|name| !name.is_empty()).ok_or(Found::Nothing)
    }

    /// Reads a name, and the arguments after it.
    fn named(&mut self, before_id: Option<&str>, before_arguments: &str) -> CallResult<ToolCall> {
        let name = self.name()?;
        if let Some(before_id) = before_id.filter(|text| !text.is_empty())
            && self.takes(before_id)?
        {
            self.until(before_arguments)?;
        } else {
            // Some models leave out the mark.
            self.takes(before_arguments)?;
        }
        self.skip_space();
        if !self.rest().is_empty() && !self.rest().starts_with('{') {
            return Err(Found::Nothing);
        }
        let (IgnoredAny, arguments) = self.value()?;
        Ok(ToolCall { name: name.to_owned(), arguments: arguments.to_owned() })
    }

    /// Reads the elements of a function and of its arguments.
    fn elements(&mut self, tools: &[Tool]) -> CallResult<ToolCall> {
        self.skip_space();
        self.expect(FUNCTION)?;
        let name = self.until(">")?.trim();
        if name.is_empty() || name.contains(['<', '\n']) {
            return Err(Found::Nothing);
        }
        let mut arguments = Map::new();
        loop {
            self.skip_space();
            if self.takes(FUNCTION_END)? {
                let arguments = Value::Object(arguments).to_string();
                return Ok(ToolCall { name: name.to_owned(), arguments });
            }
            self.expect(PARAMETER)?;
            let key = self.until(">")?.trim();
            let value = self.until(PARAMETER_END)?;
            let value = value.strip_prefix('\n').unwrap_or(value);
            let value = value.strip_suffix('\n').unwrap_or(value);
            arguments.insert(key.to_owned(), argument(value, schema_of(tools, name, key)));
        }
    }

    /// Reads a name, and the elements of the arguments after it, which the mark after the call ends.
    fn keys_and_values(&mut self, tools: &[Tool]) -> CallResult<ToolCall> {
        let name = self.name()?;
        let mut arguments = Map::new();
        loop {
            self.skip_space();
            if !self.takes(KEY)? {
                let ends = self.rest().starts_with("</");
                let arguments = Value::Object(arguments).to_string();
                return ends.then(|| ToolCall { name: name.to_owned(), arguments }).ok_or(Found::Nothing);
            }
            let key = self.until(KEY_END)?.trim();
            self.skip_space();
            self.expect(VALUE)?;
            let value = self.until(VALUE_END)?;
            arguments.insert(key.to_owned(), argument(value, schema_of(tools, name, key)));
        }
    }
}

fn is_in_number(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E')
}

/// Returns the text of arguments, which are an object or a text with one.
fn arguments_of(value: &str) -> Option<String> {
    let is_object =
        |text: &str| text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok();
    match value.chars().next()? {
        '{' => Some(value.to_owned()),
        '"' => serde_json::from_str::<String>(value).ok().filter(|text| is_object(text)),
        _ if value == "null" => Some("{}".to_owned()),
        _ => None,
    }
}

/// Returns the schema of an argument.
fn schema_of<'t>(tools: &'t [Tool], name: &str, key: &str) -> Option<&'t Value> {
    tools.iter().find(|tool| tool.name == name)?.parameters.get("properties")?.get(key)
}

/// Returns an argument of the type that its schema has.
fn argument(text: &str, schema: Option<&Value>) -> Value {
    let kind = schema.and_then(|schema| schema.get("type"));
    let is_text = |kind: &Value| kind == "string";
    let takes_text =
        kind.is_some_and(|kind| is_text(kind) || kind.as_array().is_some_and(|all| all.iter().any(is_text)));
    let parsed = serde_json::from_str(text).ok().filter(|_| !takes_text);
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

//! Calls between their marks, at the start of a text that may still grow.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

use super::{CallBody, CallId, ElementMarks, Tool, ToolCall, texts_of_schema};

/// Most characters of an id.
const ID_MAX: usize = 64;

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
pub(super) type CallResult<T> = Result<T, Found>;

/// Text after a mark, or what the text is instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterMark<'t> {
    /// The text may become the mark.
    Unfinished,
    Other,
    Rest(&'t str),
}

/// Returns the text after a mark at the start of `text`. White space between the words of a mark may differ.
pub(super) fn after_mark<'t>(text: &'t str, mark: &str) -> AfterMark<'t> {
    let mut rest = text;
    for word in mark.split_whitespace() {
        rest = rest.trim_start();
        match rest.strip_prefix(word) {
            Some(after) => rest = after,
            None if word.starts_with(rest) => return AfterMark::Unfinished,
            None => return AfterMark::Other,
        }
    }
    AfterMark::Rest(rest)
}

impl CallBody {
    /// Finds the calls at the start of `text`. Elements are a call only before the mark that ends it, `tail`.
    pub(super) fn find(&self, text: &str, tail: &str, tools: &[Tool]) -> Found {
        let mut reader = CallReader::new(text);
        let calls = match self {
            Self::Object { name_key, arguments_key, .. } => {
                reader.objects(|reader| reader.call(name_key, arguments_key))
            }
            Self::Keyed { .. } => reader.objects(CallReader::keyed_call),
            Self::Named { id, before_arguments } => {
                reader.named(id.as_ref(), before_arguments).map(|call| vec![call])
            }
            Self::Python => reader.objects(CallReader::python_call),
            Self::Mapping { quote } => reader.mapping(quote).map(|call| vec![call]),
            Self::Elements(marks) => reader.elements(marks, tail, tools).map(|call| vec![call]),
        };
        calls.map_or_else(|found| found, |calls| Found::Calls(calls, reader.at))
    }
}

/// Reads a text from its start.
pub(super) struct CallReader<'t> {
    text: &'t str,
    /// Number of bytes that were read.
    at: usize,
}

impl<'t> CallReader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    pub(super) fn skip_space(&mut self) {
        let rest = self.rest();
        self.skip(rest.len().saturating_sub(rest.trim_start().len()));
    }

    /// Returns true and reads a text if it comes next.
    pub(super) fn takes(&mut self, expected: &str) -> CallResult<bool> {
        let rest = self.rest();
        if rest.starts_with(expected) {
            self.skip(expected.len());
            return Ok(true);
        }
        if expected.starts_with(rest) { Err(Found::Unfinished) } else { Ok(false) }
    }

    pub(super) fn expect(&mut self, expected: &str) -> CallResult<()> {
        if self.takes(expected)? { Ok(()) } else { Err(Found::Nothing) }
    }

    /// Reads the words of a mark.
    fn expect_mark(&mut self, mark: &str) -> CallResult<()> {
        match after_mark(self.rest(), mark) {
            AfterMark::Rest(rest) => {
                self.at = self.text.len().saturating_sub(rest.len());
                Ok(())
            }
            AfterMark::Unfinished => Err(Found::Unfinished),
            AfterMark::Other => Err(Found::Nothing),
        }
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
    pub(super) fn objects<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> CallResult<T>,
    ) -> CallResult<Vec<T>> {
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
                let arguments = arguments.ok_or(Found::Nothing)?;
                return Ok(ToolCall { id: None, name, arguments });
            }
            self.expect(",")?;
        }
    }

    /// Reads an object whose only key is a name, with the arguments.
    fn keyed_call(&mut self) -> CallResult<ToolCall> {
        self.skip_space();
        self.expect("{")?;
        self.skip_space();
        let (name, _) = self.value::<String>()?;
        self.skip_space();
        self.expect(":")?;
        self.skip_space();
        let (IgnoredAny, value) = self.value()?;
        let arguments = arguments_of(value).ok_or(Found::Nothing)?;
        self.skip_space();
        self.expect("}")?;
        Ok(ToolCall { id: None, name, arguments })
    }

    /// Reads the name of a function.
    pub(super) fn name(&mut self) -> CallResult<&'t str> {
        self.skip_space();
        let rest = self.rest();
        let len = rest.find(|c| !is_in_name(c)).ok_or(Found::Unfinished)?;
        self.skip(len);
        rest.get(..len).filter(|name| !name.is_empty()).ok_or(Found::Nothing)
    }

    /// Reads a name, and the arguments after it.
    fn named(&mut self, id: Option<&CallId>, before_arguments: &str) -> CallResult<ToolCall> {
        let mut own_id = None;
        let first = id.filter(|id| id.is_first);
        if let Some(id) = first {
            let text = self.until(&id.before)?.trim();
            own_id = Some(text.to_owned()).filter(|text| is_id(text));
        }
        let name = self.name()?;
        if let Some(id) = id.filter(|_| first.is_none())
            && self.takes(&id.before)?
        {
            let text = self.until(before_arguments)?.trim();
            own_id = is_id(text).then(|| match &id.prefix {
                Some(prefix) => [prefix, name, &id.before, text].concat(),
                None => text.to_owned(),
            });
        } else {
            // Some models leave out the mark.
            self.takes(before_arguments)?;
        }
        self.skip_space();
        if !self.rest().is_empty() && !self.rest().starts_with('{') {
            return Err(Found::Nothing);
        }
        let (IgnoredAny, arguments) = self.value()?;
        Ok(ToolCall { id: own_id, name: name.to_owned(), arguments: arguments.to_owned() })
    }

    /// Reads a name, and an object whose keys have no quotes, and whose texts have this one.
    fn mapping(&mut self, quote: &str) -> CallResult<ToolCall> {
        const MARKS: [char; 6] = ['{', '}', '[', ']', ',', ':'];
        let name = self.name()?;
        if !self.rest().is_empty() && !self.rest().starts_with('{') {
            return Err(Found::Nothing);
        }
        let (mut json, mut depth, mut last) = (String::new(), 0_usize, ' ');
        loop {
            self.skip_space();
            if self.takes(quote)? {
                json.push_str(&Value::from(self.until(quote)?).to_string());
                continue;
            }
            let rest = self.rest();
            let mark = rest.chars().next().ok_or(Found::Unfinished)?;
            if MARKS.contains(&mark) {
                self.skip(1);
                json.push(mark);
                last = mark;
                match mark {
                    '{' | '[' => depth = depth.saturating_add(1),
                    '}' | ']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if depth == 0 {
                    let arguments = serde_json::from_str::<Map<String, Value>>(&json);
                    let arguments = Value::Object(arguments.map_err(|_| Found::Nothing)?).to_string();
                    return Ok(ToolCall { id: None, name: name.to_owned(), arguments });
                }
                continue;
            }
            let len = rest.find(|c| MARKS.contains(&c)).ok_or(Found::Unfinished)?;
            let word = rest.get(..len).unwrap_or_default().trim();
            self.skip(len);
            // A word before a colon is a key.
            let is_key = last != ':' && self.rest().starts_with(':');
            match word {
                "None" if !is_key => json.push_str("null"),
                word if !is_key && serde_json::from_str::<IgnoredAny>(word).is_ok() => json.push_str(word),
                word => json.push_str(&Value::from(word).to_string()),
            }
        }
    }

    /// Reads a name, and the elements of the arguments after it.
    fn elements(&mut self, marks: &ElementMarks, tail: &str, tools: &[Tool]) -> CallResult<ToolCall> {
        let name = self.name()?;
        self.expect_mark(&marks.after_name)?;
        let tool = tools.iter().find(|tool| tool.name == name);
        let mut arguments = Map::new();
        loop {
            let end = self.at;
            match self.expect_mark(&marks.before_key) {
                Ok(()) => {}
                Err(Found::Nothing) => {
                    // The mark that ends the call stays.
                    self.expect_mark(tail.split_whitespace().next().unwrap_or_default())?;
                    self.at = end;
                    let arguments = Value::Object(arguments).to_string();
                    return Ok(ToolCall { id: None, name: name.to_owned(), arguments });
                }
                Err(other) => return Err(other),
            }
            let (key_end, more) = first_word(&marks.after_key);
            let key = self.until(key_end)?.trim();
            self.expect_mark(more)?;
            if let Some(attributes) = &marks.attributes {
                self.until(&attributes.end)?;
            }
            let mut value = self.until(marks.after_value.trim())?;
            if marks.value_has_lines {
                value = value.strip_prefix('\n').unwrap_or(value);
                value = value.strip_suffix('\n').unwrap_or(value);
            }
            arguments.insert(key.to_owned(), argument(value, tool.and_then(|tool| tool.argument(key))));
        }
    }
}

/// Returns the first word of a mark, and the others.
fn first_word(mark: &str) -> (&str, &str) {
    let mark = mark.trim();
    mark.split_once(char::is_whitespace).unwrap_or((mark, ""))
}

fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn is_id(text: &str) -> bool {
    text.len() <= ID_MAX && text.chars().all(|c| is_in_name(c) || c == ':')
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

/// Returns an argument of the type that its schema has.
fn argument(text: &str, schema: Option<&Value>) -> Value {
    let parsed = serde_json::from_str(text).ok().filter(|_| schema.and_then(texts_of_schema).is_none());
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

//! Calls in Python's language, as LFM2 and Llama 4 write them: names, and arguments that are literals.

use serde_json::{Map, Value};

use super::ToolCall;
use super::body::{CallReader, CallResult, Found};

/// Most values inside each other.
const DEPTH_MAX: usize = 64;

impl CallReader<'_> {
    /// Reads a call with arguments by name.
    pub(super) fn python_call(&mut self) -> CallResult<ToolCall> {
        let name = self.name()?.to_owned();
        self.expect("(")?;
        let mut arguments = Map::new();
        self.python_items(")", &mut |reader| {
            let key = reader.name()?.to_owned();
            reader.skip_space();
            reader.expect("=")?;
            let value = reader.python_value(DEPTH_MAX)?;
            arguments.insert(key, value);
            Ok(())
        })?;
        Ok(ToolCall { id: None, name, arguments: Value::Object(arguments).to_string() })
    }

    /// Reads items with commas between them, and the text that ends them.
    fn python_items(
        &mut self,
        end: &str,
        read: &mut dyn FnMut(&mut Self) -> CallResult<()>,
    ) -> CallResult<()> {
        loop {
            self.skip_space();
            if self.takes(end)? {
                return Ok(());
            }
            read(self)?;
            self.skip_space();
            if self.takes(end)? {
                return Ok(());
            }
            self.expect(",")?;
        }
    }

    fn python_value(&mut self, depth: usize) -> CallResult<Value> {
        self.skip_space();
        let depth = depth.checked_sub(1).ok_or(Found::Nothing)?;
        match self.rest().chars().next().ok_or(Found::Unfinished)? {
            quote @ ('\'' | '"') => Ok(Value::String(self.python_text(quote)?)),
            open @ ('[' | '(') => {
                self.skip(1);
                let mut items = Vec::new();
                self.python_items(if open == '[' { "]" } else { ")" }, &mut |reader| {
                    items.push(reader.python_value(depth)?);
                    Ok(())
                })?;
                Ok(Value::Array(items))
            }
            '{' => {
                self.skip(1);
                let mut members = Map::new();
                self.python_items("}", &mut |reader| {
                    let Value::String(key) = reader.python_value(depth)? else { return Err(Found::Nothing) };
                    reader.skip_space();
                    reader.expect(":")?;
                    members.insert(key, reader.python_value(depth)?);
                    Ok(())
                })?;
                Ok(Value::Object(members))
            }
            _ => {
                let rest = self.rest();
                let is_in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
                let len = rest.find(|c| !is_in_word(c)).ok_or(Found::Unfinished)?;
                self.skip(len);
                match rest.get(..len).unwrap_or_default() {
                    "True" => Ok(Value::Bool(true)),
                    "False" => Ok(Value::Bool(false)),
                    "None" => Ok(Value::Null),
                    word => serde_json::from_str(word).map_err(|_| Found::Nothing),
                }
            }
        }
    }

    /// Reads a text in quotes.
    fn python_text(&mut self, quote: char) -> CallResult<String> {
        self.skip(1);
        let (mut text, start) = (String::new(), self.rest());
        let mut chars = start.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.skip(at.saturating_add(1));
                    return Ok(text);
                }
                '\\' => {
                    let (_, escaped) = chars.next().ok_or(Found::Unfinished)?;
                    let digits = match escaped {
                        'x' => 2,
                        'u' => 4,
                        'U' => 8,
                        _ => 0,
                    };
                    if digits > 0 {
                        let code: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
                        if code.len() < digits {
                            return Err(Found::Unfinished);
                        }
                        let code = u32::from_str_radix(&code, 16).map_err(|_| Found::Nothing)?;
                        text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                        continue;
                    }
                    match escaped {
                        'n' => text.push('\n'),
                        't' => text.push('\t'),
                        'r' => text.push('\r'),
                        '\n' => {}
                        '\\' | '\'' | '"' => text.push(escaped),
                        // Python keeps the backslash of an escape that it does not know.
                        other => text.extend(['\\', other]),
                    }
                }
                c => text.push(c),
            }
        }
        Err(Found::Unfinished)
    }
}

/// Returns the call of a list that has no other one, and the text after the list.
pub(super) fn list_of_one(text: &str) -> Option<(ToolCall, &str)> {
    let mut reader = CallReader::new(text);
    let calls = reader.objects(CallReader::python_call).ok()?;
    let [call] = <[ToolCall; 1]>::try_from(calls).ok()?;
    Some((call, reader.rest()))
}

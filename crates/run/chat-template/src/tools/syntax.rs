//! Finds how a model writes calls of tools: its chat template writes calls whose parts are known, and the marks around the parts are
//! those of the model.

use serde_json::{Map, Value, json};

use super::{AnswerPiece, Tool, ToolParser};
use crate::{Conversation, Message, Result};

/// Way in which a model writes calls of tools.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolSyntax {
    /// Text before a call, with the white space after its mark. Without a mark, an answer is either a call or a text.
    pub lead: String,
    pub body: CallBody,
    /// Text after a call, with the white space before its mark.
    pub tail: String,
}

/// Form of a call between its marks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallBody {
    /// JSON object, or a list of such objects.
    Object {
        /// Key of the function's name.
        name_key: String,
        /// Key of the arguments.
        arguments_key: String,
        is_list: bool,
    },
    /// The function's name, a text, and the arguments as a JSON object.
    Named {
        /// Text between the name and an id, if there is an id.
        before_id: Option<String>,
        /// Text before the arguments.
        before_arguments: String,
    },
    /// An element for the function, with one for each argument.
    Elements,
    /// The function's name, and two elements for each argument: its key and its value.
    KeysAndValues,
}

const NAME: &str = "probe_function";
const KEY: &str = "probe_key";
const VALUE: &str = "probe value";
/// Ids of the calls, in the only form that the templates of Mistral take.
const IDS: [&str; 2] = ["probe0001", "probe0002"];
const CONTENT: &str = "probe content";

impl ToolSyntax {
    /// Finds the syntax in what a template renders; `None` if its calls cannot be read.
    pub(crate) fn find(render: &dyn Fn(&Conversation) -> Result<String>) -> Option<Self> {
        let probe = Probe::new(render)?;
        let one = probe.written(1)?;
        let syntax = Self::from_text(&one)?;
        let is_read = |text: &str, count: usize| {
            let mut parser = ToolParser::new(syntax.clone(), vec![tool()]);
            let mut pieces = parser.push(text);
            pieces.extend(parser.finish());
            let is_probe = |piece: &AnswerPiece| match piece {
                AnswerPiece::Call(call) => {
                    call.name == NAME
                        && serde_json::from_str::<Value>(&call.arguments)
                            .is_ok_and(|arguments| arguments == probe_arguments())
                }
                AnswerPiece::Text(_) => false,
            };
            pieces.iter().filter(|piece| is_probe(piece)).count() == count
        };
        // Some templates take one call only.
        let reads_all = is_read(&one, 1) && probe.written(2).is_none_or(|two| is_read(&two, 2));
        reads_all.then_some(syntax)
    }

    /// Returns the mark before a call; empty if there is none.
    pub fn opening(&self) -> &str {
        self.lead.trim()
    }

    /// Returns the mark after a call; empty if there is none.
    pub fn closing(&self) -> &str {
        self.tail.trim()
    }

    /// Returns the texts around the parts of a call, of which some are special tokens.
    pub fn marks(&self) -> Vec<&str> {
        let mut marks = vec![self.lead.as_str(), self.tail.as_str()];
        if let CallBody::Named { before_id, before_arguments } = &self.body {
            marks.extend(before_id.as_deref());
            marks.push(before_arguments);
        }
        if self.opening().is_empty() {
            marks.push(super::parser::PYTHON_TAG);
        }
        marks
    }

    /// Finds the marks around the call of the probe.
    fn from_text(text: &str) -> Option<Self> {
        let at = text.rfind(NAME)?;
        let (before, from_name) = text.split_at_checked(at)?;
        let after_name = from_name.strip_prefix(NAME)?;
        if let Some(before) = before.strip_suffix(super::body::FUNCTION)
            && after_name.contains(&format!("{}{KEY}>", super::body::PARAMETER))
        {
            let (_, after) = after_name.rsplit_once(super::body::FUNCTION_END)?;
            return Some(Self::new(before, CallBody::Elements, after));
        }
        if after_name.trim_start().strip_prefix(super::body::KEY).is_some_and(|key| key.starts_with(KEY)) {
            let (_, after) = after_name.rsplit_once(super::body::VALUE_END)?;
            return Some(Self::new(before, CallBody::KeysAndValues, after));
        }
        for (start, _) in before.match_indices(['{', '[']) {
            let (lead, rest) = text.split_at_checked(start)?;
            if let Some((body, after)) = object_body(rest) {
                return Some(Self::new(lead, body, after));
            }
        }
        let (between, _) = after_name.split_once('{')?;
        let (arguments, after) = first_value(after_name.get(between.len()..)?)?;
        let (before_id, before_arguments) = match between.split_once(IDS[0]) {
            Some((before, after)) => (Some(before.to_owned()), after.to_owned()),
            None => (None, between.to_owned()),
        };
        let body = CallBody::Named { before_id, before_arguments };
        let is_marked = !before.trim().is_empty();
        (is_marked && arguments == probe_arguments()).then(|| Self::new(before, body, after))
    }

    /// Creates a syntax whose marks are the words next to a call.
    fn new(before: &str, body: CallBody, after: &str) -> Self {
        let word = before.trim_end().char_indices().rev().find(|(_, c)| c.is_whitespace());
        let start = word.map_or(0, |(at, c)| at.saturating_add(c.len_utf8()));
        let lead = if before.trim().is_empty() { "" } else { before.get(start..).unwrap_or_default() };
        let space = after.len().saturating_sub(after.trim_start().len());
        let mark = after.trim_start().split(char::is_whitespace).next().unwrap_or_default();
        let end = if mark.is_empty() { 0 } else { space.saturating_add(mark.len()) };
        let tail = after.get(..end).unwrap_or_default();
        Self { lead: lead.to_owned(), body, tail: tail.to_owned() }
    }
}

/// Returns the form of the call that a text begins with, and the text after it.
fn object_body(text: &str) -> Option<(CallBody, &str)> {
    let (value, after) = first_value(text)?;
    let is_list = value.is_array();
    let object = value.as_object().or_else(|| value.get(0)?.as_object())?;
    let key = |is_it: &dyn Fn(&Value) -> bool| {
        object.iter().find(|(_, value)| is_it(value)).map(|(key, _)| key.clone())
    };
    let name_key = key(&|value| value == NAME)?;
    let is_arguments = |value: &Value| {
        let parsed = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        parsed.as_ref().unwrap_or(value) == &probe_arguments()
    };
    let arguments_key = key(&is_arguments)?;
    Some((CallBody::Object { name_key, arguments_key, is_list }, after))
}

/// Returns the JSON value that a text begins with, and the text after it.
fn first_value(text: &str) -> Option<(Value, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    let end = values.byte_offset();
    Some((value, text.get(end..)?))
}

fn probe_arguments() -> Value {
    json!({ KEY: VALUE })
}

fn parameters() -> Value {
    json!({"type": "object", "properties": {KEY: {"type": "string", "description": "a text"}}, "required": [KEY]})
}

fn tool() -> Tool {
    Tool { name: NAME.to_owned(), parameters: parameters() }
}

/// Conversations with calls whose parts are known.
struct Probe<'r> {
    render: &'r dyn Fn(&Conversation) -> Result<String>,
    /// Text before an answer.
    before: String,
    /// Text after an answer.
    after: String,
}

impl<'r> Probe<'r> {
    fn new(render: &'r dyn Fn(&Conversation) -> Result<String>) -> Option<Self> {
        let probe = Self { render, before: String::new(), after: String::new() };
        let answer = probe.rendered(Some(json!({"role": "assistant", "content": CONTENT})))?;
        let (_, after) = answer.rsplit_once(CONTENT)?;
        let before = probe.rendered(None)?;
        Some(Self { before, after: after.to_owned(), ..probe })
    }

    /// Renders a conversation that ends with an answer, or before it.
    fn rendered(&self, answer: Option<Value>) -> Option<String> {
        let object = |value: Value| match value {
            Value::Object(object) => object,
            _ => Map::new(),
        };
        let user: Message = object(json!({"role": "user", "content": "probe question"}));
        let add_generation_prompt = answer.is_none();
        let messages = [user].into_iter().chain(answer.map(object)).collect();
        let function = json!({"name": NAME, "description": "a function", "parameters": parameters()});
        let tools = Some(vec![json!({"type": "function", "function": function})]);
        (self.render)(&Conversation { tools, add_generation_prompt, ..Conversation::new(messages) }).ok()
    }

    /// Returns the text of an answer with this many calls.
    fn written(&self, count: usize) -> Option<String> {
        let call = |id: &&str| {
            let function = json!({"name": NAME, "arguments": probe_arguments()});
            json!({"id": id, "type": "function", "function": function})
        };
        let calls: Vec<Value> = IDS.iter().take(count).map(call).collect();
        let rendered = self.rendered(Some(json!({"role": "assistant", "tool_calls": calls}))).or_else(|| {
            self.rendered(Some(json!({"role": "assistant", "content": "", "tool_calls": calls})))
        });
        let rendered = rendered?;
        let answer = rendered.strip_suffix(&*self.after).unwrap_or(&rendered);
        let shared = self.before.chars().zip(answer.chars()).take_while(|(one, other)| one == other);
        let mut start: usize = shared.map(|(c, _)| c.len_utf8()).sum();
        if start < self.before.len() {
            // The prompt goes on otherwise, maybe within a mark.
            let shared = answer.get(..start)?;
            start = shared.rfind(char::is_whitespace).map_or(0, |at| at.saturating_add(1));
        }
        answer.get(start..).map(str::to_owned)
    }
}

//! A conversation, as clients of chat models write it.
//!
//! Facts: `transformers` 5.23 leaves out members of messages that are null, and gives a message's reasoning the names that most templates
//! read; Solar's reads a third. Clients of `OpenAI` send the arguments of a call as a text of JSON, and most templates take them as an object.

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Message of a conversation: its role, its content, calls of tools.
pub type Message = Map<String, Value>;

/// A conversation, in the order in which a model reads it. JSON is an array of messages, or an object with these members; others
/// are ignored.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Json")]
#[non_exhaustive]
pub struct Conversation {
    /// Messages, from the first.
    pub messages: Vec<Message>,
    /// Tools that the model may call, each as an object with `type` and `function`; `None` if there are none.
    pub tools: Option<Vec<Value>>,
    /// Documents that the model may cite.
    pub documents: Option<Vec<Value>>,
    /// True if the text ends where the answer of the model begins.
    pub add_generation_prompt: bool,
    /// Further variables of the template, such as `enable_thinking`.
    pub variables: Map<String, Value>,
}

impl Conversation {
    /// Creates a conversation of messages, which the model answers.
    pub fn new(messages: Vec<Message>) -> Self {
        Self { messages, tools: None, documents: None, add_generation_prompt: true, variables: Map::new() }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected an array of messages, or an object with `messages`")]
enum Json {
    Messages(Vec<Message>),
    Whole(Whole),
}

#[derive(Deserialize)]
struct Whole {
    messages: Vec<Message>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    documents: Option<Vec<Value>>,
    #[serde(default)]
    add_generation_prompt: Option<bool>,
    #[serde(default, alias = "variables")]
    chat_template_kwargs: Option<Map<String, Value>>,
}

impl From<Json> for Conversation {
    fn from(json: Json) -> Self {
        match json {
            Json::Messages(messages) => Self::new(messages),
            Json::Whole(whole) => Self {
                messages: whole.messages,
                tools: whole.tools,
                documents: whole.documents,
                add_generation_prompt: whole.add_generation_prompt.unwrap_or(true),
                variables: whole.chat_template_kwargs.unwrap_or_default(),
            },
        }
    }
}

/// Names of a message's reasoning; templates read the first.
const REASONING: &[&str] = &["reasoning_content", "thinking", "reasoning"];

/// Returns the reasoning of a message.
fn reasoning(message: &Message) -> Option<&Value> {
    REASONING.iter().find_map(|name| message.get(*name).filter(|value| !value.is_null()))
}

/// Returns true if a message has reasoning.
pub(crate) fn has_reasoning(message: &Message) -> bool {
    reasoning(message).is_some()
}

/// Returns a message with its reasoning as a part of the content.
pub(crate) fn with_parts(message: &Message) -> Message {
    let Some(reasoning) = reasoning(message).and_then(Value::as_str) else { return message.clone() };
    let mut parts = vec![json!({"type": "thinking", "thinking": reasoning})];
    match message.get("content") {
        Some(Value::Array(content)) => parts.extend(content.iter().cloned()),
        Some(Value::String(text)) if !text.is_empty() => parts.push(json!({"type": "text", "text": text})),
        _ => {}
    }
    let mut message: Message = message
        .iter()
        .filter(|(key, _)| !REASONING.contains(&&***key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    message.insert("content".to_owned(), parts.into());
    message
}

/// Form in which a template takes messages with calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallForm {
    /// True if arguments are a text of JSON instead of an object.
    has_texts: bool,
    /// True if a message without a content has an empty one.
    has_content: bool,
}

/// Forms that templates take. Most take the first one.
pub(crate) const CALL_FORMS: [CallForm; 4] = [
    CallForm { has_texts: false, has_content: false },
    CallForm { has_texts: true, has_content: false },
    CallForm { has_texts: false, has_content: true },
    CallForm { has_texts: true, has_content: true },
];

/// Returns true if a message has calls.
pub(crate) fn has_calls(message: &Message) -> bool {
    message.get("tool_calls").is_some_and(Value::is_array)
}

/// Returns the names of the functions that a message calls.
pub(crate) fn called_names(message: &Message) -> impl Iterator<Item = &str> {
    let calls = message.get("tool_calls").and_then(Value::as_array);
    calls.into_iter().flatten().filter_map(|call| call.get("function").unwrap_or(call).get("name")?.as_str())
}

/// Returns a message as templates take it.
pub(crate) fn prepared(message: &Message, joins_parts: bool, form: CallForm) -> Message {
    let mut message: Message = message
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if let Some(reasoning) = reasoning(&message).cloned() {
        for name in ["thinking", "reasoning"] {
            if !message.contains_key(name) {
                message.shift_insert(0, name.to_owned(), reasoning.clone());
            }
        }
        message.insert("reasoning_content".to_owned(), reasoning);
    }
    if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
        for call in calls {
            set_arguments(call, form.has_texts);
        }
    }
    if form.has_content && has_calls(&message) && !message.contains_key("content") {
        message.insert("content".to_owned(), "".into());
    }
    if let Some(content) = message.get_mut("content").filter(|_| joins_parts)
        && let Some(text) = joined_parts(content)
    {
        *content = Value::String(text);
    }
    message
}

/// Gives the arguments of a call a form: an object, or the text that stands for it.
fn set_arguments(call: &mut Value, is_text: bool) {
    let function = if call.get("function").is_some() { call.get_mut("function") } else { Some(call) };
    let Some(arguments) = function.and_then(|function| function.get_mut("arguments")) else { return };
    match (is_text, &*arguments) {
        (false, Value::String(text)) => {
            if let Ok(parsed @ Value::Object(_)) = serde_json::from_str(text) {
                *arguments = parsed;
            }
        }
        (true, Value::Object(_)) => *arguments = Value::String(arguments.to_string()),
        _ => {}
    }
}

/// Returns the texts of a content that consists of them, with a line for each; `None` if it is anything else.
fn joined_parts(content: &Value) -> Option<String> {
    let text = |part: &Value| match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text") => part.get("text")?.as_str().map(str::to_owned),
        _ => None,
    };
    let parts: Option<Vec<String>> = content.as_array()?.iter().map(text).collect();
    Some(parts?.join("\n"))
}

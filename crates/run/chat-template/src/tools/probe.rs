//! Conversations whose parts are known, which show what a template writes around the parts.

use serde_json::{Map, Value, json};

use super::Tool;
use crate::{Conversation, Message, Result};

/// Renders a conversation.
pub(crate) type Render<'r> = dyn Fn(&Conversation) -> Result<String> + 'r;

pub(crate) const NAME: &str = "probe_function";
pub(super) const KEY: &str = "probe_key";
pub(super) const VALUE: &str = "probe value";
pub(super) const NUMBER_KEY: &str = "probe_number";
pub(super) const NUMBER: &str = "1234567";
/// Most bytes of a call and what is next to it: each bracket in them may begin one.
const PROBE_MAX: usize = 1 << 15;
/// Ids of the calls, in the only form that the templates of Mistral take.
pub(super) const IDS: [&str; 2] = ["probe0001", "probe0002"];
/// Ids with the names and the numbers of the calls, which some templates write instead of the names.
pub(super) const NUMBERED_IDS: [&str; 2] = ["functions.probe_function:0", "functions.probe_function:1"];
pub(crate) const CONTENT: &str = "probe content";

pub(super) fn probe_arguments() -> Value {
    json!({ KEY: VALUE, NUMBER_KEY: serde_json::from_str::<Value>(NUMBER).unwrap_or_default() })
}

fn parameters() -> Value {
    let properties = json!({
        KEY: {"type": "string", "description": "a text"},
        NUMBER_KEY: {"type": "integer", "description": "a number"},
    });
    json!({"type": "object", "properties": properties, "required": [KEY, NUMBER_KEY]})
}

pub(super) fn tool() -> Tool {
    Tool { name: NAME.to_owned(), parameters: parameters() }
}

/// Returns the message of a user.
pub(crate) fn question() -> Value {
    json!({"role": "user", "content": "probe question"})
}

/// Returns a call.
pub(crate) fn call(id: &str) -> Value {
    let function = json!({"name": NAME, "arguments": probe_arguments()});
    json!({"id": id, "type": "function", "function": function})
}

/// Renders messages. The text ends before an answer if the last one is not an answer.
pub(crate) fn render(
    render: &Render<'_>,
    messages: Vec<Value>,
    has_tools: bool,
    variables: Map<String, Value>,
) -> Option<String> {
    let add_generation_prompt = messages.last()?.get("role")? != "assistant";
    let messages = messages.into_iter().filter_map(|message| match message {
        Value::Object(message) => Some(message),
        _ => None,
    });
    let function = json!({"name": NAME, "description": "a function", "parameters": parameters()});
    let tools = has_tools.then(|| vec![json!({"type": "function", "function": function})]);
    let messages: Vec<Message> = messages.collect();
    render(&Conversation { tools, add_generation_prompt, variables, ..Conversation::new(messages) }).ok()
}

/// Conversations with calls whose parts are known.
pub(super) struct Probe<'r> {
    render: &'r Render<'r>,
    /// Text before an answer.
    before: String,
    /// Text after an answer.
    after: String,
}

impl<'r> Probe<'r> {
    pub(super) fn new(render: &'r Render<'r>) -> Option<Self> {
        let probe = Self { render, before: String::new(), after: String::new() };
        let answer = probe.rendered(Some(json!({"role": "assistant", "content": CONTENT})))?;
        let (_, after) = answer.rsplit_once(CONTENT)?;
        let before = probe.rendered(None)?;
        Some(Self { before, after: after.to_owned(), ..probe })
    }

    /// Renders a conversation that ends with an answer, or before it.
    fn rendered(&self, answer: Option<Value>) -> Option<String> {
        let messages = [question()].into_iter().chain(answer).collect();
        render(self.render, messages, true, Map::new())
    }

    /// Returns the text of an answer with calls of these ids.
    pub(super) fn written(&self, ids: &[&str]) -> Option<String> {
        let calls: Vec<Value> = ids.iter().map(|id| call(id)).collect();
        let rendered = self.rendered(Some(json!({"role": "assistant", "tool_calls": calls}))).or_else(|| {
            self.rendered(Some(json!({"role": "assistant", "content": "", "tool_calls": calls})))
        });
        let rendered = rendered?;
        let answer = rendered.strip_suffix(&*self.after).unwrap_or(&rendered);
        let shared = shared_start(answer, &self.before);
        let mut start = shared.len();
        if start < self.before.len() {
            // The prompt goes on otherwise, maybe within a mark.
            start = shared.rfind(char::is_whitespace).map_or(0, |at| at.saturating_add(1));
        }
        answer.get(start..).filter(|text| text.len() <= PROBE_MAX).map(str::to_owned)
    }
}

/// Returns the start that two texts share.
pub(crate) fn shared_start<'t>(one: &'t str, other: &str) -> &'t str {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
    one.get(..same.map(|(a, _)| a.len_utf8()).sum()).unwrap_or_default()
}

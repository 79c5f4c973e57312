//! Conversations as requests for responses have them: messages, calls of functions, and what these returned.

use chat_template::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use super::tools::call_value;

/// Conversation, or the text of a user.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of messages")]
pub(super) enum Input {
    Text(String),
    Items(Vec<Item>),
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a message, a `function_call`, a `function_call_output` or `reasoning`"
)]
pub(super) enum Item {
    Call {
        #[serde(rename = "type")]
        _kind: CallKind,
        call_id: String,
        name: String,
        arguments: String,
    },
    Output {
        #[serde(rename = "type")]
        _kind: OutputKind,
        call_id: String,
        output: Content,
    },
    Reasoning {
        #[serde(rename = "type")]
        _kind: ReasoningKind,
        #[serde(default)]
        content: Option<Content>,
    },
    Message {
        #[serde(default, rename = "type")]
        _kind: Option<MessageKind>,
        role: String,
        content: Content,
    },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallKind {
    FunctionCall,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutputKind {
    FunctionCallOutput,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReasoningKind {
    Reasoning,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MessageKind {
    Message,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a text or parts of the types `input_text`, `output_text` and `reasoning_text`"
)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(super) enum ContentPart {
    #[serde(rename = "input_text")]
    Input { text: String },
    #[serde(rename = "output_text")]
    Output { text: String },
    #[serde(rename = "reasoning_text")]
    Reasoning { text: String },
}

impl ContentPart {
    fn into_text(self) -> String {
        let (Self::Input { text } | Self::Output { text } | Self::Reasoning { text }) = self;
        text
    }
}

impl Content {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().map(ContentPart::into_text).collect(),
        }
    }
}

fn message(role: &str, content: &str) -> Message {
    Message::from_iter([("role".to_owned(), role.into()), ("content".to_owned(), content.into())])
}

impl Input {
    /// Returns the messages, of which the first has the instructions.
    pub(super) fn messages(self, instructions: Option<&str>) -> Vec<Message> {
        let mut messages: Vec<Message> =
            instructions.iter().map(|instructions| message("system", instructions)).collect();
        match self {
            Self::Text(text) => messages.push(message("user", &text)),
            Self::Items(items) => items.into_iter().for_each(|item| add(&mut messages, item)),
        }
        // Reasoning that nothing follows belongs to no message.
        messages.retain(|message| !is_reasoning(message));
        messages
    }
}

const REASONING: &str = "reasoning_content";

/// Returns true for reasoning whose message or call has not come.
fn is_reasoning(message: &Message) -> bool {
    let has = |key: &str| message.contains_key(key);
    has(REASONING) && !has("content") && !has("tool_calls")
}

fn add(messages: &mut Vec<Message>, item: Item) {
    match item {
        Item::Message { role, content, .. } => {
            let mut message = message(&role, &content.into_text());
            if role == "assistant"
                && let Some(reasoning) = messages.pop_if(|last| is_reasoning(last))
            {
                message.extend(reasoning);
            }
            messages.push(message);
        }
        Item::Reasoning { content: Some(content), .. } => messages.push(Message::from_iter([
            ("role".to_owned(), "assistant".into()),
            (REASONING.to_owned(), content.into_text().into()),
        ])),
        // Reasoning that is encrypted, or a summary, is of no use to a template.
        Item::Reasoning { content: None, .. } => {}
        Item::Output { call_id, output, .. } => {
            let mut message = message("tool", &output.into_text());
            message.insert("tool_call_id".to_owned(), call_id.into());
            messages.push(message);
        }
        Item::Call { call_id, name, arguments, .. } => {
            let call = call_value(&chat_template::ToolCall { id: Some(call_id), name, arguments });
            let is_answer =
                |message: &&mut Message| message.get("role").is_some_and(|role| role == "assistant");
            // What a model writes before a call, and further calls, are in one message.
            match messages.last_mut().filter(is_answer) {
                Some(answer) => {
                    let calls = answer.entry("tool_calls").or_insert_with(|| json!([]));
                    if let Value::Array(calls) = calls {
                        calls.push(call);
                    }
                }
                None => messages.push(Message::from_iter([
                    ("role".to_owned(), "assistant".into()),
                    ("tool_calls".to_owned(), json!([call])),
                ])),
            }
        }
    }
}

//! `POST /v1/responses`, of which nothing is stored.

use std::sync::Arc;

use chat_template::{Conversation, Message};
use hyper::http::request::Parts;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::chat::{ResponseFormat, ToolChoice, conversation_prompt};
use super::common::{CommonFields, new_id, now};
use super::error::ErrorBody;
use super::fields::fields;
use super::form::{AnswerForm, EventWriter, Read, read, respond};
use super::generation::{Answer, GenerationPlan, Usage, find_model, required};
use crate::answer::RouteResult;
use crate::body::Upload;
use crate::reject::Reject;
use crate::state::ServerState;
use crate::text::{Finish, TextEvent, TextModel};

fields! {
    /// Body of a request.
    ResponsesRequest {
        input: Input,
        instructions: String,
        max_output_tokens: u64,
        text: TextOptions,
        tools: Vec<Value>,
        tool_choice: ToolChoice,
        parallel_tool_calls: bool,
        metadata: Map<String, Value>,
        truncation: Truncation,
        store: bool,
        background: bool,
    }
    common: CommonFields
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextOptions {
    format: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Truncation {
    Disabled,
}

/// Conversation, or the text of a user.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of messages")]
pub(super) enum Input {
    Text(String),
    Items(Vec<Item>),
}

#[derive(Debug, Deserialize)]
pub(super) struct Item {
    #[serde(default, rename = "type")]
    _kind: Option<ItemKind>,
    role: String,
    content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ItemKind {
    Message,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or parts of the types `input_text` and `output_text`")]
pub(super) enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentPart {
    InputText { text: String },
    OutputText { text: String },
}

impl Input {
    fn messages(self, instructions: Option<String>) -> Vec<Message> {
        let message = |role: &str, content: String| {
            Message::from_iter([("role".to_owned(), role.into()), ("content".to_owned(), content.into())])
        };
        let mut messages: Vec<Message> =
            instructions.into_iter().map(|instructions| message("system", instructions)).collect();
        match self {
            Self::Text(text) => messages.push(message("user", text)),
            Self::Items(items) => messages.extend(items.into_iter().map(|Item { role, content, .. }| {
                let text = match content {
                    Content::Text(text) => text,
                    Content::Parts(parts) => parts
                        .into_iter()
                        .map(|(ContentPart::InputText { text } | ContentPart::OutputText { text })| text)
                        .collect(),
                };
                message(&role, text)
            })),
        }
        messages
    }
}

/// Answers a request for a response.
pub(super) async fn answer(state: &Arc<ServerState>, parts: &Parts, upload: &mut Upload) -> RouteResult {
    let request: Read<ResponsesRequest> = read(state, parts, upload).await?;
    let served = find_model(state, request.fields.common.model_name()?)?;
    let model = served.name.clone();
    respond(state, &served, move |text| plan(text, request, model)).await
}

fn plan(
    text: &TextModel,
    Read { fields: mut request, .. }: Read<ResponsesRequest>,
    model: String,
) -> Result<(GenerationPlan, ResponsesForm), Reject> {
    let sampling = request.common.sampling(text.forward.vocab())?;
    for (name, is_asked) in [("store", request.store), ("background", request.background)] {
        if is_asked == Some(true) {
            return Err(Reject::param(
                name,
                format!("this server keeps no responses: `{name}` can only be false"),
            ));
        }
    }
    if sampling.choices != 1 {
        return Err(Reject::param("n", "a response is one answer"));
    }
    let format = request.text.and_then(|options| options.format).unwrap_or(json!({"type": "text"}));
    let parsed = serde_json::from_value::<ResponseFormat>(format.clone());
    let parsed =
        parsed.map_err(|error| Reject::param("text", format!("the format is not known: {error}")))?;
    let grammar = parsed.grammar(text, "text")?;
    let fixed = json!({
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata.unwrap_or_default(),
        "parallel_tool_calls": request.parallel_tool_calls.unwrap_or(true),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "tools": request.tools.clone().unwrap_or_default(),
        "tool_choice": if request.tool_choice == Some(ToolChoice::None) { "none" } else { "auto" },
        "text": {"format": format},
        "truncation": "disabled",
        "background": false,
        "store": false,
        "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null},
        "error": null,
        "user": request.common.user,
    });
    let messages = required("input", request.input)?.messages(request.instructions);
    let mut conversation = Conversation::new(messages);
    conversation.tools = request.tools.filter(|_| request.tool_choice != Some(ToolChoice::None));
    let prompts = vec![conversation_prompt(text, &conversation, "input")?];
    let max_tokens = request.max_output_tokens;
    let form = ResponsesForm {
        id: new_id("resp").replace('-', "_"),
        item: new_id("msg").replace('-', "_"),
        created: now(),
        model,
        fixed,
        sequence: 0,
        text: String::new(),
        finish: None,
    };
    let plan = GenerationPlan {
        prompts,
        max_tokens,
        max_tokens_param: "max_output_tokens",
        sampling,
        scores: None,
        grammar,
    };
    Ok((plan, form))
}

/// Form of the response to a request.
struct ResponsesForm {
    id: String,
    /// Id of the message in the response.
    item: String,
    created: u64,
    model: String,
    /// Members that are the same in all states of the response.
    fixed: Value,
    /// Number of the next event.
    sequence: u64,
    text: String,
    finish: Option<Finish>,
}

/// State of a response or of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    InProgress,
    Completed,
    Incomplete,
}

impl ResponsesForm {
    fn response(&self, status: Status, output: &[Value], usage: Option<Usage>) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.model,
            "output": output,
            "incomplete_details": (status == Status::Incomplete).then(|| json!({"reason": "max_output_tokens"})),
            "usage": usage.map(|usage| json!({
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.total_tokens,
            })),
        });
        if let (Some(response), Some(fixed)) = (response.as_object_mut(), self.fixed.as_object()) {
            response.extend(fixed.clone());
        }
        response
    }

    fn message(&self, status: Status, content: &[Value]) -> Value {
        json!({"type": "message", "id": self.item, "status": status, "role": "assistant", "content": content})
    }

    fn part(text: &str) -> Value {
        json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
    }

    fn status(finish: Option<Finish>) -> Status {
        if finish == Some(Finish::Length) { Status::Incomplete } else { Status::Completed }
    }

    /// Sends an event, with its name and number.
    fn send(&mut self, name: &str, mut event: Value, out: &mut EventWriter) {
        if let Some(event) = event.as_object_mut() {
            event.insert("type".to_owned(), name.into());
            event.insert("sequence_number".to_owned(), self.sequence.into());
        }
        self.sequence = self.sequence.saturating_add(1);
        out.named(name, &event);
    }

    /// Sends an event about the text of the message.
    fn send_part(&mut self, name: &str, members: &Value, out: &mut EventWriter) {
        let mut event = json!({"item_id": self.item, "output_index": 0, "content_index": 0});
        if let (Some(event), Value::Object(members)) = (event.as_object_mut(), members) {
            event.extend(members.clone());
        }
        self.send(name, event, out);
    }

    fn start(&mut self, out: &mut EventWriter) {
        if self.sequence > 0 {
            return;
        }
        for name in ["response.created", "response.in_progress"] {
            let response = self.response(Status::InProgress, &[], None);
            self.send(name, json!({"response": response}), out);
        }
        let item = self.message(Status::InProgress, &[]);
        self.send("response.output_item.added", json!({"output_index": 0, "item": item}), out);
        self.send_part("response.content_part.added", &json!({"part": Self::part("")}), out);
    }
}

impl AnswerForm for ResponsesForm {
    fn whole(&self, answers: Vec<Answer>, usage: Usage) -> RouteResult {
        let answer = answers.into_iter().next().unwrap_or_default();
        let status = Self::status(answer.finish);
        let output = vec![self.message(status, &[Self::part(&answer.text)])];
        crate::answer::json(&self.response(status, &output, Some(usage)))
    }

    fn event(&mut self, event: TextEvent, out: &mut EventWriter) {
        self.start(out);
        match event {
            TextEvent::Text { text, .. } => {
                self.text.push_str(&text);
                self.send_part("response.output_text.delta", &json!({"delta": text, "logprobs": []}), out);
            }
            TextEvent::End { finish, .. } => self.finish = Some(finish),
            TextEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, usage: Usage, out: &mut EventWriter) {
        let (text, status) = (std::mem::take(&mut self.text), Self::status(self.finish));
        let part = Self::part(&text);
        self.send_part("response.output_text.done", &json!({"text": text, "logprobs": []}), out);
        self.send_part("response.content_part.done", &json!({"part": part}), out);
        let item = self.message(status, &[part]);
        self.send("response.output_item.done", json!({"output_index": 0, "item": item}), out);
        let name = if status == Status::Incomplete { "response.incomplete" } else { "response.completed" };
        let response = self.response(status, &[item], Some(usage));
        self.send(name, json!({"response": response}), out);
    }

    fn fail(&mut self, reject: &Reject, out: &mut EventWriter) {
        let error = serde_json::to_value(ErrorBody::new(reject)).unwrap_or_default();
        self.send("error", error.get("error").cloned().unwrap_or_default(), out);
    }
}

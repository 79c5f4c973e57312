//! Responses as clients of `/v1/responses` read them: whole, or as numbered events.

use chat_template::{AnswerPiece, ToolCall};
use serde::Serialize;
use serde_json::{Value, json};

use super::common::{new_id, now};
use super::error::ErrorBody;
use super::form::{AnswerForm, EventWriter};
use super::generation::{Answer, Usage};
use super::tools::{AnswerParser, new_call_id};
use crate::answer::RouteResult;
use crate::reject::Reject;
use crate::text::{Finish, TextEvent};

/// Form of the response to a request.
pub(super) struct ResponsesForm {
    id: String,
    created: u64,
    model: String,
    /// Members that are the same in all states of the response.
    fixed: Value,
    /// Number of the next event.
    sequence: u64,
    parser: AnswerParser,
    /// Messages, reasoning and calls that are complete.
    output: Vec<Value>,
    /// Message or reasoning that is sent.
    open: Option<OpenItem>,
    finish: Option<Finish>,
}

/// Item that is sent: its id, and its text until now.
struct OpenItem {
    kind: TextKind,
    id: String,
    text: String,
}

/// What a text is: the answer to the user, or what the model writes for itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Message,
    Reasoning,
}

impl TextKind {
    fn id_prefix(self) -> &'static str {
        match self {
            Self::Message => "msg",
            Self::Reasoning => "rs",
        }
    }

    /// Name of an event about the text.
    fn event(self, what: &str) -> String {
        match self {
            Self::Message => format!("response.output_text.{what}"),
            Self::Reasoning => format!("response.reasoning_text.{what}"),
        }
    }

    fn part(self, text: &str) -> Value {
        match self {
            Self::Message => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
            Self::Reasoning => json!({"type": "reasoning_text", "text": text}),
        }
    }

    fn item(self, id: &str, status: Status, content: &[Value]) -> Value {
        match self {
            Self::Message => {
                json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
            }
            Self::Reasoning => {
                json!({"type": "reasoning", "id": id, "status": status, "summary": [], "content": content})
            }
        }
    }
}

/// State of a response or of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    InProgress,
    Completed,
    Incomplete,
}

fn item_id(prefix: &str) -> String {
    new_id(prefix).replace('-', "_")
}

fn call(id: &str, call_id: &str, name: &str, arguments: &str, status: Status) -> Value {
    json!({"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments, "status": status})
}

fn status_of(finish: Option<Finish>) -> Status {
    if finish == Some(Finish::Length) { Status::Incomplete } else { Status::Completed }
}

impl ResponsesForm {
    pub(super) fn new(model: String, fixed: Value, parser: AnswerParser) -> Self {
        Self {
            id: item_id("resp"),
            created: now(),
            model,
            fixed,
            sequence: 0,
            parser,
            output: Vec::new(),
            open: None,
            finish: None,
        }
    }

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

    /// Sends an event, with its name and number.
    fn send(&mut self, name: &str, mut event: Value, out: &mut EventWriter) {
        if let Some(event) = event.as_object_mut() {
            event.insert("type".to_owned(), name.into());
            event.insert("sequence_number".to_owned(), self.sequence.into());
        }
        self.sequence = self.sequence.saturating_add(1);
        out.named(name, &event);
    }

    /// Sends an event about an item of the output, the next one.
    fn send_item(&mut self, name: &str, mut event: Value, out: &mut EventWriter) {
        if let Some(event) = event.as_object_mut() {
            event.insert("output_index".to_owned(), self.output.len().into());
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
    }

    fn send_pieces(&mut self, pieces: Vec<AnswerPiece>, out: &mut EventWriter) {
        for piece in pieces {
            match piece {
                AnswerPiece::Text(text) => self.send_text(TextKind::Message, &text, out),
                AnswerPiece::Reasoning(text) => self.send_text(TextKind::Reasoning, &text, out),
                AnswerPiece::Call(call) => self.send_call(&call, out),
            }
        }
    }

    fn send_text(&mut self, kind: TextKind, text: &str, out: &mut EventWriter) {
        if self.open.as_ref().is_some_and(|open| open.kind != kind) {
            self.close(Status::Completed, out);
        }
        let id = if let Some(open) = &self.open {
            open.id.clone()
        } else {
            let id = item_id(kind.id_prefix());
            let item = kind.item(&id, Status::InProgress, &[]);
            self.send_item("response.output_item.added", json!({"item": item}), out);
            let event = json!({"item_id": id, "content_index": 0, "part": kind.part("")});
            self.send_item("response.content_part.added", event, out);
            self.open = Some(OpenItem { kind, id: id.clone(), text: String::new() });
            id
        };
        if text.is_empty() {
            return;
        }
        let event = json!({"item_id": id, "content_index": 0, "delta": text, "logprobs": []});
        self.send_item(&kind.event("delta"), event, out);
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
        }
    }

    /// Ends the item that is sent, if there is one.
    fn close(&mut self, status: Status, out: &mut EventWriter) {
        let Some(OpenItem { kind, id, text }) = self.open.take() else { return };
        let event = json!({"item_id": id, "content_index": 0, "text": text, "logprobs": []});
        self.send_item(&kind.event("done"), event, out);
        let event = json!({"item_id": id, "content_index": 0, "part": kind.part(&text)});
        self.send_item("response.content_part.done", event, out);
        self.complete(kind.item(&id, status, &[kind.part(&text)]), out);
    }

    fn send_call(&mut self, ToolCall { id, name, arguments }: &ToolCall, out: &mut EventWriter) {
        self.close(Status::Completed, out);
        let (id, call_id) = (item_id("fc"), id.clone().unwrap_or_else(new_call_id));
        let item = call(&id, &call_id, name, "", Status::InProgress);
        self.send_item("response.output_item.added", json!({"item": item}), out);
        let event = json!({"item_id": id, "delta": arguments});
        self.send_item("response.function_call_arguments.delta", event, out);
        let event = json!({"item_id": id, "name": name, "arguments": arguments});
        self.send_item("response.function_call_arguments.done", event, out);
        self.complete(call(&id, &call_id, name, arguments, Status::Completed), out);
    }

    /// Ends the output, which has at least one item.
    fn finish_output(&mut self, out: &mut EventWriter) {
        if self.output.is_empty() && self.open.is_none() {
            self.send_text(TextKind::Message, "", out);
        }
        self.close(status_of(self.finish), out);
    }

    fn complete(&mut self, item: Value, out: &mut EventWriter) {
        self.send_item("response.output_item.done", json!({"item": item}), out);
        self.output.push(item);
    }
}

impl AnswerForm for ResponsesForm {
    fn whole(&mut self, answers: Vec<Answer>, usage: Usage) -> RouteResult {
        let answer = answers.into_iter().next().unwrap_or_default();
        self.finish = answer.finish;
        let status = status_of(self.finish);
        // The output is that of a stream, of which nothing is sent.
        let mut unsent = EventWriter::default();
        let mut pieces = self.parser.push(&answer.text);
        pieces.extend(self.parser.finish());
        self.send_pieces(pieces, &mut unsent);
        self.finish_output(&mut unsent);
        crate::answer::json(&self.response(status, &self.output, Some(usage)))
    }

    fn event(&mut self, event: TextEvent, out: &mut EventWriter) {
        self.start(out);
        match event {
            TextEvent::Text { text, .. } => {
                let pieces = self.parser.push(&text);
                self.send_pieces(pieces, out);
            }
            TextEvent::End { finish, .. } => {
                self.finish = Some(finish);
                let pieces = self.parser.finish();
                self.send_pieces(pieces, out);
            }
            TextEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, usage: Usage, out: &mut EventWriter) {
        self.finish_output(out);
        let status = status_of(self.finish);
        let name = if status == Status::Incomplete { "response.incomplete" } else { "response.completed" };
        let response = self.response(status, &self.output, Some(usage));
        self.send(name, json!({"response": response}), out);
    }

    fn fail(&mut self, reject: &Reject, out: &mut EventWriter) {
        let error = serde_json::to_value(ErrorBody::new(reject)).unwrap_or_default();
        self.send("error", error.get("error").cloned().unwrap_or_default(), out);
    }
}

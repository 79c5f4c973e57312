//! Answers conversations: `POST /v1/chat/completions`.

use std::sync::Arc;

use chat_template::{AnswerPiece, Conversation, Message};
use hyper::http::request::Parts;
use serde::Serialize;
use serde_json::{Map, Value};

use super::common::{CommonFields, TOP_MAX, new_id, now, out_of_range};
use super::fields::fields;
use super::form::{AnswerForm, EventWriter, Read, read, respond};
use super::generation::{Answer, GenerationPlan, Usage, UsageMember, find_model, required};
use super::logprobs::ChatLogprobs;
use super::response_format::ResponseFormat;
use super::tools::{AnswerParser, AnswerPlan, ParamNames, ToolChoice, ToolOptions, call_value};
use crate::answer::{self, RouteResult};
use crate::body::Upload;
use crate::reject::Reject;
use crate::state::ServerState;
use crate::text::{Finish, TextEvent, TextModel, TokenScore};

fields! {
    /// Body of a request.
    ChatRequest {
        messages: Vec<Message>,
        max_tokens: u64,
        max_completion_tokens: u64,
        logprobs: bool,
        top_logprobs: u64,
        tools: Vec<Value>,
        tool_choice: ToolChoice,
        parallel_tool_calls: bool,
        response_format: ResponseFormat,
        chat_template_kwargs: Map<String, Value>,
        store: bool,
    }
    common: CommonFields
}

/// Answers a request for chats.
pub(super) async fn answer(state: &Arc<ServerState>, parts: &Parts, upload: &mut Upload) -> RouteResult {
    let request: Read<ChatRequest> = read(state, parts, upload).await?;
    let served = find_model(state, request.fields.common.model_name()?)?;
    let model = served.name.clone();
    respond(state, &served, move |text| plan(text, request, model)).await
}

fn plan(
    text: &TextModel,
    Read { fields: mut request, .. }: Read<ChatRequest>,
    model: String,
) -> Result<(GenerationPlan, ChatForm), Reject> {
    let sampling = request.common.sampling(text.forward.vocab())?;
    if request.store == Some(true) {
        return Err(Reject::param("store", "this server stores no answers: `store` can only be false"));
    }
    let has_scores = request.logprobs.unwrap_or(false);
    let top = request.top_logprobs;
    if top.is_some() && !has_scores {
        return Err(Reject::param("top_logprobs", "`top_logprobs` is allowed only with `logprobs`"));
    }
    if let Some(top) = top.filter(|top| *top > TOP_MAX) {
        return Err(out_of_range("top_logprobs", top, &format!("at most {TOP_MAX}")));
    }
    let mut conversation = Conversation::new(required("messages", request.messages)?);
    let tools = ToolOptions {
        tools: request.tools,
        choice: request.tool_choice,
        is_parallel: request.parallel_tool_calls,
    };
    conversation.variables = request.chat_template_kwargs.unwrap_or_default();
    let names = ParamNames { messages: "messages", format: "response_format" };
    let AnswerPlan { prompt, parser, grammar, tokens } =
        tools.plan(text, request.response_format, conversation, names)?;
    let (max_tokens, max_tokens_param) = match request.max_completion_tokens {
        Some(tokens) => (Some(tokens), "max_completion_tokens"),
        None => (request.max_tokens, "max_tokens"),
    };
    let scores = has_scores.then(|| usize::try_from(top.unwrap_or(0)).unwrap_or(usize::MAX));
    let form = ChatForm {
        id: new_id("chatcmpl"),
        created: now(),
        model,
        has_scores,
        includes_usage: sampling.includes_usage,
        started: vec![false; sampling.choices],
        parsers: vec![parser; sampling.choices],
    };
    let plan = GenerationPlan {
        prompts: vec![prompt],
        max_tokens,
        max_tokens_param,
        sampling,
        scores,
        grammar,
        shown: tokens,
    };
    Ok((plan, form))
}

/// Form of the answers to a request.
struct ChatForm {
    id: String,
    created: u64,
    model: String,
    has_scores: bool,
    includes_usage: bool,
    /// True for each choice whose role was sent.
    started: Vec<bool>,
    /// Parser of each choice.
    parsers: Vec<AnswerParser>,
}

#[derive(Serialize)]
struct Chat<'f, C> {
    id: &'f str,
    object: &'static str,
    created: u64,
    model: &'f str,
    choices: Vec<C>,
    /// Absent, null or the usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageMember>,
}

#[derive(Serialize)]
struct WholeChoice {
    index: usize,
    message: AssistantMessage,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<ChatFinish>,
}

#[derive(Serialize)]
struct AssistantMessage {
    role: &'static str,
    content: Option<String>,
    /// What the model wrote for itself, under the name that DeepSeek's and vLLM's servers gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    refusal: (),
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
}

/// Reason for which an answer ended.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ChatFinish {
    Stop,
    Length,
    ToolCalls,
}

impl ChatFinish {
    fn new(finish: Finish, has_calls: bool) -> Self {
        match finish {
            Finish::Length => Self::Length,
            Finish::Stop if has_calls => Self::ToolCalls,
            Finish::Stop => Self::Stop,
        }
    }
}

#[derive(Serialize)]
struct ChunkChoice {
    index: usize,
    delta: Delta,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<ChatFinish>,
}

#[derive(Default, Serialize)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[Value; 1]>,
}

const ASSISTANT: &str = "assistant";

impl ChatForm {
    fn body<C>(&self, object: &'static str, choices: Vec<C>, usage: Option<UsageMember>) -> Chat<'_, C> {
        Chat { id: &self.id, object, created: self.created, model: &self.model, choices, usage }
    }

    fn logprobs(&self, scores: &[TokenScore]) -> Option<ChatLogprobs> {
        self.has_scores.then(|| ChatLogprobs::new(scores))
    }

    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<UsageMember>, out: &mut EventWriter) {
        out.json(&self.body("chat.completion.chunk", choices, usage));
    }

    fn send(
        &mut self,
        index: usize,
        delta: Delta,
        logprobs: Option<ChatLogprobs>,
        finish_reason: Option<ChatFinish>,
        out: &mut EventWriter,
    ) {
        let usage = self.includes_usage.then_some(UsageMember(None));
        if let Some(started) = self.started.get_mut(index).filter(|started| !**started) {
            *started = true;
            let delta = Delta { role: Some(ASSISTANT), content: Some(String::new()), ..Delta::default() };
            self.chunk(vec![ChunkChoice { index, delta, logprobs: None, finish_reason: None }], usage, out);
        }
        self.chunk(vec![ChunkChoice { index, delta, logprobs, finish_reason }], usage, out);
    }
}

impl ChatForm {
    /// Sends parts of an answer, of which the first is sent with the scores.
    fn send_pieces(
        &mut self,
        index: usize,
        pieces: Vec<AnswerPiece>,
        mut logprobs: Option<ChatLogprobs>,
        out: &mut EventWriter,
    ) {
        let calls = self.parsers.get(index).map_or(0, AnswerParser::calls);
        let is_call = |piece: &&AnswerPiece| matches!(piece, AnswerPiece::Call(_));
        let mut number = calls.saturating_sub(pieces.iter().filter(is_call).count());
        for piece in pieces {
            let delta = match piece {
                AnswerPiece::Text(text) => Delta { content: Some(text), ..Delta::default() },
                AnswerPiece::Reasoning(text) => Delta { reasoning_content: Some(text), ..Delta::default() },
                AnswerPiece::Call(call) => {
                    let mut call = call_value(&call);
                    if let Some(call) = call.as_object_mut() {
                        call.shift_insert(0, "index".to_owned(), number.into());
                    }
                    number = number.saturating_add(1);
                    Delta { tool_calls: Some([call]), ..Delta::default() }
                }
            };
            self.send(index, delta, logprobs.take(), None, out);
        }
        if logprobs.is_some() {
            let delta = Delta { content: Some(String::new()), ..Delta::default() };
            self.send(index, delta, logprobs, None, out);
        }
    }
}

impl AnswerForm for ChatForm {
    fn whole(&mut self, answers: Vec<Answer>, usage: Usage) -> RouteResult {
        let mut choices = Vec::with_capacity(answers.len());
        let parsers = std::mem::take(&mut self.parsers);
        for (index, (answer, mut parser)) in answers.into_iter().zip(parsers).enumerate() {
            let (mut content, mut reasoning, mut tool_calls) = (String::new(), String::new(), Vec::new());
            let mut pieces = parser.push(&answer.text);
            pieces.extend(parser.finish());
            for piece in pieces {
                match piece {
                    AnswerPiece::Text(text) => content.push_str(&text),
                    AnswerPiece::Reasoning(text) => reasoning.push_str(&text),
                    AnswerPiece::Call(call) => tool_calls.push(call_value(&call)),
                }
            }
            let has_calls = !tool_calls.is_empty();
            let content = Some(content).filter(|content| !(content.is_empty() && has_calls));
            let reasoning_content = Some(reasoning).filter(|reasoning| !reasoning.is_empty());
            choices.push(WholeChoice {
                index,
                logprobs: self.logprobs(&answer.scores),
                message: AssistantMessage {
                    role: ASSISTANT,
                    content,
                    reasoning_content,
                    refusal: (),
                    tool_calls,
                },
                finish_reason: answer.finish.map(|finish| ChatFinish::new(finish, has_calls)),
            });
        }
        answer::json(&self.body("chat.completion", choices, Some(UsageMember(Some(usage)))))
    }

    fn event(&mut self, event: TextEvent, out: &mut EventWriter) {
        let mut pieces_of = |choice: usize, parse: &mut dyn FnMut(&mut AnswerParser) -> Vec<AnswerPiece>| {
            self.parsers.get_mut(choice).map(parse).unwrap_or_default()
        };
        match event {
            TextEvent::Text { choice, text, scores } => {
                let pieces = pieces_of(choice, &mut |parser| parser.push(&text));
                let logprobs = self.logprobs(&scores).filter(|_| !scores.is_empty());
                self.send_pieces(choice, pieces, logprobs, out);
            }
            TextEvent::End { choice, finish, .. } => {
                let pieces = pieces_of(choice, &mut AnswerParser::finish);
                self.send_pieces(choice, pieces, None, out);
                let has_calls = self.parsers.get(choice).is_some_and(|parser| parser.calls() > 0);
                self.send(choice, Delta::default(), None, Some(ChatFinish::new(finish, has_calls)), out);
            }
            TextEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, usage: Usage, out: &mut EventWriter) {
        if self.includes_usage {
            self.chunk(Vec::new(), Some(UsageMember(Some(usage))), out);
        }
        out.done();
    }
}

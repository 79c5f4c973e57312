//! Answers to requests: whole, or sent while they are generated, as server-sent events.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use serde::Serialize;

use super::error::ErrorBody;
use super::fields::{self, Fields};
use super::generation::{Answer, Generation, GenerationPlan, Usage, engine};
use crate::answer::RouteResult;
use crate::body::{Payload, Upload};
use crate::budget::Charge;
use crate::reject::Reject;
use crate::served_model::{ServedModel, Ticket};
use crate::state::{ServerState, run_blocking, run_by_size};
use crate::text::{TextEvent, TextModel};

/// Form in which a route writes answers.
pub(super) trait AnswerForm: Send + 'static {
    /// Returns the response with all answers.
    ///
    /// # Errors
    /// Returns an error if the response cannot be written.
    fn whole(&mut self, answers: Vec<Answer>, usage: Usage) -> RouteResult;

    /// Writes what is sent for an event of a stream.
    fn event(&mut self, event: TextEvent, out: &mut EventWriter);

    /// Writes what is sent at the end of a stream.
    fn end(&mut self, usage: Usage, out: &mut EventWriter);

    /// Writes what is sent when the model fails in a stream.
    fn fail(&mut self, reject: &Reject, out: &mut EventWriter) {
        out.json(&ErrorBody::new(reject));
    }
}

/// Most bytes that a byte of JSON takes as values: an empty list in a list.
const PARSED_GROWTH: usize = 16;

/// Members of a request, whose memory is charged.
pub(super) struct Read<F> {
    pub(super) fields: F,
    _charge: Charge,
}

/// Reads and parses the body of a request.
///
/// # Errors
/// Returns an error if the server shuts down, or the body is not such a request.
pub(super) async fn read<F: Fields + Send + 'static>(
    state: &ServerState,
    parts: &Parts,
    upload: &mut Upload,
) -> Result<Read<F>, Reject> {
    if state.is_draining() {
        return Err(Reject::draining());
    }
    let body = state.body(parts, upload).await?;
    // What a small text describes may take more memory than the text.
    let mut charge = state.budget.charge();
    if !charge.grow(body.len().saturating_mul(PARSED_GROWTH)) {
        return Err(Reject::no_memory(&state.limits));
    }
    let fields = run_by_size(body.len(), move || fields::parse(&body)).await??;
    Ok(Read { fields, _charge: charge })
}

/// Generates what `prepare` plans, and answers in its form.
///
/// # Errors
/// Returns the errors of `prepare`, and an error if there is no room, or if the model fails before it says anything.
pub(super) async fn respond<F: AnswerForm>(
    state: &ServerState,
    served: &Arc<ServedModel>,
    prepare: impl FnOnce(&TextModel) -> Result<(GenerationPlan, F), Reject> + Send + 'static,
) -> RouteResult {
    let mut ticket = served.ticket();
    match begin(state, served, prepare).await {
        Ok(Begun::Stream(generation, form)) => Ok(stream(generation, form, ticket)),
        Ok(Begun::Whole(response, usage)) => {
            ticket.count(|counts| counts.count_text(usage.prompt_tokens, usage.completion_tokens));
            ticket.record_success();
            Ok(response)
        }
        Err(reject) => {
            ticket.set_failure_reason(reject.reason);
            Err(reject)
        }
    }
}

/// Response whose status is known.
enum Begun<F> {
    Stream(Generation, F),
    Whole(Response<Payload>, Usage),
}

async fn begin<F: AnswerForm>(
    state: &ServerState,
    served: &ServedModel,
    prepare: impl FnOnce(&TextModel) -> Result<(GenerationPlan, F), Reject> + Send + 'static,
) -> Result<Begun<F>, Reject> {
    let engine = engine(served)?;
    let text = engine.model.clone();
    let (plan, mut form) = run_blocking(move || prepare(&text)).await??;
    let is_stream = plan.sampling.is_stream;
    let mut generation = plan.start(state, engine)?;
    if is_stream {
        generation.wait().await?;
        return Ok(Begun::Stream(generation, form));
    }
    let answers = generation.collect().await?;
    Ok(Begun::Whole(form.whole(answers, generation.usage)?, generation.usage))
}

/// Writer of server-sent events.
#[derive(Debug, Default)]
pub(super) struct EventWriter(Vec<u8>);

impl EventWriter {
    /// Writes an event whose data is JSON.
    pub(super) fn json(&mut self, data: &impl Serialize) {
        self.0.extend_from_slice(b"data: ");
        // Structs of texts and numbers always serialise.
        self.0.extend(serde_json::to_vec(data).unwrap_or_default());
        self.0.extend_from_slice(b"\n\n");
    }

    /// Writes an event with a name.
    pub(super) fn named(&mut self, name: &str, data: &impl Serialize) {
        self.0.extend_from_slice(b"event: ");
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'\n');
        self.json(data);
    }

    /// Writes the event that ends a stream.
    pub(super) fn done(&mut self) {
        self.0.extend_from_slice(b"data: [DONE]\n\n");
    }
}

/// Returns a response that sends the answers while they are generated. `ticket` counts the request when it has ended.
fn stream(mut generation: Generation, mut form: impl AnswerForm, ticket: Ticket) -> Response<Payload> {
    let (mut ticket, mut is_over) = (Some(ticket), false);
    let live = move |cx: &mut Context<'_>| {
        let mut out = EventWriter::default();
        // What is there already is sent together.
        while !is_over {
            match generation.poll(cx) {
                Poll::Ready(Ok(Some(event))) => form.event(event, &mut out),
                Poll::Ready(Ok(None)) => {
                    form.end(generation.usage, &mut out);
                    is_over = true;
                    if let Some(ticket) = ticket.take() {
                        let Usage { prompt_tokens, completion_tokens, .. } = generation.usage;
                        ticket.count(|counts| counts.count_text(prompt_tokens, completion_tokens));
                        ticket.record_success();
                    }
                }
                Poll::Ready(Err(reject)) => {
                    if let Some(ticket) = &mut ticket {
                        ticket.set_failure_reason(reject.reason);
                    }
                    form.fail(&reject, &mut out);
                    is_over = true;
                }
                Poll::Pending if out.0.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready((!out.0.is_empty()).then(|| Bytes::from(out.0)))
    };
    let mut response = Response::new(Payload::live(Box::new(live)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

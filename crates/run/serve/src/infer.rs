//! Runs inference requests: reads and parses the body, waits for the model, and writes the outputs in the requested form.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::Response;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use kserve::{HEADER_LENGTH, InferRequest, InferResponse, ModelConfig, OutputTensor, RequestedOutput};

use crate::answer::RouteResult;
use crate::body::{Payload, Upload};
use crate::encoding::ContentEncoding;
use crate::reject::Reject;
use crate::route::ModelTarget;
use crate::served_model::{ServedModel, Ticket};
use crate::state::{ServerState, run_by_size};

/// Answers an inference request, and counts its success or failure.
pub(crate) async fn infer(
    state: &Arc<ServerState>,
    parts: &Parts,
    upload: &mut Upload,
    target: &ModelTarget,
) -> RouteResult {
    let served = state.registry.find(target).map_err(|error| Reject::kserve(&error))?;
    let mut ticket = served.ticket();
    let answer = run(state, parts, upload, &served, &ticket).await;
    match &answer {
        Ok(_) => ticket.record_success(),
        Err(reject) => ticket.set_failure_reason(reject.reason),
    }
    answer
}

async fn run(
    state: &Arc<ServerState>,
    parts: &Parts,
    upload: &mut Upload,
    served: &Arc<ServedModel>,
    ticket: &Ticket,
) -> RouteResult {
    if state.is_draining() {
        return Err(Reject::draining());
    }
    let header_length = header_length(&parts.headers)?;
    let body = state.body(parts, upload).await?;

    let started = Instant::now();
    let config = served.config.clone();
    let request = run_by_size(body.len(), move || parse(&body, header_length.as_deref(), &config)).await??;
    let input = started.elapsed();

    // Inputs given as JSON have memory of their own; binary inputs are slices of the body.
    let inputs = request.inputs.iter().filter(|input| !input.is_binary).map(|input| input.data.len());
    let mut charge = state.budget.charge();
    if !charge.grow(inputs.fold(0, usize::saturating_add)) {
        return Err(Reject::no_memory(&state.limits));
    }
    let asked = RequestContext::new(&request, &served.config);
    let reply = served.submit(request, charge).map_err(|error| Reject::kserve(&error))?;
    let reply = reply.reply().await.ok_or_else(|| Reject::internal("the model has ended"))?;
    let outputs = reply.outputs.map_err(|failure| Reject::failure(&served.name, &failure))?;
    ticket.count(|counts| counts.count_run(asked.batch, reply.queue, input, reply.infer));

    let started = Instant::now();
    let response = write_response(state, parts, served, asked, outputs).await?;
    ticket.count(|counts| counts.count_response(started.elapsed()));
    Ok(response)
}

/// Parts of a request that are needed after its model has run.
struct RequestContext {
    id: Option<String>,
    outputs: Vec<RequestedOutput>,
    batch: u64,
}

impl RequestContext {
    fn new(request: &InferRequest, config: &ModelConfig) -> Self {
        let first = request.inputs.first().and_then(|input| input.shape.first().copied());
        Self {
            id: request.id.clone(),
            outputs: request.outputs.clone(),
            batch: first.filter(|_| config.has_batch_dimension()).unwrap_or(1),
        }
    }
}

fn parse(body: &Bytes, header_length: Option<&[u8]>, config: &ModelConfig) -> Result<InferRequest, Reject> {
    InferRequest::parse(body, header_length, config).map_err(|error| Reject::kserve(&error))
}

/// Writes the body of a response, compressed if the client accepts that.
async fn write_response(
    state: &Arc<ServerState>,
    parts: &Parts,
    served: &Arc<ServedModel>,
    asked: RequestContext,
    outputs: Vec<OutputTensor>,
) -> RouteResult {
    let outputs = order_outputs(&asked.outputs, outputs, &served.name)?;
    let as_json = outputs.iter().filter(|output| !output.is_binary).map(|output| output.data.len());
    let as_json = as_json.fold(0, usize::saturating_add);
    if as_json > state.limits.json {
        let allowed = state.limits.json;
        return Err(Reject::bad_request(format!(
            "{as_json} bytes of outputs would be written as JSON, and {allowed} are allowed; ask for binary_data"
        )));
    }
    let held = served.memory(&outputs);
    let mut charge = state.budget.charge();
    if !charge.grow(held) {
        return Err(Reject::no_memory(&state.limits));
    }
    let answered = InferResponse {
        model_name: served.name.clone(),
        model_version: served.version.to_string(),
        id: asked.id,
        parameters: Vec::new(),
        outputs,
    };
    let accepted = parts.headers.get_all(ACCEPT_ENCODING).iter();
    let encoding = ContentEncoding::negotiate(accepted.filter_map(|value| value.to_str().ok()));
    let limit = state.limits.json;
    let printed = run_by_size(as_json, move || answered.to_body()).await?;
    let body = printed.map_err(|error| Reject::kserve(&error))?;
    let (header_length, content_type, total) = (body.header_length, body.content_type(), body.len());
    let text = if as_json == 0 { 0 } else { body.parts.first().map_or(0, Bytes::len) };
    if !charge.grow(text) {
        return Err(Reject::no_memory(&state.limits));
    }
    let encoding = if total > limit { ContentEncoding::Identity } else { encoding };
    let parts = match encoding {
        ContentEncoding::Identity => charge.attach_all(body.parts),
        encoding => {
            let compressed = run_by_size(total, move || encoding.compress(&body.parts)).await?;
            let compressed = compressed.map_err(|error| Reject::internal(error.to_string()))?;
            vec![charge.attach(compressed)]
        }
    };
    let mut response = Response::new(Payload::new(parts));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if encoding != ContentEncoding::Identity {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding.name()));
    }
    if let Some(length) = header_length
        && let Ok(name) = HeaderName::from_bytes(HEADER_LENGTH.as_bytes())
    {
        headers.insert(name, HeaderValue::from(length));
    }
    Ok(response)
}

/// Orders the outputs as the request lists them, in the requested form, followed by the outputs that it implies.
fn order_outputs(
    asked: &[RequestedOutput],
    outputs: Vec<OutputTensor>,
    model: &str,
) -> Result<Vec<OutputTensor>, Reject> {
    let names: Vec<String> = outputs.iter().map(|output| output.name.clone()).collect();
    let mut by_name: HashMap<String, OutputTensor> =
        outputs.into_iter().map(|output| (output.name.clone(), output)).collect();
    let mut ordered = Vec::with_capacity(names.len());
    for wanted in asked {
        let Some(output) = by_name.remove(&wanted.name) else {
            let (model, name) = (model.escape_debug(), wanted.name.escape_debug());
            return Err(Reject::internal(format!("model `{model}` did not return its output `{name}`")));
        };
        ordered.push(OutputTensor { is_binary: wanted.is_binary, ..output });
    }
    ordered.extend(names.iter().filter_map(|name| by_name.remove(name)));
    Ok(ordered)
}

/// Reads the header that gives the length of the JSON before the binary data.
fn header_length(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Reject> {
    let mut values = headers.get_all(HEADER_LENGTH).iter();
    let (value, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(Reject::bad_request(format!("there are several headers {HEADER_LENGTH}")));
    }
    Ok(value.map(|value| value.as_bytes().to_vec()))
}

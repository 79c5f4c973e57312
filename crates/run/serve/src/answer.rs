//! Responses of routes: JSON, bytes, and none.

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::body::Payload;
use crate::reject::Reject;

pub(crate) type RouteResult = Result<Response<Payload>, Reject>;

pub(crate) fn response(
    content_type: &'static str,
    parts: impl IntoIterator<Item = Bytes>,
) -> Response<Payload> {
    let mut response = Response::new(Payload::new(parts));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Answers with JSON that a person reads: each member is on a line.
pub(crate) fn pretty_json(value: &impl Serialize) -> RouteResult {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| Reject::internal(error.to_string()))?;
    text.push(b'\n');
    Ok(response("application/json", [Bytes::from(text)]))
}

pub(crate) fn json(value: &impl Serialize) -> RouteResult {
    let text = serde_json::to_vec(value).map_err(|error| Reject::internal(error.to_string()))?;
    Ok(response("application/json", [Bytes::from(text)]))
}

pub(crate) fn empty(status: StatusCode) -> Response<Payload> {
    let mut response = Response::new(Payload::default());
    *response.status_mut() = status;
    response
}

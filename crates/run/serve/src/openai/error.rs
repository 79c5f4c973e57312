//! Errors in OpenAI's form.
//!
//! Facts: the error object of OpenAI's reference, whose four members are always there.

use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::body::Payload;
use crate::reject::{Reject, TOO_LARGE};

/// Seconds after which a client may ask again when there was no room.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// Body of an error.
#[derive(Debug, Serialize)]
pub(super) struct ErrorBody<'r> {
    error: ErrorObject<'r>,
}

#[derive(Debug, Serialize)]
struct ErrorObject<'r> {
    message: &'r str,
    r#type: &'static str,
    param: Option<&'r str>,
    code: Option<&'static str>,
}

impl<'r> ErrorBody<'r> {
    pub(super) fn new(reject: &'r Reject) -> Self {
        let r#type = match status(reject) {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        let error =
            ErrorObject { message: &reject.error, r#type, param: reject.param.as_deref(), code: reject.code };
        Self { error }
    }
}

/// Returns OpenAI's status where it is not Triton's.
fn status(reject: &Reject) -> StatusCode {
    match reject.status {
        StatusCode::SERVICE_UNAVAILABLE => StatusCode::TOO_MANY_REQUESTS,
        _ if reject.code == Some(TOO_LARGE) => StatusCode::PAYLOAD_TOO_LARGE,
        status => status,
    }
}

/// Returns the response to a request below `/v1` that is refused.
pub(crate) fn error_response(reject: &Reject) -> Response<Payload> {
    let status = status(reject);
    let mut response = reject.response_with(status, &ErrorBody::new(reject));
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    response
}

//! Error responses: a status, an error text, and the reason for the statistics.

use bytes::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Method, Response, StatusCode};
use kserve::ErrorBody;
use serde::Serialize;

use crate::body::{BodyError, Payload};
use crate::counts::FailureReason;
use crate::encoding::InflateError;
use crate::model::ModelError;
use crate::options::ServeLimits;
use crate::reply::InferFailure;

#[derive(Clone, Debug)]
pub(crate) struct Reject {
    pub(crate) status: StatusCode,
    pub(crate) error: String,
    pub(crate) reason: FailureReason,
    /// Member of the request that is wrong, and OpenAI's code of the error.
    pub(crate) param: Option<Box<str>>,
    pub(crate) code: Option<&'static str>,
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl Reject {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        let reason = match status {
            StatusCode::SERVICE_UNAVAILABLE => FailureReason::Rejected,
            StatusCode::INTERNAL_SERVER_ERROR => FailureReason::Backend,
            _ => FailureReason::Other,
        };
        Self { status, error: error.into(), reason, param: None, code: None, header: None }
    }

    pub(crate) fn bad_request(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// Refuses the member `param` of a request to OpenAI's routes.
    pub(crate) fn param(param: &str, error: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::bad_request(error) }
    }

    pub(crate) fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(crate) fn unauthorized(error: &str) -> Self {
        let header = Some(Box::new((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))));
        Self { header, ..Self::new(StatusCode::UNAUTHORIZED, error).with_code("invalid_api_key") }
    }

    pub(crate) fn method(allowed: &Method) -> Self {
        let header = HeaderValue::from_str(allowed.as_str()).ok().map(|allowed| Box::new((ALLOW, allowed)));
        let error = format!("this path takes {allowed}");
        Self { header, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, error) }
    }

    pub(crate) fn encoding(name: &str) -> Self {
        let header = Some(Box::new((ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate"))));
        let error = kserve::Error::UnknownEncoding { encoding: name.to_owned() };
        Self { header, ..Self::kserve(&error) }
    }

    pub(crate) fn draining() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")
    }

    pub(crate) fn no_memory(limits: &ServeLimits) -> Self {
        let error = format!("requests in flight already hold {} bytes; try again later", limits.memory);
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    pub(crate) fn unread(unread: BodyError, limits: &ServeLimits) -> Self {
        match unread {
            BodyError::TooLarge => too_large("body", limits),
            BodyError::NoMemory => Self::no_memory(limits),
            BodyError::TooSlow => Self::new(StatusCode::REQUEST_TIMEOUT, "the body arrives too slowly"),
            BodyError::Broken => Self {
                // Nearly always, the client went away.
                reason: FailureReason::Cancelled,
                ..Self::bad_request("the body ends early, or is not chunked correctly")
            },
        }
    }

    pub(crate) fn inflate(inflate: &InflateError, limits: &ServeLimits) -> Self {
        match inflate {
            InflateError::TooLarge => too_large("decompressed body", limits),
            InflateError::NoMemory => Self::no_memory(limits),
            InflateError::Damaged(error) => Self::bad_request(format!("cannot decompress the body: {error}")),
            InflateError::Trailing => {
                Self::bad_request("cannot decompress the body: bytes follow the compressed ones")
            }
        }
    }

    pub(crate) fn kserve(error: &kserve::Error) -> Self {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        Self::new(status, error.to_string())
    }

    pub(crate) fn failure(model: &str, failure: &InferFailure) -> Self {
        match failure {
            InferFailure::Model(ModelError::Input(error)) => Self::bad_request(error.to_string()),
            InferFailure::Model(ModelError::Cancelled) => {
                let error = ModelError::Cancelled.to_string();
                Self { reason: FailureReason::Cancelled, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, error) }
            }
            InferFailure::Model(error) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            InferFailure::TimedOut { time } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "model `{}` computed for {} s, which is the most that a request may take; send fewer tokens",
                    model.escape_debug(),
                    time.as_secs_f64()
                ),
            ),
            InferFailure::Panic(message) => {
                let error = format!("model `{}` panicked: {message}", model.escape_debug());
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
            }
        }
    }

    pub(crate) fn internal(error: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }

    pub(crate) fn response(&self) -> Response<Payload> {
        self.response_with(self.status, &ErrorBody { error: self.error.clone() })
    }

    /// Returns the response with this status and body.
    pub(crate) fn response_with(&self, status: StatusCode, body: &impl Serialize) -> Response<Payload> {
        // A struct of texts always serialises.
        let body = serde_json::to_vec(body).unwrap_or_default();
        let mut response = Response::new(Payload::new([Bytes::from(body)]));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some((name, value)) = self.header.as_deref() {
            response.headers_mut().insert(name, value.clone());
        }
        if status == StatusCode::REQUEST_TIMEOUT {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Code of a body that is too large, which OpenAI's routes answer with 413.
pub(crate) const TOO_LARGE: &str = "request_too_large";

fn too_large(what: &str, limits: &ServeLimits) -> Reject {
    // Triton's status, rather than 413.
    Reject::bad_request(format!("the {what} is larger than the {} bytes that are allowed", limits.body))
        .with_code(TOO_LARGE)
}

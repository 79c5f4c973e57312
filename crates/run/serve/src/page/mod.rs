//! Page for browsers, which talks to the models of this server.
//!
//! It loads nothing from elsewhere, and its policy lets it send requests to this server alone.

use bytes::Bytes;
use hyper::Response;
use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};

use crate::answer::response;
use crate::body::Payload;

/// File of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageFile {
    Script,
    Style,
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Returns true if a client prefers a page: it lists HTML among the types that it accepts.
pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted
        .any(|accepted| accepted.split([',', ';']).any(|kind| kind.trim().eq_ignore_ascii_case("text/html")))
}

/// Returns the page, which loads the other files.
pub(crate) fn page() -> Response<Payload> {
    let mut page = file("text/html; charset=utf-8", include_str!("page.html"));
    page.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    page
}

impl PageFile {
    /// Returns the file with its type.
    pub(crate) fn response(self) -> Response<Payload> {
        match self {
            Self::Script => file("text/javascript; charset=utf-8", include_str!("page.js")),
            Self::Style => file("text/css; charset=utf-8", include_str!("page.css")),
        }
    }
}

fn file(content_type: &'static str, text: &'static str) -> Response<Payload> {
    let mut response = response(content_type, [Bytes::from_static(text.as_bytes())]);
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

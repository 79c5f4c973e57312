//! Check that a response holds the requested bytes.

use ureq::Body;
use ureq::http::Response;
use url::Url;

use super::failure::DownloadFailure;
use crate::Error;

/// Response with the whole file or with the rest of it.
pub(super) struct AcceptedResponse {
    /// True if the body continues at the requested offset; otherwise it is the whole file.
    pub(super) is_resumed: bool,
    /// Length of the body in bytes, if the server reports it and the body is not encoded.
    pub(super) len: Option<u64>,
    /// Content encoding in lower case.
    pub(super) encoding: String,
    pub(super) body: Body,
}

/// Accepts a response with the whole file, or with the part from `start` on.
pub(super) fn accept(
    url: &Url,
    response: Response<Body>,
    start: u64,
) -> Result<AcceptedResponse, DownloadFailure> {
    let encoding = header(&response, "content-encoding").unwrap_or("identity").to_ascii_lowercase();
    let is_plain = matches!(encoding.as_str(), "identity" | "");
    let range = header(&response, "content-range").unwrap_or_default();
    let status = response.status().as_u16();
    let resumes = status == 206 && is_plain && range.starts_with(&format!("bytes {start}-"));
    let error = Error::Status { url: url.to_string(), status };
    match status {
        200 => {}
        206 if start > 0 && resumes => {}
        // The server cannot resume from here.
        206 | 416 if start > 0 => return Err(DownloadFailure::Restart(error)),
        _ => return Err(DownloadFailure::Final(error)),
    }
    // The length of an encoded body says nothing about the file.
    let len = header(&response, "content-length").filter(|_| is_plain).and_then(|len| len.parse().ok());
    Ok(AcceptedResponse { is_resumed: resumes, len, encoding, body: response.into_body() })
}

pub(super) fn header<'r>(response: &'r Response<Body>, name: &str) -> Option<&'r str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

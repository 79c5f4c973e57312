//! Whether an answer has the bytes that were asked for.

use ureq::Body;
use ureq::http::Response;
use url::Url;

use super::failure::Failure;
use crate::Error;

/// An answer with the file in it, or with the rest of the file.
pub(super) struct Accepted {
    /// Whether the bytes go on from where they were asked for; otherwise they are the whole file.
    pub(super) resumes: bool,
    /// How many bytes will come, if the server reports it.
    pub(super) len: Option<u64>,
    /// The content encoding, in lower case.
    pub(super) encoding: String,
    pub(super) body: Body,
}

/// Accepts the whole file, or the part of it from `start` on.
pub(super) fn accept(url: &Url, response: Response<Body>, start: u64) -> Result<Accepted, Failure> {
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
        206 | 416 if start > 0 => return Err(Failure::Restart(error)),
        _ => return Err(Failure::Final(error)),
    }
    // The length of what is encoded says nothing about the file.
    let len = header(&response, "content-length").filter(|_| is_plain).and_then(|len| len.parse().ok());
    Ok(Accepted { resumes, len, encoding, body: response.into_body() })
}

pub(super) fn header<'r>(response: &'r Response<Body>, name: &str) -> Option<&'r str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

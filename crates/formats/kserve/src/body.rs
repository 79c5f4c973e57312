//! Bodies: JSON, then the bytes of the tensors that are sent as bytes.
//!
//! Facts: `extension_binary_data.md`.

use bytes::Bytes;

use crate::data;
use crate::error::{Error, Place, Result};
use crate::problem::shortened;

/// The body of a response or a request, in parts that are sent one after the other: the JSON, then the binary tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// The value of [`HEADER_LENGTH`](crate::HEADER_LENGTH); `None` if the body is only JSON, which is sent without the header.
    pub header_length: Option<usize>,
    /// The parts. Tensors are not copied.
    pub parts: Vec<Bytes>,
}

impl Body {
    /// The bytes of all parts together: the value of `Content-Length`.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).fold(0, usize::saturating_add)
    }

    /// Whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `Content-Type`.
    pub fn content_type(&self) -> &'static str {
        if self.header_length.is_some() { "application/octet-stream" } else { "application/json" }
    }

    /// The JSON with the tensors that follow it.
    pub(crate) fn new<'d>(json: Vec<u8>, tensors: impl Iterator<Item = &'d Bytes>) -> Self {
        let len = json.len();
        let mut parts = vec![Bytes::from(json)];
        parts.extend(tensors.filter(|data| !data.is_empty()).cloned());
        Self { header_length: (parts.len() > 1).then_some(len), parts }
    }
}

/// A body that was received.
pub(crate) enum Received {
    /// The whole body is the bytes of one tensor.
    Raw(Bytes),
    /// The body is JSON, and bytes after it.
    Json(Bytes, Blobs),
}

impl Received {
    /// Splits a body. `header_length` is the value of [`HEADER_LENGTH`](crate::HEADER_LENGTH), if the header was sent.
    pub(crate) fn new(body: &Bytes, header_length: Option<&[u8]>) -> Result<Self> {
        let Some(value) = header_length else {
            return if body.is_empty() {
                Err(Error::Empty)
            } else {
                Ok(Self::Json(body.clone(), Blobs { rest: Bytes::new() }))
            };
        };
        // Only digits: `usize` also reads a sign.
        let digits =
            std::str::from_utf8(value).ok().filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|digits| digits.parse().ok()).filter(|&len| len <= body.len()) {
            Some(0) => Ok(Self::Raw(body.clone())),
            Some(len) => Ok(Self::Json(body.slice(..len), Blobs { rest: body.slice(len..) })),
            None => {
                let found = shortened(&String::from_utf8_lossy(value));
                Err(Error::HeaderLength { found, body: body.len() })
            }
        }
    }
}

/// The bytes after the JSON that no tensor has taken yet.
pub(crate) struct Blobs {
    rest: Bytes,
}

impl Blobs {
    /// The bytes of the next tensor, a slice of the body.
    pub(crate) fn take(&mut self, tensor: &Place, size: u64) -> Result<Bytes> {
        match usize::try_from(size).ok().filter(|&size| size <= self.rest.len()) {
            Some(size) => Ok(self.rest.split_to(size)),
            None => {
                Err(Error::Cut { tensor: tensor.clone(), expected: size, found: data::length(&self.rest) })
            }
        }
    }

    /// Checks that all bytes were taken.
    pub(crate) fn end(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Error::LeftOver { found: data::length(&self.rest) }) }
    }
}

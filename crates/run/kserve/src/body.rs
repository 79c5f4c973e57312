//! Message bodies: JSON, followed by the data of the binary tensors.
//!
//! Facts: `extension_binary_data.md`.

use bytes::Bytes;

use crate::data;
use crate::error::{Error, Result, TensorLabel};
use crate::json_problem::truncate_for_message;

/// Body of a request or response as a sequence of parts: the JSON, then the data of each binary tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// Value of the header [`HEADER_LENGTH`](crate::HEADER_LENGTH); `None` for a body of only JSON, sent without it.
    pub header_length: Option<usize>,
    /// Parts in the order of sending. Tensor data is shared with the tensors, not copied.
    pub parts: Vec<Bytes>,
}

impl Body {
    /// Returns the total length of the parts in bytes, the value of `Content-Length`.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).fold(0, usize::saturating_add)
    }

    /// Returns true if the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of `Content-Type`: `application/octet-stream` with binary tensors, `application/json` without.
    pub fn content_type(&self) -> &'static str {
        if self.header_length.is_some() { "application/octet-stream" } else { "application/json" }
    }

    /// Assembles a body from the JSON and the data of the binary tensors. Empty tensors get no part.
    pub(crate) fn new<'d>(json: Vec<u8>, tensors: impl Iterator<Item = &'d Bytes>) -> Self {
        let len = json.len();
        let mut parts = vec![Bytes::from(json)];
        parts.extend(tensors.filter(|data| !data.is_empty()).cloned());
        Self { header_length: (parts.len() > 1).then_some(len), parts }
    }
}

/// A received body, split at the end of its JSON.
pub(crate) enum ReceivedBody {
    /// A raw request: the whole body is the data of one tensor.
    Raw(Bytes),
    /// The JSON part of the body, and the binary tensor data after it.
    Json(Bytes, BinaryTensorData),
}

impl ReceivedBody {
    /// Splits a body into JSON and binary data. `header_length` is the value of the header
    /// [`HEADER_LENGTH`](crate::HEADER_LENGTH), if the header was sent.
    pub(crate) fn new(body: &Bytes, header_length: Option<&[u8]>) -> Result<Self> {
        let Some(value) = header_length else {
            return if body.is_empty() {
                Err(Error::Empty)
            } else {
                Ok(Self::Json(body.clone(), BinaryTensorData { rest: Bytes::new() }))
            };
        };
        // Only digits: `usize::from_str` also accepts a plus sign.
        let digits =
            std::str::from_utf8(value).ok().filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|digits| digits.parse().ok()).filter(|&len| len <= body.len()) {
            Some(0) => Ok(Self::Raw(body.clone())),
            Some(len) => Ok(Self::Json(body.slice(..len), BinaryTensorData { rest: body.slice(len..) })),
            None => {
                let found = truncate_for_message(&String::from_utf8_lossy(value));
                Err(Error::HeaderLength { found, body: body.len() })
            }
        }
    }
}

/// Binary data after the JSON that is not yet assigned to a tensor.
pub(crate) struct BinaryTensorData {
    rest: Bytes,
}

impl BinaryTensorData {
    /// Takes the next `size` bytes as the data of `tensor`, a slice of the body.
    pub(crate) fn split_tensor(&mut self, tensor: &TensorLabel, size: u64) -> Result<Bytes> {
        match usize::try_from(size).ok().filter(|&size| size <= self.rest.len()) {
            Some(size) => Ok(self.rest.split_to(size)),
            None => Err(Error::TruncatedBody {
                tensor: tensor.clone(),
                expected: size,
                found: data::length_u64(&self.rest),
            }),
        }
    }

    /// Checks that no binary data is left over.
    pub(crate) fn finish_binary_data(self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Error::TrailingBodyData { found: data::length_u64(&self.rest) })
        }
    }
}

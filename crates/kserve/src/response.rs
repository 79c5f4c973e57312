//! An inference response: the body of the answer to `POST /v2/models/M/infer`.
//!
//! Facts: "Inference Response JSON Object" in the protocol's `required_api.md`, `extension_binary_data.md`.

use bytes::Bytes;

use crate::{Datatype, Parameters};

/// An inference response.
#[derive(Clone, Debug, PartialEq)]
pub struct InferResponse {
    /// The model.
    pub model_name: String,
    /// Its version.
    pub model_version: String,
    /// What the client calls the request.
    pub id: Option<String>,
    /// Parameters.
    pub parameters: Parameters,
    /// The outputs, in the order of the request.
    pub outputs: Vec<Output>,
}

/// A tensor of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Its datatype.
    pub datatype: Datatype,
    /// Its sizes in elements, with the batch dimension if the model batches.
    pub shape: Vec<u64>,
    /// The parameters other than those of the binary tensor data extension.
    pub parameters: Parameters,
    /// Its elements, laid out as those of an [`Input`](crate::Input).
    pub data: Bytes,
    /// Whether it is sent as bytes after the JSON; otherwise as JSON.
    pub binary: bool,
}

/// The body of a response or a request, in parts that are sent one after the other: the JSON, then the binary tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// The value of [`HEADER_LENGTH`](crate::HEADER_LENGTH); none if the body is only JSON, which has no such header.
    pub header_length: Option<usize>,
    /// The parts. Tensors are not copied.
    pub parts: Vec<Bytes>,
}

impl Body {
    /// The bytes of all parts together: the value of `Content-Length`.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).fold(0, usize::saturating_add)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `Content-Type`.
    pub fn content_type(&self) -> &'static str {
        if self.header_length.is_some() { "application/octet-stream" } else { "application/json" }
    }
}

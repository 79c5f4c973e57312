//! An inference request: the body of `POST /v2/models/M/infer`.
//!
//! Facts: "Inference Request JSON Object" in the protocol's `required_api.md`, `extension_binary_data.md`.

use bytes::Bytes;

use crate::{Datatype, Parameters};

/// An inference request.
#[derive(Clone, Debug, PartialEq)]
pub struct InferRequest {
    /// What the client calls this request; its response carries it too.
    pub id: Option<String>,
    /// The parameters other than those of the binary tensor data extension.
    pub parameters: Parameters,
    /// The inputs, in the order of the request.
    pub inputs: Vec<Input>,
    /// The outputs to send back, in this order, each once. If the request lists none, these are all that the model has.
    pub outputs: Vec<RequestedOutput>,
}

/// A tensor of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Its datatype.
    pub datatype: Datatype,
    /// Its sizes in elements, with the batch dimension if the model batches.
    pub shape: Vec<u64>,
    /// The parameters other than those of the binary tensor data extension.
    pub parameters: Parameters,
    /// Its elements in the layout of the extension: little-endian, row-major, without gaps; BOOL as bytes of 0 and 1; BYTES
    /// as a length of four bytes, then the bytes, for each element. A slice of the body if it was sent as bytes, so its
    /// address can be any.
    pub data: Bytes,
    /// Whether it is sent as bytes after the JSON; otherwise as JSON.
    pub binary: bool,
}

/// An output to send back.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedOutput {
    /// Its name.
    pub name: String,
    /// The parameters other than those of the binary tensor data extension.
    pub parameters: Parameters,
    /// Whether to send it as bytes after the JSON; otherwise as JSON.
    pub binary: bool,
}

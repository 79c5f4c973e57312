//! The KServe v2 inference protocol (Open Inference Protocol) over HTTP, with Triton's binary tensor data extension, as
//! types without I/O.
//!
//! A server reads a body and gives it to [`InferRequest::parse`] together with the [`ModelConfig`] of the model that the path
//! names. What comes back fits the model: names, datatypes, ranks and sizes are checked, and every requested output is
//! resolved to its name and the form in which it is to be sent. [`InferResponse::print`] makes the body of the answer.
//! Tensors are [`Bytes`](bytes::Bytes) in the layout of the extension, whether they came as JSON or as bytes: little-endian,
//! row-major, without gaps. Those that came as bytes are slices of the body.
//!
//! Facts: `docs/protocol/extension_binary_data.md` and `docs/protocol/README.md` of Triton's server, the Open Inference
//! Protocol of KServe, and answers of Triton 2.51.

mod align;
mod body;
mod check;
mod config;
mod data;
mod datatype;
mod error;
mod json;
mod metadata;
mod parameter;
mod raw;
mod repository;
mod request;
mod response;
mod statistics;
mod tensor;
mod write;

pub use align::aligned;
pub use body::Body;
pub use config::{ModelConfig, TensorConfig};
pub use data::{from_texts, texts};
pub use datatype::Datatype;
pub use error::{Error, ErrorBody, JsonProblem, Kind, Place, Result};
pub use metadata::{EXTENSIONS, ModelMetadata, ServerMetadata, TensorMetadata};
pub use parameter::{Parameter, Parameters};
pub use repository::{IndexEntry, State};
pub use request::{InferRequest, RequestedOutput};
pub use response::InferResponse;
pub use statistics::{BatchStatistics, Duration, InferStatistics, ModelStatistics, Statistics};
pub use tensor::Tensor;

/// A tensor of a request.
pub type Input = Tensor;

/// A tensor of a response.
pub type Output = Tensor;

/// The header that separates the JSON of a body from the tensors' bytes: the length of the JSON in bytes.
pub const HEADER_LENGTH: &str = "Inference-Header-Content-Length";

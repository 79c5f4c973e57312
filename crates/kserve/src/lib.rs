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

mod config;
mod datatype;
mod error;
mod metadata;
mod parameter;
mod repository;
mod request;
mod response;
mod statistics;

pub use config::{ModelConfig, TensorConfig};
pub use datatype::Datatype;
pub use error::{Error, ErrorBody, Result};
pub use metadata::{EXTENSIONS, ModelMetadata, ServerMetadata, TensorMetadata};
pub use parameter::{Parameter, Parameters};
pub use repository::{IndexEntry, State};
pub use request::{InferRequest, Input, RequestedOutput};
pub use response::{Body, InferResponse, Output};
pub use statistics::{BatchStatistics, Duration, InferStatistics, ModelStatistics, Statistics};

/// The header that separates the JSON of a body from the tensors' bytes: the length of the JSON in bytes.
pub const HEADER_LENGTH: &str = "Inference-Header-Content-Length";

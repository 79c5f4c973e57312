//! The KServe v2 inference protocol (Open Inference Protocol) over HTTP, with Triton's binary tensor data extension, as
//! types without I/O.
//!
//! A server passes the request body to [`InferRequest::parse`] together with the [`ModelConfig`] of the model that the URL
//! path names. The returned request fits the model: names, datatypes, ranks and sizes are checked, and every requested
//! output is resolved to its name and encoding, JSON or binary. [`InferResponse::to_body`] writes the response body.
//! Tensor data is [`Bytes`](bytes::Bytes) in the layout of the binary tensor data extension for both encodings:
//! little-endian, row-major, contiguous. The data of a received binary tensor is a slice of the body.
//!
//! ```
//! use bytes::Bytes;
//! use kserve::{Datatype, InferRequest, InferResponse, ModelConfig, Tensor, TensorConfig};
//!
//! let tensor = |name: &str| TensorConfig {
//!     name: name.to_owned(),
//!     datatype: Datatype::Fp32,
//!     dims: vec![None],
//!     optional: false,
//! };
//! let model = ModelConfig {
//!     name: "double".to_owned(),
//!     platform: String::new(),
//!     backend: String::new(),
//!     max_batch_size: 0,
//!     input: vec![tensor("x")],
//!     output: vec![tensor("y")],
//! };
//!
//! let body = Bytes::from_static(
//!     br#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [0.1, Infinity]}]}"#,
//! );
//! let request = InferRequest::parse(&body, None, &model)?;
//! let x = &request.inputs[0];
//! let doubled = x.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes) * 2.0);
//!
//! let response = InferResponse {
//!     model_name: model.name.clone(),
//!     model_version: "1".to_owned(),
//!     id: request.id.clone(),
//!     parameters: Vec::new(),
//!     outputs: vec![Tensor {
//!         name: request.outputs[0].name.clone(),
//!         datatype: Datatype::Fp32,
//!         shape: x.shape.clone(),
//!         parameters: Vec::new(),
//!         data: doubled.flat_map(f32::to_le_bytes).collect(),
//!         is_binary: request.outputs[0].is_binary,
//!     }],
//! };
//! assert_eq!(
//!     response.to_body()?.parts[0],
//!     r#"{"model_name":"double","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[2],"data":[0.2,Infinity]}]}"#
//! );
//! # Ok::<(), kserve::Error>(())
//! ```
//!
//! Facts: `docs/protocol/extension_binary_data.md` and `docs/protocol/README.md` of Triton's server, the Open Inference
//! Protocol of KServe, and responses of Triton 2.51.

mod align;
mod body;
mod check;
mod config;
mod data;
mod datatype;
mod error;
mod json;
mod json_problem;
mod metadata;
mod parameter;
mod raw;
mod repository;
mod request;
mod requested_output;
mod response;
mod statistics;
mod tensor;
mod write;

pub use align::aligned;
pub use body::Body;
pub use config::{ModelConfig, TensorConfig};
pub use data::{bytes_elements, encode_bytes_elements};
pub use datatype::Datatype;
pub use error::{Error, ErrorBody, Result, TensorLabel};
pub use json_problem::{JsonKind, JsonProblem};
pub use metadata::{EXTENSIONS, ModelMetadata, ServerMetadata, TensorMetadata};
pub use parameter::{Parameter, Parameters};
pub use repository::{IndexEntry, VersionState};
pub use request::InferRequest;
pub use requested_output::RequestedOutput;
pub use response::InferResponse;
pub use statistics::{BatchStatistics, InferStatistics, ModelStatistics, StatisticDuration, Statistics};
pub use tensor::Tensor;

/// An input tensor of a request.
pub type InputTensor = Tensor;

/// An output tensor of a response.
pub type OutputTensor = Tensor;

/// Name of the HTTP header with the length in bytes of the JSON part of a body; the binary tensor data follows it.
pub const HEADER_LENGTH: &str = "Inference-Header-Content-Length";

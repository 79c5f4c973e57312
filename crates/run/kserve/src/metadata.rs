//! Server and model metadata: the responses to `GET /v2` and `GET /v2/models/M`.
//!
//! Facts: "Server Metadata" and "Model Metadata" in the protocol's `required_api.md`.

use serde::{Serialize, Serializer};

use crate::Datatype;

/// Names of the protocol extensions that this crate implements, for a server that serves the routes of all of them.
pub const EXTENSIONS: [&str; 5] =
    ["binary_tensor_data", "model_configuration", "model_repository", "parameters", "statistics"];

/// Metadata of a server: the response to `GET /v2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerMetadata {
    pub name: String,
    pub version: String,
    /// Names of the supported protocol extensions; see [`EXTENSIONS`].
    pub extensions: Vec<String>,
}

/// Metadata of a model: the response to `GET /v2/models/M`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelMetadata {
    pub name: String,
    /// Available versions, each a string of digits.
    pub versions: Vec<String>,
    /// Framework and format of the model, such as `pytorch_libtorch`; may be empty.
    pub platform: String,
    pub inputs: Vec<TensorMetadata>,
    pub outputs: Vec<TensorMetadata>,
}

/// Metadata of an input or output tensor of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorMetadata {
    pub name: String,
    pub datatype: Datatype,
    /// Dimensions, including the batch dimension if the model has one. `None` is a variable dimension, −1 in the protocol.
    #[serde(serialize_with = "shape")]
    pub shape: Vec<Option<u64>>,
}

/// Encodes a shape for the protocol: −1 stands for a variable dimension.
pub(crate) fn protocol_shape(shape: &[Option<u64>]) -> Vec<i64> {
    shape.iter().map(|size| size.map_or(-1, |size| i64::try_from(size).unwrap_or(i64::MAX))).collect()
}

fn shape<S: Serializer>(shape: &[Option<u64>], serializer: S) -> Result<S::Ok, S::Error> {
    protocol_shape(shape).serialize(serializer)
}

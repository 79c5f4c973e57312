//! What a server and a model say about themselves: the answers of `GET /v2` and `GET /v2/models/M`.
//!
//! Facts: "Server Metadata" and "Model Metadata" in the protocol's `required_api.md`.

use serde::{Serialize, Serializer};

use crate::Datatype;

/// The extensions that these types speak; a server that answers the routes of all of them lists them.
pub const EXTENSIONS: [&str; 5] =
    ["binary_tensor_data", "model_configuration", "model_repository", "parameters", "statistics"];

/// What a server says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerMetadata {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The extensions of the protocol that it speaks.
    pub extensions: Vec<String>,
}

/// What a model says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelMetadata {
    /// Its name.
    pub name: String,
    /// Its versions: strings of digits.
    pub versions: Vec<String>,
    /// What runs it.
    pub platform: String,
    /// Its inputs.
    pub inputs: Vec<TensorMetadata>,
    /// Its outputs.
    pub outputs: Vec<TensorMetadata>,
}

/// What a model says about an input or an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorMetadata {
    /// Its name.
    pub name: String,
    /// Its datatype.
    pub datatype: Datatype,
    /// Its sizes in elements, with the batch dimension if the model batches. `None`, −1 in the protocol, is any size.
    #[serde(serialize_with = "shape")]
    pub shape: Vec<Option<u64>>,
}

/// Sizes as the protocol writes them: −1 is any size.
pub(crate) fn sizes(shape: &[Option<u64>]) -> Vec<i64> {
    shape.iter().map(|size| size.map_or(-1, |size| i64::try_from(size).unwrap_or(i64::MAX))).collect()
}

fn shape<S: Serializer>(shape: &[Option<u64>], serializer: S) -> Result<S::Ok, S::Error> {
    sizes(shape).serialize(serializer)
}

//! Model configuration: the response to `GET /v2/models/M/config`, against which requests are checked.
//!
//! Facts: "Model Configuration Extension" of Triton's protocol, `ModelConfig` in `model_config.proto`.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::metadata::protocol_shape;
use crate::{Datatype, ModelMetadata, TensorMetadata};

/// Configuration of a model with its inputs and outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelConfig {
    pub name: String,
    /// Framework and format of the model, such as `pytorch_libtorch`; may be empty.
    pub platform: String,
    /// Name of the Triton backend that runs the model; may be empty.
    pub backend: String,
    /// Maximum batch size. 0 means that tensors have no batch dimension besides their [`dims`](TensorConfig::dims).
    pub max_batch_size: u32,
    #[serde(serialize_with = "inputs")]
    pub input: Vec<TensorConfig>,
    #[serde(serialize_with = "outputs")]
    pub output: Vec<TensorConfig>,
}

/// Configuration of an input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorConfig {
    pub name: String,
    pub datatype: Datatype,
    /// Dimensions, without the batch dimension if the model has one. `None` is a variable dimension, −1 in the protocol.
    pub dims: Vec<Option<u64>>,
    /// True if a request may omit the tensor. An optional output is sent only to requests that list it.
    pub optional: bool,
}

impl ModelConfig {
    /// Returns true if tensors have a batch dimension in front of their [`dims`](TensorConfig::dims).
    pub fn has_batch_dimension(&self) -> bool {
        self.max_batch_size > 0
    }

    /// Returns the dimensions of a tensor as in requests and metadata, including the batch dimension if the model has one.
    pub fn shape(&self, tensor: &TensorConfig) -> Vec<Option<u64>> {
        self.has_batch_dimension().then_some(None).into_iter().chain(tensor.dims.iter().copied()).collect()
    }

    /// Returns the model metadata, the response to `GET /v2/models/M`.
    pub fn metadata(&self, versions: Vec<String>) -> ModelMetadata {
        let tensors = |tensors: &[TensorConfig]| {
            let of = |tensor: &TensorConfig| TensorMetadata {
                name: tensor.name.clone(),
                datatype: tensor.datatype,
                shape: self.shape(tensor),
            };
            tensors.iter().map(of).collect()
        };
        ModelMetadata {
            name: self.name.clone(),
            versions,
            platform: self.platform.clone(),
            inputs: tensors(&self.input),
            outputs: tensors(&self.output),
        }
    }
}

/// Serializes an input as Triton's `ModelInput`.
struct InputJson<'c>(&'c TensorConfig);

/// Serializes an output as Triton's `ModelOutput`.
struct OutputJson<'c>(&'c TensorConfig);

impl Serialize for InputJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_struct("ModelInput", 7)?;
        members.serialize_field("name", &self.0.name)?;
        members.serialize_field("data_type", self.0.datatype.config_name())?;
        members.serialize_field("format", "FORMAT_NONE")?;
        members.serialize_field("dims", &protocol_shape(&self.0.dims))?;
        members.serialize_field("is_shape_tensor", &false)?;
        members.serialize_field("allow_ragged_batch", &false)?;
        members.serialize_field("optional", &self.0.optional)?;
        members.end()
    }
}

impl Serialize for OutputJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_struct("ModelOutput", 5)?;
        members.serialize_field("name", &self.0.name)?;
        members.serialize_field("data_type", self.0.datatype.config_name())?;
        members.serialize_field("dims", &protocol_shape(&self.0.dims))?;
        members.serialize_field("label_filename", "")?;
        members.serialize_field("is_shape_tensor", &false)?;
        members.end()
    }
}

fn inputs<S: Serializer>(tensors: &[TensorConfig], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tensors.iter().map(InputJson))
}

fn outputs<S: Serializer>(tensors: &[TensorConfig], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tensors.iter().map(OutputJson))
}

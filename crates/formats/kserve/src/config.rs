//! The configuration of a model, as `GET /v2/models/M/config` answers it, and what requests are checked against.
//!
//! Facts: "Model Configuration Extension" of Triton's protocol, `ModelConfig` in `model_config.proto`.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::metadata::sizes;
use crate::{Datatype, ModelMetadata, TensorMetadata};

/// What a model is and takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelConfig {
    /// Its name.
    pub name: String,
    /// What runs it, such as `pytorch_libtorch`; may be empty.
    pub platform: String,
    /// The back end that runs it; may be empty.
    pub backend: String,
    /// The largest first dimension if the model batches. 0: it does not batch, and shapes are whole.
    pub max_batch_size: u32,
    /// Its inputs.
    #[serde(serialize_with = "inputs")]
    pub input: Vec<TensorConfig>,
    /// Its outputs.
    #[serde(serialize_with = "outputs")]
    pub output: Vec<TensorConfig>,
}

/// An input or an output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorConfig {
    /// Its name.
    pub name: String,
    /// Its datatype.
    pub datatype: Datatype,
    /// Its sizes in elements, without the batch dimension if the model batches. `None`, −1 in the protocol, is any size.
    pub dims: Vec<Option<u64>>,
    /// Whether a request may leave it out. An optional output is only sent to requests that list it.
    pub optional: bool,
}

impl ModelConfig {
    /// Whether tensors have a batch dimension in front of their [`dims`](TensorConfig::dims).
    pub fn batches(&self) -> bool {
        self.max_batch_size > 0
    }

    /// The sizes of a tensor of this model as requests and metadata have them: with the batch dimension if it batches.
    pub fn shape(&self, tensor: &TensorConfig) -> Vec<Option<u64>> {
        self.batches().then_some(None).into_iter().chain(tensor.dims.iter().copied()).collect()
    }

    /// What `GET /v2/models/M` answers.
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

/// What Triton writes for an input.
struct InputJson<'c>(&'c TensorConfig);

/// What Triton writes for an output.
struct OutputJson<'c>(&'c TensorConfig);

impl Serialize for InputJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_struct("ModelInput", 7)?;
        members.serialize_field("name", &self.0.name)?;
        members.serialize_field("data_type", self.0.datatype.config_name())?;
        members.serialize_field("format", "FORMAT_NONE")?;
        members.serialize_field("dims", &sizes(&self.0.dims))?;
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
        members.serialize_field("dims", &sizes(&self.0.dims))?;
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

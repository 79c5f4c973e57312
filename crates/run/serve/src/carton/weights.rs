//! Serves weights: a model without inputs, whose outputs are the tensors of a carton.
//!
//! A tensor with a KServe dtype is sent unchanged from the mapped file. Other dtypes are converted as in Carton's own
//! runner: complex numbers get a last dimension of 2, and small floats become FP32.

use std::collections::HashMap;

use bytes::Bytes;
use kserve::{Datatype, InferRequest, ModelConfig, OutputTensor, TensorConfig};
use runtime::Runnable;
use tensor::Tensor;

use super::elements::{datatype, gather_elements, mapped_elements};
use super::request_error::check_memory;
use crate::model::{CancelToken, InferModel, ModelError};

/// Tensors of a carton, as a model of the server.
pub(super) struct WeightsModel {
    tensors: Vec<(String, ServedWeight)>,
    by_name: HashMap<String, usize>,
    memory: u64,
}

struct ServedWeight {
    datatype: Datatype,
    tensor: Tensor,
    /// Elements in the mapped file; `None` if they have to be gathered in memory.
    mapped: Option<Bytes>,
}

impl WeightsModel {
    pub(super) fn new(runnable: &Runnable, memory: u64) -> Result<Self, runtime::Error> {
        // Clients use the names of carton.toml.
        let names: HashMap<&str, &str> =
            runnable.outputs().iter().map(|port| (port.internal(), port.name.as_str())).collect();
        // Conversions are lazy: elements are converted when they are read.
        let exported = runnable.infer(&[], None)?;
        let mut tensors = Vec::with_capacity(exported.len());
        for ((name, tensor), (_, exported)) in runnable.tensors().iter().zip(exported) {
            let (datatype, tensor) = match (datatype(tensor.dtype()), datatype(exported.dtype())) {
                (Some(datatype), _) => (datatype, tensor.clone()),
                (None, Some(datatype)) => (datatype, exported),
                (None, None) => {
                    let dtype = tensor.dtype();
                    let problem = runtime::Problem::OutputDtype(dtype);
                    return Err(runtime::Error::from(problem).in_tensor(name));
                }
            };
            let name = names.get(name.as_str()).copied().unwrap_or(name).to_owned();
            tensors.push((name, ServedWeight { datatype, mapped: mapped_elements(&tensor), tensor }));
        }
        let by_name = tensors.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
        Ok(Self { tensors, by_name, memory })
    }

    fn find(&self, name: &str) -> Option<&ServedWeight> {
        self.tensors.get(*self.by_name.get(name)?).map(|(_, weight)| weight)
    }
}

impl InferModel for WeightsModel {
    fn config(&self) -> ModelConfig {
        let output = |(name, weight): &(String, ServedWeight)| TensorConfig {
            name: name.clone(),
            datatype: weight.datatype,
            dims: weight.tensor.shape().iter().copied().map(Some).collect(),
            optional: false,
        };
        ModelConfig {
            name: String::new(),
            platform: "carton_weights".to_owned(),
            backend: "torch2carton".to_owned(),
            max_batch_size: 0,
            input: Vec::new(),
            output: self.tensors.iter().map(output).collect(),
        }
    }

    fn infer(
        &self,
        request: &InferRequest,
        cancel: &CancelToken<'_>,
    ) -> Result<Vec<OutputTensor>, ModelError> {
        let weights = || {
            request.outputs.iter().filter_map(|wanted| self.find(&wanted.name).map(|weight| (wanted, weight)))
        };
        let needed = weights().filter(|(_, weight)| weight.mapped.is_none());
        let needed = needed.map(|(_, weight)| weight.tensor.nbytes()).fold(0, u64::saturating_add);
        check_memory(needed, self.memory)?;
        let mut outputs = Vec::with_capacity(request.outputs.len());
        for (wanted, weight) in weights() {
            if cancel.is_cancelled() {
                return Err(ModelError::Cancelled);
            }
            let data = match &weight.mapped {
                Some(bytes) => bytes.clone(),
                None => gather_elements(&weight.tensor)?,
            };
            outputs.push(OutputTensor {
                name: wanted.name.clone(),
                datatype: weight.datatype,
                shape: weight.tensor.shape().to_vec(),
                parameters: Vec::new(),
                data,
                is_binary: wanted.is_binary,
            });
        }
        Ok(outputs)
    }

    fn memory(&self, outputs: &[OutputTensor]) -> usize {
        let takes =
            |output: &&OutputTensor| self.find(&output.name).is_none_or(|weight| weight.mapped.is_none());
        outputs.iter().filter(takes).map(|output| output.data.len()).fold(0, usize::saturating_add)
    }
}

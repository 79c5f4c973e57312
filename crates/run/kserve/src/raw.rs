//! Raw requests: a body without JSON, which is the data of the only required input of the model.
//!
//! Facts: "Raw Binary Request" in `extension_binary_data.md`, `InferenceRequest::Normalize` of Triton's core.

use bytes::Bytes;

use crate::error::{Error, Result, TensorLabel};
use crate::requested_output::RequestedOutput;
use crate::{ModelConfig, Tensor, TensorConfig, check, data};

/// Builds the input and the requested outputs of a raw request: one input, with a batch size of 1 if the model has a batch
/// dimension, and all outputs that are not optional as binary data.
pub(crate) fn raw_request(body: Bytes, model: &ModelConfig) -> Result<(Tensor, Vec<RequestedOutput>)> {
    let mut required = model.input.iter().filter(|input| !input.optional);
    let (Some(config), None) = (required.next(), required.next()) else {
        let found = model.input.iter().filter(|input| !input.optional).count();
        return Err(Error::RawInputs { model: model.name.clone(), found });
    };
    let place = TensorLabel::Input(config.name.clone());
    let (dims, data) = match config.datatype.size() {
        None => (single_element_dims(&place, config)?, encode_as_bytes_element(&place, &body)?),
        Some(size) => (infer_dims(&place, config, size, data::length_u64(&body))?, body),
    };
    let shape: Vec<u64> = model.has_batch_dimension().then_some(1).into_iter().chain(dims).collect();
    data::check(&place, config.datatype, &shape, &data)?;
    let (name, datatype) = (config.name.clone(), config.datatype);
    let input = Tensor { name, datatype, shape, parameters: Vec::new(), data, is_binary: true };
    Ok((input, check::outputs(Vec::new(), true, model)?))
}

/// Returns the dimensions of a BYTES input, which must be fixed to one element.
fn single_element_dims(place: &TensorLabel, config: &TensorConfig) -> Result<Vec<u64>> {
    let dims: Option<Vec<u64>> = config.dims.iter().copied().collect();
    dims.filter(|dims| data::shape_element_count(dims) == Some(1))
        .ok_or_else(|| Error::RawBytesShape { tensor: place.clone(), expected: config.dims.clone() })
}

/// Encodes a copy of the body as one BYTES element.
fn encode_as_bytes_element(place: &TensorLabel, body: &Bytes) -> Result<Bytes> {
    data::encode_bytes_elements([body])
        .map(Bytes::from)
        .ok_or_else(|| Error::ShapeOverflow { tensor: place.clone(), shape: vec![1] })
}

/// Returns the dimensions of an input with elements of `size` bytes, deriving at most one variable dimension from the length
/// of the body.
fn infer_dims(place: &TensorLabel, config: &TensorConfig, size: usize, body: u64) -> Result<Vec<u64>> {
    let free = config.dims.iter().filter(|dim| dim.is_none()).count();
    if free > 1 {
        return Err(Error::RawShape { tensor: place.clone(), expected: config.dims.clone() });
    }
    let fixed: Vec<u64> = config.dims.iter().copied().flatten().collect();
    let too_large = || Error::ShapeOverflow { tensor: place.clone(), shape: fixed.clone() };
    let size = u64::try_from(size).map_err(|_| too_large())?;
    let step = data::shape_element_count(&fixed)
        .and_then(|elements| elements.checked_mul(size))
        .ok_or_else(too_large)?;
    let steps = body.checked_div(step).filter(|steps| steps.checked_mul(step) == Some(body));
    let steps = steps.filter(|&steps| free == 1 || steps == 1);
    let steps = steps.ok_or(Error::RawSize {
        tensor: place.clone(),
        multiple: free == 1,
        expected: step,
        found: body,
    })?;
    Ok(config.dims.iter().map(|dim| dim.unwrap_or(steps)).collect())
}

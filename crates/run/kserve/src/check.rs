//! Validation of the tensors of a request against the model configuration.
//!
//! Facts: `InferenceRequest::Normalize` of Triton's core, and responses of Triton 2.51.

use std::collections::HashMap;

use crate::error::{Error, Result, TensorLabel};
use crate::requested_output::{ListedOutput, RequestedOutput};
use crate::{ModelConfig, Tensor, TensorConfig};

/// Checks the names, datatypes, shapes and batch sizes of the inputs of a request.
pub(crate) fn inputs(inputs: &[Tensor], model: &ModelConfig) -> Result<()> {
    let mut by_name = HashMap::new();
    for input in inputs {
        if by_name.insert(input.name.as_str(), input).is_some() {
            return Err(Error::DuplicateTensorName { tensor: TensorLabel::Input(input.name.clone()) });
        }
    }
    let mut batch = None;
    for expected in &model.input {
        match by_name.remove(expected.name.as_str()) {
            Some(input) => {
                check_datatype_and_shape(input, expected, model)?;
                check_batch_size(&mut batch, input, model)?;
            }
            None if expected.optional => {}
            None => {
                let (model, tensor) = (model.name.clone(), TensorLabel::Input(expected.name.clone()));
                return Err(Error::MissingInput { model, tensor });
            }
        }
    }
    match inputs.iter().find(|input| by_name.contains_key(input.name.as_str())) {
        Some(input) => Err(Error::UnknownTensor {
            model: model.name.clone(),
            tensor: TensorLabel::Input(input.name.clone()),
        }),
        None => Ok(()),
    }
}

/// Resolves the outputs that a request lists, or all outputs of the model that are not optional if it lists none.
///
/// `binary` is the request's default encoding; `binary_data` of a listed output takes precedence.
pub(crate) fn outputs(
    listed: Vec<ListedOutput>,
    binary: bool,
    model: &ModelConfig,
) -> Result<Vec<RequestedOutput>> {
    if listed.is_empty() {
        let all = model.output.iter().filter(|output| !output.optional);
        return all.map(|output| resolve_output(output, output.name.clone(), Vec::new(), binary)).collect();
    }
    let mut by_name = HashMap::new();
    for (n, output) in listed.iter().enumerate() {
        if by_name.insert(output.name.clone(), n).is_some() {
            return Err(Error::DuplicateTensorName { tensor: TensorLabel::Output(output.name.clone()) });
        }
    }
    let mut found = vec![None; listed.len()];
    for output in &model.output {
        if let Some(slot) = by_name.get(&output.name).and_then(|&n| found.get_mut(n)) {
            *slot = Some(output);
        }
    }
    let pairs = listed.into_iter().zip(found);
    pairs
        .map(|(listed, config)| match config {
            Some(config) => {
                resolve_output(config, listed.name, listed.parameters, listed.binary_data.unwrap_or(binary))
            }
            None => Err(Error::UnknownTensor {
                model: model.name.clone(),
                tensor: TensorLabel::Output(listed.name),
            }),
        })
        .collect()
}

/// Builds a requested output, or fails if the datatype has no form in the requested encoding. This check precedes inference,
/// so that no model run is wasted.
fn resolve_output(
    config: &TensorConfig,
    name: String,
    parameters: crate::Parameters,
    binary: bool,
) -> Result<RequestedOutput> {
    let datatype = config.datatype;
    if !binary && !datatype.has_json() {
        return Err(Error::NoJson { tensor: TensorLabel::Output(name), datatype, parameter: "binary_data" });
    }
    Ok(RequestedOutput { name, parameters, is_binary: binary })
}

fn check_datatype_and_shape(input: &Tensor, expected: &TensorConfig, model: &ModelConfig) -> Result<()> {
    let tensor = || TensorLabel::Input(input.name.clone());
    if input.datatype != expected.datatype {
        let (expected, found) = (expected.datatype, input.datatype);
        return Err(Error::DatatypeMismatch { model: model.name.clone(), tensor: tensor(), expected, found });
    }
    let shape = model.shape(expected);
    let fits = |(found, expected): (&u64, &Option<u64>)| expected.is_none_or(|expected| expected == *found);
    if input.shape.len() != shape.len() || !input.shape.iter().zip(&shape).all(fits) {
        let found = input.shape.clone();
        return Err(Error::InputShapeMismatch {
            model: model.name.clone(),
            tensor: tensor(),
            expected: shape,
            found,
        });
    }
    Ok(())
}

/// Checks that the batch size of an input is within the maximum and equals that of the first input in `batch`. The shape is
/// already checked, so a batch dimension exists if the model has one.
fn check_batch_size<'i>(
    batch: &mut Option<&'i Tensor>,
    input: &'i Tensor,
    model: &ModelConfig,
) -> Result<()> {
    let size = |tensor: &Tensor| tensor.shape.first().copied().unwrap_or(0);
    let (found, tensor) = (size(input), || TensorLabel::Input(input.name.clone()));
    if !model.has_batch_dimension() {
        return Ok(());
    }
    if found > u64::from(model.max_batch_size) {
        let max = model.max_batch_size;
        return Err(Error::BatchTooLarge { model: model.name.clone(), tensor: tensor(), max, found });
    }
    let first = *batch.get_or_insert(input);
    if size(first) != found {
        let (other, expected) = (TensorLabel::Input(first.name.clone()), size(first));
        return Err(Error::BatchSizeMismatch { tensor: tensor(), found, other, expected });
    }
    Ok(())
}

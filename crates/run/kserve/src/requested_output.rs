//! Requested outputs of an inference request.

use crate::error::{Error, Result, TensorLabel};
use crate::json::{JsonReader, read_unique_member};
use crate::json_problem::JsonProblem;
use crate::{Parameters, parameter};

/// An output that the response must contain.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedOutput {
    pub name: String,
    /// Parameters other than those of the binary tensor data extension.
    pub parameters: Parameters,
    /// True for binary data after the JSON, false for data in JSON.
    pub is_binary: bool,
}

/// JSON object of an output in the `outputs` of a request.
pub(crate) struct ListedOutput {
    pub(crate) name: String,
    pub(crate) parameters: Parameters,
    pub(crate) binary_data: Option<bool>,
}

impl ListedOutput {
    pub(crate) fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        let (mut name, mut parameters, mut binary_data) = (None::<String>, None, None);
        let mut unsupported = None;
        json.object(|json, key| match key {
            "name" => read_unique_member(&mut name, json, |json| Ok(json.string()?.into_owned())),
            "parameters" => read_unique_member(&mut parameters, json, |json| {
                parameter::read(json, |json, key| {
                    match key {
                        "binary_data" => read_unique_member(&mut binary_data, json, JsonReader::boolean)?,
                        "shared_memory_region" | "classification" => {
                            unsupported = Some(if key == "classification" {
                                "classification"
                            } else {
                                "shared_memory_region"
                            });
                            json.skip()?;
                        }
                        _ => return Ok(false),
                    }
                    Ok(true)
                })
            }),
            _ => json.skip().map(drop),
        })?;
        let name = name.ok_or_else(|| json.error(JsonProblem::Missing("name")))?;
        if let Some(parameter) = unsupported {
            return Err(Error::UnsupportedParameter { tensor: TensorLabel::Output(name), parameter });
        }
        Ok(Self { name, parameters: parameters.unwrap_or_default(), binary_data })
    }
}

//! Inference request: the body of `POST /v2/models/M/infer`.
//!
//! Facts: "Inference Request JSON Object" in the protocol's `required_api.md`, `extension_binary_data.md`.

use bytes::Bytes;

use crate::body::{Blobs, Body, Received};
use crate::error::{Place, Result};
use crate::json::{Reader, once};
use crate::problem::JsonProblem;
use crate::requested::{Listed, RequestedOutput};
use crate::tensor::{Announced, Tensor};
use crate::{ModelConfig, Parameters, check, parameter, raw, tensor, write};

/// Inference request with its input tensors and requested outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct InferRequest {
    /// Request ID chosen by the client; the response repeats it.
    pub id: Option<String>,
    /// Parameters other than those of the binary tensor data extension.
    pub parameters: Parameters,
    /// Input tensors in the order of the request.
    pub inputs: Vec<Tensor>,
    /// Outputs of the response in order, without duplicates. For a request that lists no outputs, all outputs of the model
    /// that are not optional.
    pub outputs: Vec<RequestedOutput>,
    /// True if the request lists its outputs, so that the response must have no others.
    pub lists_outputs: bool,
}

impl InferRequest {
    /// Reads a decompressed body of a request to `model`. `header_length` is the value of the header
    /// [`HEADER_LENGTH`](crate::HEADER_LENGTH), if the header was sent.
    ///
    /// Memory use is proportional to the length of the body, whatever shapes and lengths it claims: an element in JSON takes
    /// at least two bytes of the body and at most eight in the tensor, and binary tensors are slices of the body.
    ///
    /// # Errors
    ///
    /// If the body is not a valid request, or the request does not fit the model.
    pub fn parse(body: &Bytes, header_length: Option<&[u8]>, model: &ModelConfig) -> Result<Self> {
        match Received::new(body, header_length)? {
            Received::Raw(data) => {
                let (input, outputs) = raw::tensors(data, model)?;
                let (id, parameters, inputs) = (None, Parameters::new(), vec![input]);
                Ok(Self { id, parameters, inputs, outputs, lists_outputs: false })
            }
            Received::Json(json, blobs) => {
                let mut json = Reader::new(&json)?;
                let members = Members::read(&mut json)?;
                json.end()?;
                members.finish(blobs, model)
            }
        }
    }

    /// Writes the body of this request, for clients.
    ///
    /// # Errors
    ///
    /// If the data of an input does not fit its datatype and shape, or an input without a JSON form is to be sent as JSON.
    pub fn print(&self) -> Result<Body> {
        let mut out = b"{".to_vec();
        tensor::write_id(&mut out, self.id.as_deref());
        if !self.parameters.is_empty() {
            out.extend_from_slice(b"\"parameters\":{");
            parameter::write_all(&mut out, &self.parameters);
            out.extend_from_slice(b"},");
        }
        out.extend_from_slice(b"\"inputs\":");
        tensor::write_all(&mut out, &self.inputs, Place::Input)?;
        out.extend_from_slice(b",\"outputs\":[");
        for (n, output) in self.outputs.iter().enumerate() {
            out.extend_from_slice(if n > 0 { b",{\"name\":" } else { b"{\"name\":" });
            write::text(&mut out, &output.name);
            out.extend_from_slice(b",\"parameters\":{");
            parameter::write_all(&mut out, &output.parameters);
            let comma = if output.parameters.is_empty() { "" } else { "," };
            out.extend_from_slice(format!("{comma}\"binary_data\":{}}}}}", output.binary).as_bytes());
        }
        out.extend_from_slice(b"]}");
        Ok(Body::new(out, tensor::binary(&self.inputs)))
    }
}

/// Members read so far from the JSON object of a request.
#[derive(Default)]
struct Members {
    id: Option<String>,
    parameters: Option<Parameters>,
    binary_data_output: Option<bool>,
    inputs: Option<Vec<Announced>>,
    outputs: Option<Vec<Listed>>,
}

impl Members {
    fn read(json: &mut Reader<'_>) -> Result<Self> {
        let mut members = Self::default();
        json.object(|json, key| match key {
            "id" => once(&mut members.id, json, |json| Ok(json.string()?.into_owned())),
            "parameters" => {
                let binary = &mut members.binary_data_output;
                once(&mut members.parameters, json, |json| {
                    parameter::read(json, |json, key| match key {
                        "binary_data_output" => once(binary, json, Reader::boolean).map(|()| true),
                        _ => Ok(false),
                    })
                })
            }
            "inputs" => {
                once(&mut members.inputs, json, |json| json.list(|json| Announced::read(json, Place::Input)))
            }
            "outputs" => once(&mut members.outputs, json, |json| json.list(Listed::read)),
            _ => json.skip().map(drop),
        })?;
        match members.inputs {
            Some(_) => Ok(members),
            None => Err(json.error(JsonProblem::Missing("inputs"))),
        }
    }

    fn finish(self, mut blobs: Blobs, model: &ModelConfig) -> Result<InferRequest> {
        let announced = self.inputs.unwrap_or_default();
        let inputs = announced.into_iter().map(|input| input.take(&mut blobs)).collect::<Result<Vec<_>>>()?;
        blobs.end()?;
        check::inputs(&inputs, model)?;
        let listed = self.outputs.unwrap_or_default();
        let lists_outputs = !listed.is_empty();
        let outputs = check::outputs(listed, self.binary_data_output.unwrap_or(false), model)?;
        let parameters = self.parameters.unwrap_or_default();
        Ok(InferRequest { id: self.id, parameters, inputs, outputs, lists_outputs })
    }
}

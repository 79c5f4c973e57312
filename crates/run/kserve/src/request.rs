//! Inference request: the body of `POST /v2/models/M/infer`.
//!
//! Facts: "Inference Request JSON Object" in the protocol's `required_api.md`, `extension_binary_data.md`.

use bytes::Bytes;

use crate::body::{BinaryTensorData, Body, ReceivedBody};
use crate::error::{Result, TensorLabel};
use crate::json::{JsonReader, read_unique_member};
use crate::json_problem::JsonProblem;
use crate::requested_output::{ListedOutput, RequestedOutput};
use crate::tensor::{Tensor, TensorHeader};
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
        match ReceivedBody::new(body, header_length)? {
            ReceivedBody::Raw(data) => {
                let (input, outputs) = raw::raw_request(data, model)?;
                let (id, parameters, inputs) = (None, Parameters::new(), vec![input]);
                Ok(Self { id, parameters, inputs, outputs, lists_outputs: false })
            }
            ReceivedBody::Json(json, blobs) => {
                let mut json = JsonReader::new(&json)?;
                let members = RequestMembers::read(&mut json)?;
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
    pub fn to_body(&self) -> Result<Body> {
        let mut out = b"{".to_vec();
        tensor::write_id(&mut out, self.id.as_deref());
        if !self.parameters.is_empty() {
            out.extend_from_slice(b"\"parameters\":{");
            parameter::write_all(&mut out, &self.parameters);
            out.extend_from_slice(b"},");
        }
        out.extend_from_slice(b"\"inputs\":");
        tensor::write_all(&mut out, &self.inputs, TensorLabel::Input)?;
        out.extend_from_slice(b",\"outputs\":[");
        for (n, output) in self.outputs.iter().enumerate() {
            out.extend_from_slice(if n > 0 { b",{\"name\":" } else { b"{\"name\":" });
            write::text(&mut out, &output.name);
            out.extend_from_slice(b",\"parameters\":{");
            parameter::write_all(&mut out, &output.parameters);
            let comma = if output.parameters.is_empty() { "" } else { "," };
            out.extend_from_slice(format!("{comma}\"binary_data\":{}}}}}", output.is_binary).as_bytes());
        }
        out.extend_from_slice(b"]}");
        Ok(Body::new(out, tensor::binary_data_parts(&self.inputs)))
    }
}

#[derive(Default)]
struct RequestMembers {
    id: Option<String>,
    parameters: Option<Parameters>,
    binary_data_output: Option<bool>,
    inputs: Option<Vec<TensorHeader>>,
    outputs: Option<Vec<ListedOutput>>,
}

impl RequestMembers {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        let mut members = Self::default();
        json.object(|json, key| match key {
            "id" => read_unique_member(&mut members.id, json, |json| Ok(json.string()?.into_owned())),
            "parameters" => {
                let binary = &mut members.binary_data_output;
                read_unique_member(&mut members.parameters, json, |json| {
                    parameter::read(json, |json, key| match key {
                        "binary_data_output" => {
                            read_unique_member(binary, json, JsonReader::boolean).map(|()| true)
                        }
                        _ => Ok(false),
                    })
                })
            }
            "inputs" => read_unique_member(&mut members.inputs, json, |json| {
                json.list(|json| TensorHeader::read(json, TensorLabel::Input))
            }),
            "outputs" => read_unique_member(&mut members.outputs, json, |json| json.list(ListedOutput::read)),
            _ => json.skip().map(drop),
        })?;
        match members.inputs {
            Some(_) => Ok(members),
            None => Err(json.error(JsonProblem::Missing("inputs"))),
        }
    }

    fn finish(self, mut blobs: BinaryTensorData, model: &ModelConfig) -> Result<InferRequest> {
        let announced = self.inputs.unwrap_or_default();
        let inputs = announced
            .into_iter()
            .map(|input| input.with_binary_data(&mut blobs))
            .collect::<Result<Vec<_>>>()?;
        blobs.finish_binary_data()?;
        check::inputs(&inputs, model)?;
        let listed = self.outputs.unwrap_or_default();
        let lists_outputs = !listed.is_empty();
        let outputs = check::outputs(listed, self.binary_data_output.unwrap_or(false), model)?;
        let parameters = self.parameters.unwrap_or_default();
        Ok(InferRequest { id: self.id, parameters, inputs, outputs, lists_outputs })
    }
}

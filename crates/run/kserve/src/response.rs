//! Inference response: the body of the response to `POST /v2/models/M/infer`.
//!
//! Facts: "Inference Response JSON Object" in the protocol's `required_api.md`, `extension_binary_data.md`.

use bytes::Bytes;

use crate::body::{Body, ReceivedBody};
use crate::error::{Error, Result, TensorLabel};
use crate::json::{JsonReader, read_unique_member};
use crate::json_problem::JsonProblem;
use crate::tensor::{Tensor, TensorHeader};
use crate::{Parameters, parameter, tensor, write};

/// Inference response with its output tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct InferResponse {
    pub model_name: String,
    pub model_version: String,
    /// Request ID from the client, returned unchanged.
    pub id: Option<String>,
    pub parameters: Parameters,
    /// Output tensors in the order of the request.
    pub outputs: Vec<Tensor>,
}

impl InferResponse {
    /// Writes the body of this response.
    ///
    /// # Errors
    ///
    /// If the data of an output does not fit its datatype and shape, or an output without a JSON form is to be sent as JSON.
    pub fn to_body(&self) -> Result<Body> {
        let mut out = b"{".to_vec();
        tensor::write_id(&mut out, self.id.as_deref());
        out.extend_from_slice(b"\"model_name\":");
        write::text(&mut out, &self.model_name);
        out.extend_from_slice(b",\"model_version\":");
        write::text(&mut out, &self.model_version);
        if !self.parameters.is_empty() {
            out.extend_from_slice(b",\"parameters\":{");
            parameter::write_all(&mut out, &self.parameters);
            out.push(b'}');
        }
        out.extend_from_slice(b",\"outputs\":");
        tensor::write_all(&mut out, &self.outputs, TensorLabel::Output).map_err(|error| match error {
            // The client requested JSON for data without a JSON form; all other errors are the model's.
            Error::NoJson { .. } | Error::NotUtf8Element { .. } => error,
            error => Error::InvalidModelOutput(Box::new(error)),
        })?;
        out.push(b'}');
        Ok(Body::new(out, tensor::binary_data_parts(&self.outputs)))
    }

    /// Reads a decompressed body, for clients. `header_length` is the value of the header
    /// [`HEADER_LENGTH`](crate::HEADER_LENGTH), if the header was sent.
    ///
    /// # Errors
    ///
    /// If the body is not a valid response.
    pub fn parse(body: &Bytes, header_length: Option<&[u8]>) -> Result<Self> {
        let (json, mut blobs) = match ReceivedBody::new(body, header_length)? {
            ReceivedBody::Json(json, blobs) => (json, blobs),
            ReceivedBody::Raw(_) => return Err(Error::Empty),
        };
        let mut json = JsonReader::new(&json)?;
        let (mut model_name, mut model_version, mut id) = (None, None, None);
        let (mut parameters, mut outputs) = (None, None);
        json.object(|json, key| match key {
            "model_name" => read_unique_member(&mut model_name, json, |json| Ok(json.string()?.into_owned())),
            "model_version" => {
                read_unique_member(&mut model_version, json, |json| Ok(json.string()?.into_owned()))
            }
            "id" => read_unique_member(&mut id, json, |json| Ok(json.string()?.into_owned())),
            "parameters" => {
                read_unique_member(&mut parameters, json, |json| parameter::read(json, |_, _| Ok(false)))
            }
            "outputs" => read_unique_member(&mut outputs, json, |json| {
                json.list(|json| TensorHeader::read(json, TensorLabel::Output))
            }),
            _ => json.skip().map(drop),
        })?;
        let missing = |member| json.error(JsonProblem::Missing(member));
        let model_name = model_name.ok_or_else(|| missing("model_name"))?;
        let announced: Vec<TensorHeader> = outputs.ok_or_else(|| missing("outputs"))?;
        json.end()?;
        let outputs = announced
            .into_iter()
            .map(|output| output.with_binary_data(&mut blobs))
            .collect::<Result<Vec<_>>>()?;
        blobs.finish_binary_data()?;
        let (model_version, parameters) = (model_version.unwrap_or_default(), parameters.unwrap_or_default());
        Ok(Self { model_name, model_version, id, parameters, outputs })
    }
}

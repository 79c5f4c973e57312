//! Tensor of a request or response, and its JSON object.
//!
//! Facts: "Inference Request JSON Object" and "Inference Response JSON Object" in the protocol's `required_api.md`,
//! `extension_binary_data.md`.

use bytes::Bytes;

use crate::body::BinaryTensorData;
use crate::error::{Error, Result, TensorLabel};
use crate::json::{JsonNumber, JsonReader, SkippedValue, read_unique_member};
use crate::json_problem::{JsonKind, JsonProblem, truncate_for_message};
use crate::{Datatype, Parameters, data, parameter, write};

/// Tensor with its data: an input of a request, or an output of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub name: String,
    pub datatype: Datatype,
    /// Dimensions, including the batch dimension if the model has one.
    pub shape: Vec<u64>,
    /// Parameters other than those of the binary tensor data extension.
    pub parameters: Parameters,
    /// Elements in the layout of the binary tensor data extension: little-endian, row-major, contiguous. A BOOL element is a
    /// byte, 0 or 1; a BYTES element is its length in four bytes, then its bytes. The data of a received binary tensor is a
    /// slice of the body, with any alignment: see [`aligned`](crate::aligned).
    pub data: Bytes,
    /// True for binary data after the JSON, false for data in JSON.
    pub is_binary: bool,
}

impl Tensor {
    /// Returns the number of elements, or `None` if it overflows 64 bits.
    pub fn elements(&self) -> Option<u64> {
        data::shape_element_count(&self.shape)
    }

    /// Writes the JSON object of the tensor.
    pub(crate) fn write(&self, out: &mut Vec<u8>, place: &TensorLabel) -> Result<()> {
        out.extend_from_slice(b"{\"name\":");
        write::text(out, &self.name);
        out.extend_from_slice(b",\"datatype\":\"");
        out.extend_from_slice(self.datatype.name().as_bytes());
        out.extend_from_slice(b"\",\"shape\":[");
        for (n, &size) in self.shape.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            write::integer(out, size);
        }
        out.push(b']');
        if self.is_binary || !self.parameters.is_empty() {
            out.extend_from_slice(b",\"parameters\":{");
            parameter::write_all(out, &self.parameters);
            if self.is_binary {
                let comma = if self.parameters.is_empty() { "" } else { "," };
                out.extend_from_slice(comma.as_bytes());
                out.extend_from_slice(b"\"binary_data_size\":");
                write::integer(out, self.data.len());
            }
            out.push(b'}');
        }
        if !self.is_binary {
            out.extend_from_slice(b",\"data\":");
            data::to_json(out, place, self.datatype, &self.data)?;
        }
        out.push(b'}');
        Ok(())
    }
}

/// Writes the member `id` and a comma, or nothing for `None`.
pub(crate) fn write_id(out: &mut Vec<u8>, id: Option<&str>) {
    if let Some(id) = id {
        out.extend_from_slice(b"\"id\":");
        write::text(out, id);
        out.push(b',');
    }
}

/// Checks the data of tensors and writes their JSON array.
pub(crate) fn write_all(
    out: &mut Vec<u8>,
    tensors: &[Tensor],
    place: fn(String) -> TensorLabel,
) -> Result<()> {
    out.push(b'[');
    for (n, tensor) in tensors.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        let place = place(tensor.name.clone());
        data::check(&place, tensor.datatype, &tensor.shape, &tensor.data)?;
        tensor.write(out, &place)?;
    }
    out.push(b']');
    Ok(())
}

pub(crate) fn binary_data_parts(tensors: &[Tensor]) -> impl Iterator<Item = &Bytes> {
    tensors.iter().filter(|tensor| tensor.is_binary).map(|tensor| &tensor.data)
}

/// Tensor of which the JSON object is read, but not yet the binary data.
pub(crate) struct TensorHeader {
    tensor: Tensor,
    place: TensorLabel,
    binary_data_size: Option<u64>,
}

impl TensorHeader {
    pub(crate) fn read(json: &mut JsonReader<'_>, place: fn(String) -> TensorLabel) -> Result<Self> {
        let mut members = TensorMembers::default();
        json.object(|json, key| members.read(json, key))?;
        members.finish(json, place)
    }

    /// Takes the binary data of the tensor from the body and checks it.
    pub(crate) fn with_binary_data(mut self, blobs: &mut BinaryTensorData) -> Result<Tensor> {
        if let Some(size) = self.binary_data_size {
            self.tensor.data = blobs.split_tensor(&self.place, size)?;
            data::check(&self.place, self.tensor.datatype, &self.tensor.shape, &self.tensor.data)?;
        }
        Ok(self.tensor)
    }
}

#[derive(Default)]
struct TensorMembers {
    name: Option<String>,
    datatype: Option<String>,
    shape: Option<Vec<u64>>,
    parameters: Option<Parameters>,
    binary_data_size: Option<u64>,
    shared_memory_region: Option<()>,
    values: Option<DataMember>,
}

enum DataMember {
    /// Number of values, and the encoded data of those within the shape.
    Read(u64, Vec<u8>),
    /// Position of unread `data`: the datatype or the shape was not known yet, or not valid.
    Skipped(SkippedValue),
}

impl TensorMembers {
    fn read(&mut self, json: &mut JsonReader<'_>, key: &str) -> Result<()> {
        match key {
            "name" => read_unique_member(&mut self.name, json, |json| Ok(json.string()?.into_owned())),
            "datatype" => {
                read_unique_member(&mut self.datatype, json, |json| Ok(json.string()?.into_owned()))
            }
            "shape" => read_unique_member(&mut self.shape, json, |json| json.list(size)),
            "parameters" => {
                let (binary_data_size, region) = (&mut self.binary_data_size, &mut self.shared_memory_region);
                read_unique_member(&mut self.parameters, json, |json| {
                    parameter::read(json, |json, key| {
                        match key {
                            "binary_data_size" => read_unique_member(binary_data_size, json, size)?,
                            "shared_memory_region" => {
                                read_unique_member(region, json, |json| json.skip().map(drop))?;
                            }
                            _ => return Ok(false),
                        }
                        Ok(true)
                    })
                })
            }
            "data" => {
                let datatype =
                    self.datatype.as_deref().and_then(Datatype::from_name).filter(|it| it.has_json());
                let elements = self.shape.as_deref().and_then(data::shape_element_count);
                read_unique_member(&mut self.values, json, |json| match (datatype, elements) {
                    (Some(datatype), Some(elements)) => {
                        let (count, bytes) = data::from_json(json, datatype, elements)?;
                        Ok(DataMember::Read(count, bytes))
                    }
                    _ => json.skip().map(DataMember::Skipped),
                })
            }
            _ => json.skip().map(drop),
        }
    }

    fn finish(self, json: &JsonReader<'_>, place: fn(String) -> TensorLabel) -> Result<TensorHeader> {
        let missing = |member| json.error(JsonProblem::Missing(member));
        let name = self.name.ok_or_else(|| missing("name"))?;
        let datatype = self.datatype.ok_or_else(|| missing("datatype"))?;
        let shape = self.shape.ok_or_else(|| missing("shape"))?;
        let place = place(name.clone());
        let datatype = Datatype::from_name(&datatype).ok_or_else(|| Error::UnknownDatatype {
            tensor: place.clone(),
            found: truncate_for_message(&datatype),
        })?;
        let elements = data::shape_element_count(&shape)
            .ok_or_else(|| Error::ShapeOverflow { tensor: place.clone(), shape: shape.clone() })?;
        let found = match (&self.values, self.binary_data_size, self.shared_memory_region) {
            (Some(_), None, None) | (None, Some(_), None) => None,
            (None, None, Some(())) => {
                return Err(Error::UnsupportedParameter { tensor: place, parameter: "shared_memory_region" });
            }
            (None, None, None) => Some("none"),
            (Some(_), Some(_), None) => Some("`data` and `binary_data_size`"),
            (Some(_), None, Some(())) => Some("`data` and `shared_memory_region`"),
            (None, Some(_), Some(())) => Some("`binary_data_size` and `shared_memory_region`"),
            (Some(_), Some(_), Some(())) => Some("all three"),
        };
        if let Some(found) = found {
            return Err(Error::DataLocation { tensor: place, found });
        }
        let values = match self.values {
            Some(_) if !datatype.has_json() => {
                let parameter = "binary_data_size";
                return Err(Error::NoJson { tensor: place, datatype, parameter });
            }
            Some(DataMember::Skipped(skipped)) => {
                let read = data::from_json(&mut json.reader_at(skipped), datatype, elements);
                Some(read.map_err(|error| error.prepend_path("data"))?)
            }
            Some(DataMember::Read(count, bytes)) => Some((count, bytes)),
            None => None,
        };
        let data = match values {
            Some((found, _)) if found != elements => {
                return Err(Error::ElementCountMismatch { tensor: place, shape, expected: elements, found });
            }
            Some((_, bytes)) => Bytes::from(bytes),
            None => Bytes::new(),
        };
        let (binary, parameters) = (self.binary_data_size.is_some(), self.parameters.unwrap_or_default());
        let tensor = Tensor { name, datatype, shape, parameters, data, is_binary: binary };
        Ok(TensorHeader { tensor, place, binary_data_size: self.binary_data_size })
    }
}

/// Reads a number of elements or bytes, a non-negative `int64` in the protocol.
fn size(json: &mut JsonReader<'_>) -> Result<u64> {
    json.expect(JsonKind::Number)?;
    let at = json.position();
    let number = json.number()?;
    let size = match number {
        JsonNumber::Integer(text) => text.parse().ok().and_then(|size: i64| u64::try_from(size).ok()),
        JsonNumber::Fraction(_) | JsonNumber::NotFinite(_) => None,
    };
    let problem = || JsonProblem::Size { found: truncate_for_message(number.text()) };
    size.ok_or_else(|| Error::Json { at, path: String::new(), problem: problem() })
}

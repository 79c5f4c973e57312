//! Tensor of a request or response, and its JSON object.
//!
//! Facts: "Inference Request JSON Object" and "Inference Response JSON Object" in the protocol's `required_api.md`,
//! `extension_binary_data.md`.

use bytes::Bytes;

use crate::body::Blobs;
use crate::error::{Error, Place, Result};
use crate::json::{Number, Reader, Skipped, once};
use crate::problem::{JsonProblem, Kind, shortened};
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
    pub binary: bool,
}

impl Tensor {
    /// Returns the number of elements, or `None` if it overflows 64 bits.
    pub fn elements(&self) -> Option<u64> {
        data::elements(&self.shape)
    }

    /// Writes the JSON object of the tensor.
    pub(crate) fn write(&self, out: &mut Vec<u8>, place: &Place) -> Result<()> {
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
        if self.binary || !self.parameters.is_empty() {
            out.extend_from_slice(b",\"parameters\":{");
            parameter::write_all(out, &self.parameters);
            if self.binary {
                let comma = if self.parameters.is_empty() { "" } else { "," };
                out.extend_from_slice(comma.as_bytes());
                out.extend_from_slice(b"\"binary_data_size\":");
                write::integer(out, self.data.len());
            }
            out.push(b'}');
        }
        if !self.binary {
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
pub(crate) fn write_all(out: &mut Vec<u8>, tensors: &[Tensor], place: fn(String) -> Place) -> Result<()> {
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

/// Iterates over the data of the binary tensors.
pub(crate) fn binary(tensors: &[Tensor]) -> impl Iterator<Item = &Bytes> {
    tensors.iter().filter(|tensor| tensor.binary).map(|tensor| &tensor.data)
}

/// Tensor of which the JSON object is read, but not yet the binary data.
pub(crate) struct Announced {
    tensor: Tensor,
    place: Place,
    binary_data_size: Option<u64>,
}

impl Announced {
    /// Reads the JSON object of a tensor.
    pub(crate) fn read(json: &mut Reader<'_>, place: fn(String) -> Place) -> Result<Self> {
        let mut members = Members::default();
        json.object(|json, key| members.read(json, key))?;
        members.finish(json, place)
    }

    /// Takes the binary data of the tensor from the body and checks it.
    pub(crate) fn take(mut self, blobs: &mut Blobs) -> Result<Tensor> {
        if let Some(size) = self.binary_data_size {
            self.tensor.data = blobs.take(&self.place, size)?;
            data::check(&self.place, self.tensor.datatype, &self.tensor.shape, &self.tensor.data)?;
        }
        Ok(self.tensor)
    }
}

/// Members read so far from the JSON object of a tensor.
#[derive(Default)]
struct Members {
    name: Option<String>,
    datatype: Option<String>,
    shape: Option<Vec<u64>>,
    parameters: Option<Parameters>,
    binary_data_size: Option<u64>,
    shared_memory_region: Option<()>,
    values: Option<Values>,
}

enum Values {
    /// Number of values, and the encoded data of those within the shape.
    Read(u64, Vec<u8>),
    /// Position of unread `data`: the datatype or the shape was not known yet, or not valid.
    Skipped(Skipped),
}

impl Members {
    fn read(&mut self, json: &mut Reader<'_>, key: &str) -> Result<()> {
        match key {
            "name" => once(&mut self.name, json, |json| Ok(json.string()?.into_owned())),
            "datatype" => once(&mut self.datatype, json, |json| Ok(json.string()?.into_owned())),
            "shape" => once(&mut self.shape, json, |json| json.list(size)),
            "parameters" => {
                let (binary_data_size, region) = (&mut self.binary_data_size, &mut self.shared_memory_region);
                once(&mut self.parameters, json, |json| {
                    parameter::read(json, |json, key| {
                        match key {
                            "binary_data_size" => once(binary_data_size, json, size)?,
                            "shared_memory_region" => once(region, json, |json| json.skip().map(drop))?,
                            _ => return Ok(false),
                        }
                        Ok(true)
                    })
                })
            }
            "data" => {
                let datatype =
                    self.datatype.as_deref().and_then(Datatype::from_name).filter(|it| it.has_json());
                let elements = self.shape.as_deref().and_then(data::elements);
                once(&mut self.values, json, |json| match (datatype, elements) {
                    (Some(datatype), Some(elements)) => {
                        let (count, bytes) = data::from_json(json, datatype, elements)?;
                        Ok(Values::Read(count, bytes))
                    }
                    _ => json.skip().map(Values::Skipped),
                })
            }
            _ => json.skip().map(drop),
        }
    }

    fn finish(self, json: &Reader<'_>, place: fn(String) -> Place) -> Result<Announced> {
        let missing = |member| json.error(JsonProblem::Missing(member));
        let name = self.name.ok_or_else(|| missing("name"))?;
        let datatype = self.datatype.ok_or_else(|| missing("datatype"))?;
        let shape = self.shape.ok_or_else(|| missing("shape"))?;
        let place = place(name.clone());
        let datatype = Datatype::from_name(&datatype)
            .ok_or_else(|| Error::UnknownDatatype { tensor: place.clone(), found: shortened(&datatype) })?;
        let elements = data::elements(&shape)
            .ok_or_else(|| Error::TooLarge { tensor: place.clone(), shape: shape.clone() })?;
        let found = match (&self.values, self.binary_data_size, self.shared_memory_region) {
            (Some(_), None, None) | (None, Some(_), None) => None,
            (None, None, Some(())) => {
                return Err(Error::Unsupported { tensor: place, parameter: "shared_memory_region" });
            }
            (None, None, None) => Some("none"),
            (Some(_), Some(_), None) => Some("`data` and `binary_data_size`"),
            (Some(_), None, Some(())) => Some("`data` and `shared_memory_region`"),
            (None, Some(_), Some(())) => Some("`binary_data_size` and `shared_memory_region`"),
            (Some(_), Some(_), Some(())) => Some("all three"),
        };
        if let Some(found) = found {
            return Err(Error::Contents { tensor: place, found });
        }
        let values = match self.values {
            Some(_) if !datatype.has_json() => {
                let parameter = "binary_data_size";
                return Err(Error::NoJson { tensor: place, datatype, parameter });
            }
            Some(Values::Skipped(skipped)) => {
                let read = data::from_json(&mut json.back_to(skipped), datatype, elements);
                Some(read.map_err(|error| error.within("data"))?)
            }
            Some(Values::Read(count, bytes)) => Some((count, bytes)),
            None => None,
        };
        let data = match values {
            Some((found, _)) if found != elements => {
                return Err(Error::Count { tensor: place, shape, expected: elements, found });
            }
            Some((_, bytes)) => Bytes::from(bytes),
            None => Bytes::new(),
        };
        let (binary, parameters) = (self.binary_data_size.is_some(), self.parameters.unwrap_or_default());
        let tensor = Tensor { name, datatype, shape, parameters, data, binary };
        Ok(Announced { tensor, place, binary_data_size: self.binary_data_size })
    }
}

/// Reads a number of elements or bytes, a non-negative `int64` in the protocol.
fn size(json: &mut Reader<'_>) -> Result<u64> {
    json.expect(Kind::Number)?;
    let at = json.position();
    let number = json.number()?;
    let size = match number {
        Number::Integer(text) => text.parse().ok().and_then(|size: i64| u64::try_from(size).ok()),
        Number::Fraction(_) | Number::NotFinite(_) => None,
    };
    let problem = || JsonProblem::Size { found: shortened(number.text()) };
    size.ok_or_else(|| Error::Json { at, path: String::new(), problem: problem() })
}

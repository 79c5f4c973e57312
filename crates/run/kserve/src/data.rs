//! Tensor data: conversion of elements from and to JSON, and validation of binary data.
//!
//! Facts: "Tensor Data" in the protocol's `required_api.md`, `extension_binary_data.md`; Triton reads the values of nested
//! arrays in order and compares only the number of values with the shape.

use std::str::FromStr;

use crate::error::{Error, Result, TensorLabel};
use crate::json::{JsonNumber, JsonReader};
use crate::json_problem::{JsonKind, JsonProblem, truncate_for_message};
use crate::{Datatype, write};

/// Returns the number of elements of a shape, or `None` if it overflows 64 bits. An empty shape is a scalar, one element.
pub(crate) fn shape_element_count(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        Some(0)
    } else {
        shape.iter().try_fold(1_u64, |product, &size| product.checked_mul(size))
    }
}

/// Reads the JSON array `data`, flat or nested, into the layout of the binary tensor data extension. Returns the number of
/// values in the array, and the encoded data of the first `expected` values.
pub(crate) fn from_json(
    json: &mut JsonReader<'_>,
    datatype: Datatype,
    expected: u64,
) -> Result<(u64, Vec<u8>)> {
    let mut values = ElementAccumulator { datatype, expected, count: 0, bytes: Vec::new() };
    // Each value takes at least two bytes, a digit and a comma, so the rest of the document bounds the allocation.
    let most = u64::try_from(json.remaining()).unwrap_or(u64::MAX).div_ceil(2).min(expected);
    let size = datatype.size().unwrap_or(size_of::<u32>());
    values.bytes.reserve_exact(usize::try_from(most).unwrap_or(0).saturating_mul(size));
    json.nested(|json, kind| match datatype {
        Datatype::Bool => values.boolean(json, kind),
        Datatype::Uint8 => values.integer(json, kind, u8::to_le_bytes),
        Datatype::Uint16 => values.integer(json, kind, u16::to_le_bytes),
        Datatype::Uint32 => values.integer(json, kind, u32::to_le_bytes),
        Datatype::Uint64 => values.integer(json, kind, u64::to_le_bytes),
        Datatype::Int8 => values.integer(json, kind, i8::to_le_bytes),
        Datatype::Int16 => values.integer(json, kind, i16::to_le_bytes),
        Datatype::Int32 => values.integer(json, kind, i32::to_le_bytes),
        Datatype::Int64 => values.integer(json, kind, i64::to_le_bytes),
        Datatype::Fp32 => values.float(json, kind, f32::is_finite, f32::to_le_bytes),
        Datatype::Fp64 => values.float(json, kind, f64::is_finite, f64::to_le_bytes),
        Datatype::Bytes => values.text(json, kind),
        Datatype::Fp16 | Datatype::Bf16 => Err(values.wrong_element_kind(json, kind)),
    })?;
    Ok((values.count, values.bytes))
}

/// Accumulator of the values read from a JSON array.
struct ElementAccumulator {
    datatype: Datatype,
    expected: u64,
    count: u64,
    bytes: Vec<u8>,
}

impl ElementAccumulator {
    fn boolean(&mut self, json: &mut JsonReader<'_>, kind: JsonKind) -> Result<()> {
        if kind != JsonKind::Boolean {
            return Err(self.wrong_element_kind(json, kind));
        }
        let value = json.boolean()?;
        self.push(&[u8::from(value)]);
        Ok(())
    }

    fn integer<T: FromStr + Default, const N: usize>(
        &mut self,
        json: &mut JsonReader<'_>,
        kind: JsonKind,
        bytes: fn(T) -> [u8; N],
    ) -> Result<()> {
        let at = json.position();
        let number = self.number(json, kind)?;
        let value = match number {
            JsonNumber::Integer("-0") => Some(T::default()),
            JsonNumber::Integer(text) => text.parse().ok(),
            JsonNumber::Fraction(_) | JsonNumber::NotFinite(_) => None,
        };
        let value = value.ok_or_else(|| self.out_of_range(at, number))?;
        self.push(&bytes(value));
        Ok(())
    }

    fn float<T: FromStr + Copy, const N: usize>(
        &mut self,
        json: &mut JsonReader<'_>,
        kind: JsonKind,
        is_finite: fn(T) -> bool,
        bytes: fn(T) -> [u8; N],
    ) -> Result<()> {
        let at = json.position();
        let number = self.number(json, kind)?;
        let is_not_finite = matches!(number, JsonNumber::NotFinite(_));
        // `FromStr` of Rust's floats also reads the three tokens. A finite number that rounds to infinity is out of range.
        let value = number.text().parse().ok().filter(|&value| is_not_finite || is_finite(value));
        let value = value.ok_or_else(|| self.out_of_range(at, number))?;
        self.push(&bytes(value));
        Ok(())
    }

    fn text(&mut self, json: &mut JsonReader<'_>, kind: JsonKind) -> Result<()> {
        if kind != JsonKind::String {
            return Err(self.wrong_element_kind(json, kind));
        }
        let text = json.string()?;
        let len = u32::try_from(text.len()).map_err(|_| {
            json.error(JsonProblem::Element {
                element: self.count,
                datatype: self.datatype,
                found: format!("a string of {} bytes", text.len()),
            })
        })?;
        if self.count < self.expected {
            self.bytes.extend(len.to_le_bytes());
        }
        self.push(text.as_bytes());
        Ok(())
    }

    fn number<'j>(&self, json: &mut JsonReader<'j>, kind: JsonKind) -> Result<JsonNumber<'j>> {
        if kind == JsonKind::Number { json.number() } else { Err(self.wrong_element_kind(json, kind)) }
    }

    /// Counts an element, and appends its bytes unless the shape is already full.
    fn push(&mut self, element: &[u8]) {
        if self.count < self.expected {
            self.bytes.extend_from_slice(element);
        }
        self.count = self.count.saturating_add(1);
    }

    fn wrong_element_kind(&self, json: &JsonReader<'_>, found: JsonKind) -> Error {
        let problem =
            JsonProblem::Element { element: self.count, datatype: self.datatype, found: found.to_string() };
        json.error(problem)
    }

    fn out_of_range(&self, at: usize, number: JsonNumber<'_>) -> Error {
        let found = format!("`{}`", truncate_for_message(number.text()));
        let problem = JsonProblem::Element { element: self.count, datatype: self.datatype, found };
        Error::Json { at, path: String::new(), problem }
    }
}

/// Checks that `data` encodes a tensor of this datatype and shape: data size, BOOL values of 0 or 1, BYTES length prefixes.
pub(crate) fn check(tensor: &TensorLabel, datatype: Datatype, shape: &[u64], data: &[u8]) -> Result<()> {
    let too_large = || Error::ShapeOverflow { tensor: tensor.clone(), shape: shape.to_vec() };
    let elements = shape_element_count(shape).ok_or_else(too_large)?;
    let Some(size) = datatype.size() else { return check_bytes_elements(tensor, elements, data) };
    let expected =
        u64::try_from(size).ok().and_then(|size| elements.checked_mul(size)).ok_or_else(too_large)?;
    let found = length_u64(data);
    if found != expected {
        return Err(Error::DataSizeMismatch {
            tensor: tensor.clone(),
            shape: shape.to_vec(),
            datatype,
            expected,
            found,
        });
    }
    if datatype == Datatype::Bool
        && let Some((&found, element)) = data.iter().zip(0..).find(|(byte, _)| **byte > 1)
    {
        return Err(Error::NotBool { tensor: tensor.clone(), element, found });
    }
    Ok(())
}

fn check_bytes_elements(tensor: &TensorLabel, elements: u64, data: &[u8]) -> Result<()> {
    let mut rest = data;
    // Bounded by the data, whatever the shape claims: each iteration consumes a length prefix of four bytes or returns.
    for element in 0..elements {
        rest = match split_bytes_element(rest) {
            Ok((_, rest)) => rest,
            Err(expected) => {
                return Err(Error::TruncatedElement {
                    tensor: tensor.clone(),
                    element,
                    expected,
                    found: length_u64(rest),
                });
            }
        };
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(Error::TrailingTensorData { tensor: tensor.clone(), elements, found: length_u64(rest) })
    }
}

/// Iterates over the elements of a BYTES tensor. Stops at the first length prefix that exceeds the data; the tensors of a
/// parsed request have none.
pub fn bytes_elements(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let (text, after) = split_bytes_element(rest).ok()?;
        rest = after;
        Some(text)
    })
}

/// Encodes elements as the data of a BYTES tensor, or returns `None` if an element has 4 GiB or more.
pub fn encode_bytes_elements<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for text in texts {
        bytes.extend(u32::try_from(text.as_ref().len()).ok()?.to_le_bytes());
        bytes.extend_from_slice(text.as_ref());
    }
    Some(bytes)
}

/// Splits off the first element of a BYTES tensor, or fails with the number of bytes that the element or its length needs.
fn split_bytes_element(bytes: &[u8]) -> Result<(&[u8], &[u8]), u64> {
    let (len, rest) = bytes.split_first_chunk().ok_or(4_u64)?;
    let len = u32::from_le_bytes(*len);
    usize::try_from(len)
        .ok()
        .and_then(|len| rest.split_at_checked(len))
        .ok_or(u64::from(len).saturating_add(4))
}

/// Returns the length of a slice as `u64`.
pub(crate) fn length_u64(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Writes the elements as a flat JSON array. The caller has [checked](check) the data.
pub(crate) fn to_json(
    out: &mut Vec<u8>,
    tensor: &TensorLabel,
    datatype: Datatype,
    data: &[u8],
) -> Result<()> {
    out.push(b'[');
    match datatype {
        Datatype::Bool => {
            write_elements(out, data, |out, [byte]| write::boolean(out, byte != 0));
        }
        Datatype::Uint8 => {
            write_elements(out, data, |out, bytes| write::integer(out, u8::from_le_bytes(bytes)));
        }
        Datatype::Uint16 => {
            write_elements(out, data, |out, bytes| write::integer(out, u16::from_le_bytes(bytes)));
        }
        Datatype::Uint32 => {
            write_elements(out, data, |out, bytes| write::integer(out, u32::from_le_bytes(bytes)));
        }
        Datatype::Uint64 => {
            write_elements(out, data, |out, bytes| write::integer(out, u64::from_le_bytes(bytes)));
        }
        Datatype::Int8 => {
            write_elements(out, data, |out, bytes| write::integer(out, i8::from_le_bytes(bytes)));
        }
        Datatype::Int16 => {
            write_elements(out, data, |out, bytes| write::integer(out, i16::from_le_bytes(bytes)));
        }
        Datatype::Int32 => {
            write_elements(out, data, |out, bytes| write::integer(out, i32::from_le_bytes(bytes)));
        }
        Datatype::Int64 => {
            write_elements(out, data, |out, bytes| write::integer(out, i64::from_le_bytes(bytes)));
        }
        Datatype::Fp32 => write_elements(out, data, |out, bytes| write::f32(out, f32::from_le_bytes(bytes))),
        Datatype::Fp64 => write_elements(out, data, |out, bytes| write::f64(out, f64::from_le_bytes(bytes))),
        Datatype::Bytes => {
            for (text, element) in bytes_elements(data).zip(0..) {
                let text = std::str::from_utf8(text)
                    .map_err(|_| Error::NotUtf8Element { tensor: tensor.clone(), element })?;
                if element > 0 {
                    out.push(b',');
                }
                write::text(out, text);
            }
        }
        Datatype::Fp16 | Datatype::Bf16 => {
            return Err(Error::NoJson {
                tensor: tensor.clone(),
                datatype,
                parameter: tensor.binary_parameter(),
            });
        }
    }
    out.push(b']');
    Ok(())
}

/// Writes elements of `N` bytes each, separated by commas.
fn write_elements<const N: usize>(out: &mut Vec<u8>, data: &[u8], write: impl Fn(&mut Vec<u8>, [u8; N])) {
    for (n, element) in data.as_chunks().0.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write(out, *element);
    }
}

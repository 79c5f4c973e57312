//! safetensors: the length of a JSON header in eight bytes, the header, the tensors' bytes.
//!
//! Facts: the format section of the safetensors README and `safetensors/src/tensor.rs` 0.8. Tensors are
//! contiguous and little-endian, and cover the bytes behind the header without holes or overlaps. `F4`
//! counts single values in its shape, PyTorch's `float4_e2m1fn_x2` counts pairs.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use mapped::MappedFile;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use tensor::{Dtype, Storage, Tensor, contiguous_strides};

use super::inflate::Inflated;
use super::{Bytes, Contents, Format};
use crate::{Error, Result};

/// The longest header, in bytes, as the format has it.
const MAX_HEADER: u64 = 100_000_000;
/// Bytes of the header's length.
const LENGTH: usize = 8;
const METADATA: &str = "__metadata__";

/// The format's names of the dtypes, and how many of its elements are one of PyTorch's.
const DTYPES: &[(&str, Dtype, u64)] = &[
    ("F64", Dtype::Float64, 1),
    ("F32", Dtype::Float32, 1),
    ("F16", Dtype::Float16, 1),
    ("BF16", Dtype::BFloat16, 1),
    ("I64", Dtype::Int64, 1),
    ("I32", Dtype::Int32, 1),
    ("I16", Dtype::Int16, 1),
    ("I8", Dtype::Int8, 1),
    ("U64", Dtype::UInt64, 1),
    ("U32", Dtype::UInt32, 1),
    ("U16", Dtype::UInt16, 1),
    ("U8", Dtype::UInt8, 1),
    ("BOOL", Dtype::Bool, 1),
    ("C64", Dtype::Complex64, 1),
    ("F8_E4M3", Dtype::Float8E4M3Fn, 1),
    ("F8_E4M3FNUZ", Dtype::Float8E4M3FnUz, 1),
    ("F8_E5M2", Dtype::Float8E5M2, 1),
    ("F8_E5M2FNUZ", Dtype::Float8E5M2FnUz, 1),
    ("F8_E8M0", Dtype::Float8E8M0FnU, 1),
    ("F4", Dtype::Float4E2M1FnX2, 2),
];

/// A tensor over the file.
#[derive(Debug)]
pub(super) struct View {
    dtype: Dtype,
    shape: Vec<u64>,
    range: Range<usize>,
}

impl View {
    pub(super) fn tensor(&self, file: &Arc<MappedFile>) -> Result<Tensor> {
        // `open` compared the range with the file.
        let storage =
            Storage::mapped(file, self.range.clone(), None).unwrap_or_else(|| Storage::owned(Vec::new()));
        let stride = contiguous_strides(&self.shape);
        Ok(Tensor::new(self.dtype, self.shape.clone(), stride, 0, storage)?)
    }
}

/// Whether a file starts with the length of a header, and a header.
pub(crate) fn recognises(bytes: &[u8]) -> bool {
    // Lengths that no file has are the text of something else.
    header_len(bytes).is_some_and(|len| len < 1 << 40) && bytes.get(LENGTH) == Some(&b'{')
}

fn header_len(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}

pub(super) fn open(file: MappedFile) -> Result<Contents> {
    let damaged = |reason: String| Error::Layout { record: "the header".to_owned(), reason };
    let bytes = file.bytes();
    let len = header_len(bytes).unwrap_or_default();
    if len > MAX_HEADER {
        return Err(damaged(format!(
            "it has {len} bytes, more than the {MAX_HEADER} that the format allows"
        )));
    }
    // At most MAX_HEADER.
    let start = LENGTH.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
    let Some(text) = bytes.get(LENGTH..start) else {
        let missing = start.saturating_sub(bytes.len());
        return Err(Error::Cut {
            reason: format!("it ends within its header of {len} bytes and {missing} of them are missing"),
        });
    };
    let Header { metadata, tensors } =
        serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    let available = (bytes.len() as u64).saturating_sub(start as u64);
    check_layout(&tensors, available)?;
    let mut direct = Vec::with_capacity(tensors.len());
    for (name, info) in tensors {
        match view(&info, start) {
            Ok(view) => direct.push((name, view)),
            Err(reason) => return Err(of(&name, reason)),
        }
    }
    let pickle = pickled(&metadata).map_err(|error| damaged(error.to_string()))?;
    let pickle = Bytes::Inflated(Inflated::Memory(pickle));
    Ok(Contents { direct, ..Contents::new(file, Format::Safetensors, pickle) })
}

/// What stands beside the tensors as a pickle, so that it becomes values as those of other files.
fn pickled(metadata: &[(String, String)]) -> pickle_vm::Result<Vec<u8>> {
    let mut out = pickle_vm::Writer::new();
    out.empty_dict();
    if !metadata.is_empty() {
        out.text(METADATA)?;
        out.empty_dict();
        for (name, value) in metadata {
            out.text(name)?;
            out.text(value)?;
            out.setitem();
        }
        out.setitem();
    }
    Ok(out.finish())
}

/// Something is wrong with the tensor `name`.
fn of(name: &str, reason: String) -> Error {
    let reason = Error::Layout { record: "its entry in the header".to_owned(), reason };
    Error::Tensor { name: name.to_owned(), reason: Box::new(reason) }
}

/// Refuses holes, overlaps, and bytes past the end of the file.
fn check_layout(tensors: &[(String, Info)], available: u64) -> Result<()> {
    let mut in_order: Vec<&(String, Info)> = tensors.iter().collect();
    in_order.sort_by_key(|(_, info)| info.data_offsets);
    let mut end = 0;
    let mut before: Option<&str> = None;
    for (name, Info { data_offsets: (first, last), .. }) in in_order {
        if last < first {
            return Err(of(name, format!("it ends at byte {last}, before its start at byte {first}")));
        }
        if *first != end {
            let what = if *first < end { "overlaps" } else { "leaves a hole behind" };
            let what = before.map_or_else(
                || "leaves a hole behind the header".to_owned(),
                |before| format!("{what} tensor `{}`", before.escape_debug()),
            );
            return Err(of(name, format!("it starts at byte {first} and {what}, which ends at byte {end}")));
        }
        (end, before) = (*last, Some(name.as_str()));
    }
    if end > available {
        let missing = end.saturating_sub(available);
        let past = |info: &Info| info.data_offsets.1 > available;
        let mut cut: Vec<&(String, Info)> = tensors.iter().filter(|(_, info)| past(info)).collect();
        cut.sort_by_key(|(_, info)| info.data_offsets);
        let first = cut.first().map_or("", |(name, _)| name);
        return Err(Error::Cut {
            reason: format!(
                "its header describes {end} bytes of tensors and {missing} of them are missing, from tensor `{}` on",
                first.escape_debug()
            ),
        });
    }
    if end < available {
        let reason = format!("{} bytes follow the last tensor", available.saturating_sub(end));
        return Err(Error::Layout { record: "the file".to_owned(), reason });
    }
    Ok(())
}

fn view(info: &Info, start: usize) -> Result<View, String> {
    let Some((_, dtype, packed)) = DTYPES.iter().find(|(name, ..)| *name == info.dtype) else {
        return Err(format!("its dtype `{}` is none of PyTorch's", info.dtype.escape_debug()));
    };
    let mut shape = info.shape.clone();
    if *packed > 1 {
        match shape.last_mut() {
            Some(last) if last.is_multiple_of(*packed) => {
                *last = last.checked_div(*packed).unwrap_or_default();
            }
            _ => return Err(format!("shape {:?} of {} does not end in whole bytes", info.shape, info.dtype)),
        }
    }
    let (first, last) = info.data_offsets;
    let needed = shape.iter().try_fold(dtype.size(), |product, size| product.checked_mul(*size));
    let held = last.saturating_sub(first);
    if needed != Some(held) {
        let needed = needed.map_or_else(|| "more than 2^64".to_owned(), |needed| needed.to_string());
        return Err(format!("shape {:?} of {} needs {needed} bytes, it has {held}", info.shape, info.dtype));
    }
    // Inside the file, so both fit.
    let at = |n: u64| start.saturating_add(usize::try_from(n).unwrap_or(usize::MAX));
    Ok(View { dtype: *dtype, shape, range: at(first)..at(last) })
}

/// The header, in its own order.
struct Header {
    metadata: Vec<(String, String)>,
    tensors: Vec<(String, Info)>,
}

/// What the header says of a tensor.
#[derive(serde::Deserialize)]
struct Info {
    dtype: String,
    /// In elements.
    shape: Vec<u64>,
    /// First byte and the one behind the last, from the end of the header.
    data_offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut seen = std::collections::HashSet::new();
                let mut header = Header { metadata: Vec::new(), tensors: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        let text = format!("tensor `{}` is there twice", name.escape_debug());
                        return Err(serde::de::Error::custom(text));
                    }
                    if name == METADATA {
                        header.metadata = map.next_value::<Metadata>()?.0;
                    } else {
                        header.tensors.push((name, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// `__metadata__`, in its own order; it may be `null`.
struct Metadata(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_unit<E>(self) -> Result<Metadata, E> {
                Ok(Metadata(Vec::new()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Metadata(entries))
            }
        }
        deserializer.deserialize_any(Entries)
    }
}

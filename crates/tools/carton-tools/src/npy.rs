//! Reads arrays in NumPy's `.npy` format.
//!
//! Facts: `numpy/lib/format.py`. A header that NumPy writes is a Python dict of three known keys, so the reader searches for
//! these keys. Any other header is rejected.

use std::sync::Arc;

use byte_source::{Region, Source, details};
use tensor::{ByteOrder, Dtype, Storage, Tensor, contiguous_strides};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Reason for which an `.npy` array cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The file does not begin with the magic bytes and a whole header.
    #[error("it is not an .npy file")]
    NotNpy,
    /// The header or a string is not what NumPy writes.
    #[error("{0}")]
    Malformed(&'static str),
    /// The header lacks this key.
    #[error("the header has no `{0}`")]
    Missing(&'static str),
    /// Carton has no arrays of this kind.
    #[error("arrays {0} are not supported")]
    Unsupported(&'static str),
    /// Carton does not have this element type.
    #[error("Carton has no tensors of NumPy's type `{}`", descr.escape_debug())]
    Dtype {
        /// NumPy's name of the type.
        descr: String,
    },
    /// The shape does not fit the elements.
    #[error("{0}")]
    Tensor(tensor::Error),
    /// The length of the data is not the one that shape and type need.
    #[error("{found} bytes follow the header, {}", needed(*expected))]
    Length {
        /// Number of bytes after the header.
        found: u64,
        /// Number of bytes that the shape needs; `None` if it does not fit 64 bits.
        expected: Option<u64>,
    },
}

details! {
    NpyError {
        Input: NotNpy;
        Unsupported: Unsupported, Dtype;
        Damaged: Malformed, Missing, Tensor, Length;
    }
}

fn needed(expected: Option<u64>) -> String {
    expected.map_or_else(
        || "the shape needs more than can be counted".to_owned(),
        |n| format!("the shape needs {n}"),
    )
}

/// Elements of an `.npy` array.
#[derive(Debug)]
pub(crate) enum NpyArray {
    Numbers(Tensor),
    /// Strings in C order.
    Strings {
        shape: Vec<u64>,
        data: Vec<String>,
    },
}

/// Parses the array in `file`. Numbers stay in the file, as a tensor over its bytes.
pub(crate) fn read_npy(file: &Arc<dyn Source>) -> Result<NpyArray, NpyError> {
    let bytes = file.share(0..file.len()).unwrap_or_default();
    let (header, start) = header(&bytes).ok_or(NpyError::NotNpy)?;
    let header = std::str::from_utf8(header).map_err(|_| NpyError::Malformed("the header is not text"))?;
    let descr = quoted(header_value(header, "descr")?).ok_or(NpyError::Unsupported("with named fields"))?;
    let fortran = match header_value(header, "fortran_order")? {
        text if text.starts_with("True") => true,
        text if text.starts_with("False") => false,
        _ => return Err(NpyError::Malformed("fortran_order is neither True nor False")),
    };
    let shape = shape(header_value(header, "shape")?)
        .ok_or(NpyError::Malformed("the shape is not a tuple of numbers"))?;
    let order = if descr.starts_with('>') { ByteOrder::Big } else { ByteOrder::Little };
    let kind = descr.trim_start_matches(['<', '>', '|', '=']);
    if let Some(characters) = kind.strip_prefix('U') {
        let characters: usize =
            characters.parse().map_err(|_| NpyError::Malformed("the type of the strings has no length"))?;
        if fortran {
            return Err(NpyError::Unsupported("of strings in Fortran order"));
        }
        let data = decode_strings(bytes.get(start..).unwrap_or_default(), &shape, characters, order)?;
        return Ok(NpyArray::Strings { shape, data });
    }
    let dtype = dtype(kind).ok_or_else(|| NpyError::Dtype { descr: descr.to_owned() })?;
    let region = Region::new(file, start as u64..file.len()).ok_or(NpyError::NotNpy)?;
    let storage = Storage::stored(region, None).with_byte_order(order, dtype.component_size());
    let stride = strides(&shape, fortran);
    let tensor = Tensor::new(dtype, shape, stride, 0, storage).map_err(NpyError::Tensor)?;
    let (found, expected) = (tensor.storage().len(), tensor.nbytes());
    if found == expected {
        Ok(NpyArray::Numbers(tensor))
    } else {
        Err(NpyError::Length { found, expected: Some(expected) })
    }
}

/// Returns the header's text, and the offset of the data.
fn header(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_at_checked(2)?;
    let width = if version.first()? == &1 { 2 } else { 4 };
    let (len, rest) = rest.split_at_checked(width)?;
    let len = len.iter().rev().fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte));
    let header = rest.get(..len)?;
    Some((header, bytes.len().checked_sub(rest.len())?.checked_add(len)?))
}

/// Returns the header's text after `key`.
fn header_value<'h>(header: &'h str, key: &'static str) -> Result<&'h str, NpyError> {
    let found = header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    found.ok_or(NpyError::Missing(key))
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.split('\'').next()
}

fn shape(text: &str) -> Option<Vec<u64>> {
    let inner = text.strip_prefix('(')?.split(')').next()?;
    let sizes = inner.split(',').map(str::trim).filter(|size| !size.is_empty());
    sizes.map(|size| size.parse().ok()).collect()
}

fn strides(shape: &[u64], fortran: bool) -> Vec<u64> {
    if !fortran {
        return contiguous_strides(shape);
    }
    let reversed: Vec<u64> = shape.iter().rev().copied().collect();
    contiguous_strides(&reversed).into_iter().rev().collect()
}

fn dtype(kind: &str) -> Option<Dtype> {
    Some(match kind {
        "f4" => Dtype::Float32,
        "f8" => Dtype::Float64,
        "i1" => Dtype::Int8,
        "i2" => Dtype::Int16,
        "i4" => Dtype::Int32,
        "i8" => Dtype::Int64,
        "u1" => Dtype::UInt8,
        "u2" => Dtype::UInt16,
        "u4" => Dtype::UInt32,
        "u8" => Dtype::UInt64,
        _ => return None,
    })
}

/// Decodes UTF-32 strings of a fixed length, padded with zeros.
fn decode_strings(
    bytes: &[u8],
    shape: &[u64],
    characters: usize,
    order: ByteOrder,
) -> Result<Vec<String>, NpyError> {
    let numel = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    let width = characters.checked_mul(4);
    let expected = numel.zip(width).and_then(|(numel, width)| numel.checked_mul(width as u64));
    let found = bytes.len() as u64;
    if expected != Some(found) {
        return Err(NpyError::Length { found, expected });
    }
    // Strings of length 0 take no bytes, so their number has no bound.
    let width =
        width.filter(|width| *width > 0).ok_or(NpyError::Unsupported("of strings without characters"))?;
    bytes
        .chunks_exact(width)
        .map(|string| decode_utf32(string, order).ok_or(NpyError::Malformed("a string is not Unicode")))
        .collect()
}

fn decode_utf32(string: &[u8], order: ByteOrder) -> Option<String> {
    let characters = string.chunks_exact(4).map(|unit| {
        let unit: [u8; 4] = unit.try_into().unwrap_or_default();
        match order {
            ByteOrder::Little => u32::from_le_bytes(unit),
            ByteOrder::Big => u32::from_be_bytes(unit),
        }
    });
    let text: Option<String> = characters.map(char::from_u32).collect();
    Some(text?.trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(descr: &str, order: &str, shape: &str, data: &[u8]) -> Result<NpyArray, NpyError> {
        let header = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let len = u16::try_from(header.len()).expect("it is short").to_le_bytes();
        file(&[MAGIC, &[1, 0], &len, header.as_bytes(), data].concat())
    }

    fn file(bytes: &[u8]) -> Result<NpyArray, NpyError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x.npy");
        std::fs::write(&path, bytes).expect("it can be written");
        read_npy(
            &(Arc::new(byte_source::MappedFile::open(&path).expect("it was written")) as Arc<dyn Source>),
        )
    }

    #[test]
    fn numbers_stay_in_place() {
        let Ok(NpyArray::Numbers(tensor)) = array("'<i2'", "True", "(2, 3)", &[0; 12]) else {
            panic!("not numbers")
        };
        assert_eq!(
            (tensor.dtype(), tensor.shape(), tensor.stride()),
            (Dtype::Int16, &[2, 3][..], &[1, 2][..])
        );
        assert!(array("'>f8'", "False", "()", &[0; 8]).is_ok());
    }

    #[test]
    fn strings_are_decoded() {
        let text: Vec<u8> = "miau".chars().flat_map(|c| u32::from(c).to_be_bytes()).collect();
        let Ok(NpyArray::Strings { shape, data }) = array("'>U2'", "False", "(2,)", &text) else {
            panic!("not strings")
        };
        assert_eq!((shape, data), (vec![2], vec!["mi".to_owned(), "au".to_owned()]));
    }

    #[test]
    fn malformed_arrays_are_rejected() {
        let error = |descr: &str, order: &str, shape: &str| {
            array(descr, order, shape, &[0xff; 8]).map(|_| ()).expect_err("malformed")
        };
        assert_eq!(file(b"no array").map(|_| ()), Err(NpyError::NotNpy));
        assert_eq!(
            file(b"\x93NUMPY\x01\x00\x01\x00\xff").map(|_| ()),
            Err(NpyError::Malformed("the header is not text"))
        );
        assert_eq!(file(b"\x93NUMPY\x01\x00\x01\x00{").map(|_| ()), Err(NpyError::Missing("descr")));
        assert_eq!(error("[('a', '<f4')]", "False", "(2,)"), NpyError::Unsupported("with named fields"));
        assert_eq!(
            error("'<f4'", "None", "(2,)"),
            NpyError::Malformed("fortran_order is neither True nor False")
        );
        assert_eq!(
            error("'<f4'", "False", "(x,)"),
            NpyError::Malformed("the shape is not a tuple of numbers")
        );
        assert_eq!(error("'<f2'", "False", "(4,)"), NpyError::Dtype { descr: "<f2".to_owned() });
        assert_eq!(
            error("'<U'", "False", "(4,)"),
            NpyError::Malformed("the type of the strings has no length")
        );
        assert_eq!(error("'<U2'", "True", "(1,)"), NpyError::Unsupported("of strings in Fortran order"));
        assert_eq!(error("'<U0'", "False", "(0,)"), NpyError::Length { found: 8, expected: Some(0) });
        assert_eq!(error("'<U2'", "False", "(1,)"), NpyError::Malformed("a string is not Unicode"));
        assert_eq!(error("'<f4'", "False", "(1,)"), NpyError::Length { found: 8, expected: Some(4) });
        assert!(matches!(error("'<f4'", "False", "(3,)"), NpyError::Tensor(_)));
        let huge = format!("({},)", u64::MAX);
        assert_eq!(error("'<U2'", "False", &huge), NpyError::Length { found: 8, expected: None });
    }
}

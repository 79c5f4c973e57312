//! Arrays in NumPy's `.npy` format.
//!
//! Facts: `numpy/lib/format.py`. A header that NumPy writes is a Python dict of three known keys, so it is
//! read by looking for these; anything else is refused.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use mapped::MappedFile;
use tensor::{ByteOrder, Dtype, Storage, Tensor};

const MAGIC: &[u8] = b"\x93NUMPY";

/// An array's elements.
pub(crate) enum Array {
    Numbers(Tensor),
    /// In C order.
    Strings {
        shape: Vec<u64>,
        data: Vec<String>,
    },
}

/// The array in `file`, its numbers in place.
pub(crate) fn read(file: &Arc<MappedFile>) -> Result<Array> {
    let bytes = file.bytes();
    let (header, start) = header(bytes).context("no .npy file")?;
    let header = std::str::from_utf8(header).context("the header is no text")?;
    let descr = quoted(value(header, "descr")?).context("arrays with named fields are not read")?;
    let fortran = match value(header, "fortran_order")? {
        text if text.starts_with("True") => true,
        text if text.starts_with("False") => false,
        _ => bail!("fortran_order is neither True nor False"),
    };
    let shape = shape(value(header, "shape")?).context("the shape is no tuple of numbers")?;
    let order = if descr.starts_with('>') { ByteOrder::Big } else { ByteOrder::Little };
    let kind = descr.trim_start_matches(['<', '>', '|', '=']);
    let stride = strides(&shape, fortran);
    if let Some(characters) = kind.strip_prefix('U') {
        let characters: usize = characters.parse().context("a string type without a length")?;
        if fortran {
            bail!("string arrays in Fortran order are not read");
        }
        let data = strings(bytes.get(start..).unwrap_or_default(), &shape, characters, order)?;
        return Ok(Array::Strings { shape, data });
    }
    let Some(dtype) = dtype(kind) else { bail!("Carton has no tensors of NumPy's {descr}") };
    let storage = Storage::mapped(file, start..bytes.len(), None).context("the file ends in its header")?;
    let storage = storage.with_byte_order(order, dtype.component_size());
    let tensor = Tensor::new(dtype, shape, stride, 0, storage)?;
    if tensor.nbytes() != tensor.storage().len() {
        bail!("{} bytes follow the header, the shape asks for {}", tensor.storage().len(), tensor.nbytes());
    }
    Ok(Array::Numbers(tensor))
}

/// The header's text, and where the data start.
fn header(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_at_checked(2)?;
    let width = if version.first()? == &1 { 2 } else { 4 };
    let (len, rest) = rest.split_at_checked(width)?;
    let len = len.iter().rev().fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte));
    let header = rest.get(..len)?;
    Some((header, bytes.len().checked_sub(rest.len())?.checked_add(len)?))
}

/// The text behind a key of the header.
fn value<'h>(header: &'h str, key: &str) -> Result<&'h str> {
    let found = header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    found.with_context(|| format!("there is no {key} in the header"))
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
    let mut stride = vec![0; shape.len()];
    let mut step = 1_u64;
    let mut set = |(stride, size): (&mut u64, &u64)| {
        *stride = step;
        step = step.saturating_mul(*size);
    };
    if fortran {
        stride.iter_mut().zip(shape).for_each(&mut set);
    } else {
        stride.iter_mut().zip(shape).rev().for_each(&mut set);
    }
    stride
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

/// UTF-32 strings of a fixed length, padded with zeros.
fn strings(bytes: &[u8], shape: &[u64], characters: usize, order: ByteOrder) -> Result<Vec<String>> {
    let numel = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    let width = characters.checked_mul(4);
    let needed = numel.zip(width).and_then(|(numel, width)| numel.checked_mul(width as u64));
    if needed != Some(bytes.len() as u64) {
        bail!("{} bytes follow the header, which is not what the shape asks for", bytes.len());
    }
    let Some(width) = width.filter(|width| *width > 0) else {
        // Strings of no characters take no bytes, so nothing bounds their number.
        bail!("strings of no characters are not read");
    };
    bytes.chunks_exact(width).map(|string| text(string, order)).collect()
}

fn text(string: &[u8], order: ByteOrder) -> Result<String> {
    let characters = string.chunks_exact(4).map(|unit| {
        let unit: [u8; 4] = unit.try_into().unwrap_or_default();
        match order {
            ByteOrder::Little => u32::from_le_bytes(unit),
            ByteOrder::Big => u32::from_be_bytes(unit),
        }
    });
    let text: Option<String> = characters.map(char::from_u32).collect();
    Ok(text.context("a string that is no Unicode")?.trim_end_matches('\0').to_owned())
}

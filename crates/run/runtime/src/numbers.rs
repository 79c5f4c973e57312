//! Reads the elements of tensors as numbers and as bytes.

use std::borrow::Cow;
use std::io;

use byte_source::Blob;
use tensor::{Dtype, Storage, Tensor, contiguous_strides};

use crate::{Error, Problem, Result};

/// Largest number of bytes by which a tensor may exceed its storage: an expanded scalar can have terabytes.
const EXPANSION_MAX: u64 = 256 << 20;

/// Returns the elements in C order, little-endian; borrowed from the mapped file where possible.
pub(crate) fn bytes_in_c_order<'t>(name: &str, tensor: &'t Tensor) -> Result<Cow<'t, [u8]>> {
    if let Some(bytes) = tensor.mapped_bytes() {
        return Ok(Cow::Borrowed(bytes));
    }
    let failed = |error: Error| error.in_tensor(name);
    let storage = tensor.storage().len();
    if tensor.nbytes() > storage.saturating_add(EXPANSION_MAX) {
        return Err(failed(Problem::ExpandedView { nbytes: tensor.nbytes(), storage }.into()));
    }
    let mut out = Vec::new();
    let len = usize::try_from(tensor.nbytes()).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
    out.try_reserve_exact(len).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
    tensor.gathered().write_to(&mut out).map_err(failed)?;
    Ok(Cow::Owned(out))
}

/// Converts the elements to the nearest f64; `None` if the dtype has no such conversion.
pub(crate) fn read_f64(name: &str, tensor: &Tensor) -> Result<Option<Vec<f64>>> {
    let Some(tensor) = tensor.cast(Dtype::Float64) else { return Ok(None) };
    let bytes = bytes_in_c_order(name, &tensor)?;
    Ok(Some(bytes.as_chunks::<8>().0.iter().map(|it| f64::from_le_bytes(*it)).collect()))
}

/// Converts the elements to i64; `None` unless the dtype is an integer type.
pub(crate) fn read_i64(name: &str, tensor: &Tensor) -> Result<Option<Vec<i64>>> {
    use Dtype::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    if !matches!(tensor.dtype(), Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64) {
        return Ok(None);
    }
    // A number of 2^63 or more becomes negative, and a negative token is not valid either.
    let Some(tensor) = tensor.cast(Int64) else { return Ok(None) };
    let bytes = bytes_in_c_order(name, &tensor)?;
    Ok(Some(bytes.as_chunks::<8>().0.iter().map(|it| i64::from_le_bytes(*it)).collect()))
}

/// Creates an f32 tensor in memory; `None` if the shape does not fit the numbers.
pub(crate) fn f32_tensor(shape: Vec<u64>, numbers: &[f32]) -> Option<Tensor> {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let stride = contiguous_strides(&shape);
    Tensor::new(Dtype::Float32, shape, stride, 0, Storage::owned(bytes)).ok()
}

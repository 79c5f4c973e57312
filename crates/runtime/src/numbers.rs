//! The elements of tensors as numbers and as bytes.

use std::borrow::Cow;
use std::io;

use mapped::Blob;
use tensor::{Conversion, Dtype, Seen, Storage, Tensor, contiguous_strides};

use crate::{Error, Result};

/// The elements in C order, little-endian: in place where that is possible.
pub(crate) fn bytes<'t>(name: &str, tensor: &'t Tensor) -> Result<Cow<'t, [u8]>> {
    if let Some(bytes) = tensor.mapped_bytes() {
        return Ok(Cow::Borrowed(bytes));
    }
    let failed = |reason| Error::Tensor { name: name.to_owned(), reason };
    let mut out = Vec::new();
    let len = usize::try_from(tensor.nbytes()).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
    out.try_reserve_exact(len).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
    tensor.gathered().write_to(&mut out).map_err(failed)?;
    Ok(Cow::Owned(out))
}

/// The elements as the nearest f64.
pub(crate) fn doubles(name: &str, tensor: &Tensor) -> Result<Option<Vec<f64>>> {
    let Some(tensor) = cast(tensor, Dtype::Float64) else { return Ok(None) };
    let bytes = bytes(name, &tensor)?;
    Ok(Some(bytes.as_chunks::<8>().0.iter().map(|it| f64::from_le_bytes(*it)).collect()))
}

/// The elements of a tensor of integers.
pub(crate) fn integers(name: &str, tensor: &Tensor) -> Result<Option<Vec<i64>>> {
    use Dtype::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    if !matches!(tensor.dtype(), Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64) {
        return Ok(None);
    }
    // A number above 2^63 becomes negative, which is not a token either.
    let Some(tensor) = cast(tensor, Int64) else { return Ok(None) };
    let bytes = bytes(name, &tensor)?;
    Ok(Some(bytes.as_chunks::<8>().0.iter().map(|it| i64::from_le_bytes(*it)).collect()))
}

/// The tensor in another dtype, converted whenever it is read.
pub(crate) fn cast(tensor: &Tensor, dtype: Dtype) -> Option<Tensor> {
    if tensor.dtype() == dtype {
        return Some(tensor.clone());
    }
    let conversion = Conversion::new(tensor.dtype(), dtype)?;
    let elements = tensor.storage().len().checked_div(tensor.dtype().size())?;
    let storage = tensor.storage().cast(conversion, &(0..elements), Seen::default())?;
    let (shape, stride) = (tensor.shape().to_vec(), tensor.stride().to_vec());
    Tensor::new(dtype, shape, stride, tensor.storage_offset(), storage).ok()
}

/// A tensor of f32 numbers in memory.
pub(crate) fn floats(shape: Vec<u64>, numbers: &[f32]) -> Option<Tensor> {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let stride = contiguous_strides(&shape);
    Tensor::new(Dtype::Float32, shape, stride, 0, Storage::owned(bytes)).ok()
}

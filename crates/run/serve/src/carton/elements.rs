//! Converts elements of tensors to output data.
//!
//! Facts: KServe's datatypes.

use byte_source::Blob;
use bytes::Bytes;
use kserve::Datatype;
use tensor::{Dtype, Tensor};

use super::request_error::failed;
use crate::model::ModelError;

/// Returns the KServe datatype with the same elements as `dtype`; `None` if there is none.
pub(super) fn datatype(dtype: Dtype) -> Option<Datatype> {
    Some(match dtype {
        Dtype::Bool => Datatype::Bool,
        Dtype::UInt8 => Datatype::Uint8,
        Dtype::UInt16 => Datatype::Uint16,
        Dtype::UInt32 => Datatype::Uint32,
        Dtype::UInt64 => Datatype::Uint64,
        Dtype::Int8 => Datatype::Int8,
        Dtype::Int16 => Datatype::Int16,
        Dtype::Int32 => Datatype::Int32,
        Dtype::Int64 => Datatype::Int64,
        Dtype::Float16 => Datatype::Fp16,
        Dtype::Float32 => Datatype::Fp32,
        Dtype::Float64 => Datatype::Fp64,
        Dtype::BFloat16 => Datatype::Bf16,
        _ => return None,
    })
}

/// Borrows the elements from the mapped file; `None` unless the file holds them in C order.
pub(super) fn mapped_elements(tensor: &Tensor) -> Option<Bytes> {
    tensor.mapped_bytes()?;
    Some(Bytes::from_owner(MappedElements(tensor.clone())))
}

/// Copies the elements into memory, in C order.
pub(super) fn gather_elements(tensor: &Tensor) -> Result<Bytes, ModelError> {
    let mut bytes = Vec::new();
    let len = usize::try_from(tensor.nbytes()).map_err(failed)?;
    bytes.try_reserve_exact(len).map_err(failed)?;
    tensor.gathered().write_to(&mut bytes).map_err(failed)?;
    Ok(Bytes::from(bytes))
}

/// Tensor whose [`Tensor::mapped_bytes`] are known to exist.
struct MappedElements(Tensor);

impl AsRef<[u8]> for MappedElements {
    fn as_ref(&self) -> &[u8] {
        self.0.mapped_bytes().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_have_the_datatype_of_their_name() {
        let named = |dtype: Dtype| datatype(dtype).map(Datatype::name);
        for (dtype, name) in [
            (Dtype::Bool, "BOOL"),
            (Dtype::UInt8, "UINT8"),
            (Dtype::UInt16, "UINT16"),
            (Dtype::UInt32, "UINT32"),
            (Dtype::UInt64, "UINT64"),
            (Dtype::Int8, "INT8"),
            (Dtype::Int16, "INT16"),
            (Dtype::Int32, "INT32"),
            (Dtype::Int64, "INT64"),
            (Dtype::Float16, "FP16"),
            (Dtype::Float32, "FP32"),
            (Dtype::Float64, "FP64"),
            (Dtype::BFloat16, "BF16"),
        ] {
            assert_eq!(named(dtype), Some(name));
        }
        assert_eq!(named(Dtype::Complex64), None);
    }
}

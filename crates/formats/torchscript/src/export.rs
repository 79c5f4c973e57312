//! How `forward` of the weights module converts a tensor to a dtype that Carton has.
//!
//! Facts: Carton's torchscript runner panics on bool, f16, bf16 and complex outputs. The text that does
//! the same in the module is `export` in `code/weights/text.rs`.

use tensor::{Dtype, Tensor};

use crate::{Dim, Error, Port, Result};

/// The dtype of the output, and whether a last dimension of real and imaginary part is added. Two numbers of
/// `float4_e2m1fn_x2` are returned as the byte that holds them: PyTorch 2.15 does not widen them. `None` for a dtype that
/// has no conversion.
pub fn exported(dtype: Dtype) -> Option<(Dtype, bool)> {
    Some(match dtype {
        Dtype::Bool | Dtype::Float4E2M1FnX2 => (Dtype::UInt8, false),
        Dtype::Float16
        | Dtype::BFloat16
        | Dtype::Float8E4M3Fn
        | Dtype::Float8E4M3FnUz
        | Dtype::Float8E5M2
        | Dtype::Float8E5M2FnUz
        | Dtype::Float8E8M0FnU => (Dtype::Float32, false),
        Dtype::Complex32 | Dtype::Complex64 => (Dtype::Float32, true),
        Dtype::Complex128 => (Dtype::Float64, true),
        Dtype::Float64
        | Dtype::Float32
        | Dtype::Int64
        | Dtype::Int32
        | Dtype::Int16
        | Dtype::Int8
        | Dtype::UInt8
        | Dtype::UInt16
        | Dtype::UInt32
        | Dtype::UInt64 => (dtype, false),
        _ => return None,
    })
}

/// The output that returns `tensor`.
pub(crate) fn port(name: &str, tensor: &Tensor) -> Result<Port> {
    let Some((dtype, pairs)) = exported(tensor.dtype()) else {
        return Err(Error::Dtype { tensor: name.to_owned(), dtype: tensor.dtype() });
    };
    let mut shape: Vec<Dim> = tensor.shape().iter().map(|size| Dim::Size(*size)).collect();
    if pairs {
        shape.push(Dim::Size(2));
    }
    let description = (dtype != tensor.dtype()).then(|| {
        let parts = if pairs { ", as real and imaginary parts" } else { "" };
        format!("{} in the checkpoint{parts}", tensor.dtype())
    });
    Ok(Port { name: name.to_owned(), dtype, shape, description, optional: false })
}

//! Output dtypes of the weights module: the conversion of each tensor dtype to a dtype that Carton has.
//!
//! Facts: Carton's torchscript runner panics on bool, f16, bf16 and complex outputs. The function `export` in
//! `code/weights/text.rs` does the same conversion in TorchScript.

use tensor::{Dtype, Tensor};

use crate::{Dim, ModulePort, Problem, Result};

/// Returns the output dtype of a tensor's dtype, and true if a last dimension of real and imaginary part is added. A pair of
/// `float4_e2m1fn_x2` values is returned as the byte that holds it: PyTorch 2.15 does not widen it. Returns `None` for a
/// dtype that has no conversion.
pub fn output_dtype(dtype: Dtype) -> Option<(Dtype, bool)> {
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

pub(crate) fn tensor_port(name: &str, tensor: &Tensor) -> Result<ModulePort> {
    let Some((dtype, pairs)) = output_dtype(tensor.dtype()) else {
        return Err(Problem::Dtype { tensor: name.to_owned(), dtype: tensor.dtype() }.into());
    };
    let mut shape: Vec<Dim> = tensor.shape().iter().map(|size| Dim::Size(*size)).collect();
    if pairs {
        shape.push(Dim::Size(2));
    }
    let description = (dtype != tensor.dtype()).then(|| {
        let parts = if pairs { ", as real and imaginary parts" } else { "" };
        format!("{} in the checkpoint{parts}", tensor.dtype())
    });
    Ok(ModulePort { name: name.to_owned(), dtype, shape, description, optional: false })
}

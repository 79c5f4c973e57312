//! Exports tensors as a module of weights returns them.
//!
//! Facts: `forward` of the weights module, in `torchscript/src/code/weights/text.rs`: bool is returned as uint8, small
//! floats as f32, and complex numbers with a last dimension of 2.

use tensor::{Dtype, Tensor};

use crate::{Error, Problem, Result};

/// Converts a tensor to the form in which the module returns it. Elements are converted when they are read.
pub(crate) fn export_tensor(name: &str, tensor: &Tensor) -> Result<Tensor> {
    let failed = || Error::from(Problem::OutputDtype(tensor.dtype())).in_tensor(name);
    let (dtype, pairs) = torchscript::output_dtype(tensor.dtype()).ok_or_else(failed)?;
    let seen = match tensor.dtype() {
        Dtype::Bool | Dtype::Float4E2M1FnX2 => reinterpret(tensor, Dtype::UInt8, false),
        Dtype::Complex32 => reinterpret(tensor, Dtype::Float16, pairs),
        Dtype::Complex64 => reinterpret(tensor, Dtype::Float32, pairs),
        Dtype::Complex128 => reinterpret(tensor, Dtype::Float64, pairs),
        _ => Some(tensor.clone()),
    };
    seen.and_then(|seen| seen.cast(dtype)).ok_or_else(failed)
}

/// Reinterprets the same bytes as a dtype of the same size, or as pairs of a dtype of half the size.
fn reinterpret(tensor: &Tensor, dtype: Dtype, pairs: bool) -> Option<Tensor> {
    let (mut shape, mut stride) = (tensor.shape().to_vec(), tensor.stride().to_vec());
    let mut offset = tensor.storage_offset();
    if pairs {
        stride = stride.into_iter().map(|step| step.saturating_mul(2)).collect();
        offset = offset.checked_mul(2)?;
        shape.push(2);
        stride.push(1);
    }
    Tensor::new(dtype, shape, stride, offset, tensor.storage().clone()).ok()
}

#[cfg(test)]
mod tests {
    use tensor::Storage;

    use super::*;
    use crate::numbers::{bytes_in_c_order, read_f64};

    fn values(dtype: Dtype, shape: &[u64], stride: &[u64], raw: &[u8]) -> (Dtype, Vec<u64>, Vec<f64>) {
        let storage = Storage::owned(raw.to_vec());
        let tensor = Tensor::new(dtype, shape.to_vec(), stride.to_vec(), 0, storage).expect("it fits");
        let exported = export_tensor("t", &tensor).expect("it can be returned");
        let numbers = read_f64("t", &exported).expect("in memory").expect("numbers");
        (exported.dtype(), exported.shape().to_vec(), numbers)
    }

    #[test]
    fn dtypes_that_carton_lacks_are_converted() {
        assert_eq!(values(Dtype::Bool, &[2], &[1], &[1, 0]), (Dtype::UInt8, vec![2], vec![1.0, 0.0]));
        // 1 and -2 in bfloat16 and float16.
        assert_eq!(
            values(Dtype::BFloat16, &[2], &[1], &[0x80, 0x3f, 0x00, 0xc0]),
            (Dtype::Float32, vec![2], vec![1.0, -2.0])
        );
        assert_eq!(
            values(Dtype::Float16, &[2], &[1], &[0x00, 0x3c, 0x00, 0xc0]),
            (Dtype::Float32, vec![2], vec![1.0, -2.0])
        );
        assert_eq!(
            values(Dtype::Complex32, &[1], &[1], &[0x00, 0x3c, 0x00, 0xc0]),
            (Dtype::Float32, vec![1, 2], vec![1.0, -2.0])
        );
        assert_eq!(values(Dtype::Int8, &[2], &[1], &[1, 255]), (Dtype::Int8, vec![2], vec![1.0, -1.0]));
    }

    #[test]
    fn views_of_complex_numbers_stay_views() {
        let raw: Vec<u8> = (0_u8..8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
        // The transpose of [[0+1i, 2+3i], [4+5i, 6+7i]].
        let (dtype, shape, numbers) = values(Dtype::Complex64, &[2, 2], &[1, 2], &raw);
        assert_eq!((dtype, shape), (Dtype::Float32, vec![2, 2, 2]));
        assert_eq!(numbers, [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
    }

    #[test]
    fn what_has_no_conversion_is_an_error() {
        let tensor = Tensor::new(Dtype::QInt8, vec![1], vec![1], 0, Storage::owned(vec![1])).expect("1 byte");
        let error = export_tensor("t", &tensor).expect_err("quantized").to_string();
        assert_eq!(error, "tensor `t`: qint8 cannot be an output of a carton");
        assert_eq!(bytes_in_c_order("t", &tensor).expect("in memory").as_ref(), [1]);
    }
}

//! Errors of writing tensors as a checkpoint.

use byte_source::details;
use tensor::Dtype;

/// Reason why tensors cannot be written as a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Two tensors have the same name.
    #[error("two tensors have the name `{}`", name.escape_debug())]
    Duplicate { name: String },
    /// A quantized tensor, which needs a quantizer as well as a storage.
    #[error("tensor `{}`: {dtype} is quantized", tensor.escape_debug())]
    Quantized { tensor: String, dtype: Dtype },
    /// A size, stride, offset or element count that does not fit PyTorch's signed 64-bit integers.
    #[error("tensor `{}`: {number} is larger than 2^63", tensor.escape_debug())]
    TooLarge {
        /// Name of the tensor.
        tensor: String,
        /// Size, stride, storage offset or element count.
        number: u64,
    },
    /// A number of tensors that does not fit 32 bits.
    #[error("{tensors} tensors are too many for one checkpoint")]
    TooManyTensors {
        /// Number of tensors to be written.
        tensors: usize,
    },
    /// An error in writing `data.pkl`.
    #[error("data.pkl: {0}")]
    Pickle(#[from] pickle_vm::Error),
}

details! {
    Problem {
        Input: Duplicate;
        Unsupported: Quantized, TooLarge, TooManyTensors, Pickle;
    }
}

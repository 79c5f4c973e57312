//! Errors of writing tensors as a checkpoint.

use byte_source::ErrorKind;
use tensor::Dtype;

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why tensors cannot be written as a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
    /// An error in the layout of the archive.
    #[error(transparent)]
    Zip(#[from] std::io::Error),
}

impl Error {
    /// Returns the kind of error, which tells the caller how to react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Duplicate { .. } => ErrorKind::Input,
            Self::Quantized { .. }
            | Self::TooLarge { .. }
            | Self::TooManyTensors { .. }
            | Self::Pickle(_) => ErrorKind::Unsupported,
            Self::Zip(reason) => reason.into(),
        }
    }
}

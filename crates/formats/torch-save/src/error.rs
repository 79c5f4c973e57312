//! Why tensors cannot become a checkpoint.

use byte_source::ErrorKind;
use tensor::Dtype;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why tensors cannot become a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two tensors have the same name.
    #[error("two tensors have the name `{}`", name.escape_debug())]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A quantized dtype, whose tensors need a quantizer as well as a storage.
    #[error("tensor `{}`: {dtype} is quantized", tensor.escape_debug())]
    Quantized {
        /// The tensor.
        tensor: String,
        /// Its dtype.
        dtype: Dtype,
    },
    /// A size or stride that PyTorch's signed numbers cannot express.
    #[error("tensor `{}`: {number} is larger than 2^63", tensor.escape_debug())]
    TooLarge {
        /// The tensor.
        tensor: String,
        /// The number.
        number: u64,
    },
    /// More tensors than 32 bits count.
    #[error("{tensors} tensors are too many for one checkpoint")]
    TooMany {
        /// How many there are.
        tensors: usize,
    },
    /// `data.pkl` cannot be written.
    #[error("data.pkl: {0}")]
    Pickle(#[from] pickle_vm::Error),
    /// The archive cannot be laid out.
    #[error(transparent)]
    Zip(#[from] std::io::Error),
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Duplicate { .. } => ErrorKind::Input,
            Self::Quantized { .. } | Self::TooLarge { .. } | Self::TooMany { .. } | Self::Pickle(_) => {
                ErrorKind::Unsupported
            }
            Self::Zip(reason) => reason.into(),
        }
    }
}

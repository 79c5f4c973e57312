//! Why a model cannot be made or run.

use byte_source::{Cancelled, ErrorKind, ReadError};
use tensor::Dtype;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model cannot be made or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A weight that should be a matrix has another number of dimensions.
    #[error("expected a matrix, found shape {shape:?}")]
    NotMatrix {
        /// The shape, in elements.
        shape: Vec<u64>,
    },
    /// A weight has a dtype that products are not defined for.
    #[error("expected weights of dtype float64, float32, bfloat16 or float16, found {found}")]
    Dtype {
        /// The dtype.
        found: Dtype,
    },
    /// A weight is larger than the address space.
    #[error("a weight of shape {shape:?} does not fit in memory")]
    TooLarge {
        /// The shape, in elements.
        shape: Vec<u64>,
    },
    /// A weight that had to be copied could not be read.
    #[error("cannot read a weight: {0}")]
    Read(#[source] ReadError),
    /// The threads could not be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// How many were wanted.
        threads: usize,
        /// The cause.
        reason: String,
    },
    /// A weight is not among the tensors.
    #[error("the weight `{}` is missing", weight.escape_debug())]
    MissingWeight {
        /// The usual name of the weight.
        weight: String,
    },
    /// A weight does not have the shape that the decoder's sizes imply.
    #[error("tensor `{}`: shape {found:?}, expected {expected:?}", tensor.escape_debug())]
    WeightShape {
        /// The tensor.
        tensor: String,
        /// Its shape, in elements.
        found: Vec<u64>,
        /// What the shape should be.
        expected: Vec<u64>,
    },
    /// There are no tokens, or they are not whole rows.
    #[error(
        "{found} tokens in a batch of {batch}, expected at least one for each sequence and as many for all"
    )]
    Tokens {
        /// How many there are.
        found: usize,
        /// The number of sequences.
        batch: usize,
    },
    /// Token ids that the model does not know.
    #[error("tokens holds ids from {low} to {high}, expected 0 to {}", vocab.saturating_sub(1))]
    TokenIds {
        /// The lowest id.
        low: i64,
        /// The highest.
        high: i64,
        /// The number of tokens that the model knows.
        vocab: usize,
    },
    /// Keys and values of other shapes or dtypes than the model's.
    #[error(
        "past_key is {} of shape {:?} and past_value {} of {:?}, expected float32 of [{layers}, {batch}, past, {heads}, {head_dim}] of both",
        key.0, key.1, value.0, value.1
    )]
    Past {
        /// The dtype and the shape of the keys, in elements.
        key: (Dtype, Vec<u64>),
        /// Those of the values.
        value: (Dtype, Vec<u64>),
        /// The number of layers.
        layers: usize,
        /// The number of sequences.
        batch: usize,
        /// The number of heads of keys and values.
        heads: usize,
        /// The size of a head.
        head_dim: usize,
    },
    /// The cache was made by another model, or for another number of sequences.
    #[error("the cache is of another model or batch")]
    OtherCache,
    /// Something whose size follows from the input does not fit in memory.
    #[error("{} do not fit in memory", if *nbytes == u64::MAX { "2^63 bytes or more".to_owned() } else { format!("{nbytes} bytes") })]
    Memory {
        /// Its size in bytes; the largest number if it has no size.
        nbytes: u64,
    },
    /// A view that does not fit its storage.
    #[error(transparent)]
    Tensor(#[from] tensor::Error),
    /// The caller stopped the work.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotMatrix { .. }
            | Self::MissingWeight { .. }
            | Self::WeightShape { .. }
            | Self::Tokens { .. }
            | Self::TokenIds { .. }
            | Self::Past { .. }
            | Self::OtherCache
            | Self::Tensor(_) => ErrorKind::Input,
            Self::Dtype { .. } | Self::TooLarge { .. } => ErrorKind::Unsupported,
            Self::Read(reason) => reason.kind(),
            Self::Threads { .. } | Self::Memory { .. } => ErrorKind::Io,
            Self::Cancelled(_) => ErrorKind::Cancelled,
        }
    }
}

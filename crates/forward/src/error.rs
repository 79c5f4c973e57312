//! Why a forward pass cannot be set up.

use std::io;

use tensor::Dtype;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a forward pass cannot be set up.
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
    Read(#[source] io::Error),
    /// The threads could not be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// How many were wanted.
        threads: usize,
        /// The cause.
        reason: String,
    },
}

//! Errors of loading and running a model.

use byte_source::details;
use tensor::Dtype;

/// Errors of loading and running a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A weight that should be a matrix has another number of dimensions.
    #[error("expected a matrix, found shape {shape:?}")]
    NotMatrix {
        /// Shape of the weight, in elements.
        shape: Vec<u64>,
    },
    /// A weight has a dtype that products are not defined for.
    #[error("expected weights of dtype float64, float32, bfloat16 or float16, found {found}")]
    Dtype { found: Dtype },
    /// A weight is larger than the address space.
    #[error("a weight of shape {shape:?} does not fit in memory")]
    TooLarge {
        /// Shape of the weight, in elements.
        shape: Vec<u64>,
    },
    /// The threads could not be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// Number of threads that were requested.
        threads: usize,
        reason: String,
    },
    /// A weight is not among the tensors.
    #[error("the weight `{}` is missing", weight.escape_debug())]
    MissingWeight {
        /// Name of the weight in the decoder's layout.
        weight: String,
    },
    /// A weight does not have the shape that the decoder's sizes imply.
    #[error("tensor `{}`: shape {found:?}, expected {expected:?}", tensor.escape_debug())]
    WeightShape {
        /// Name of the tensor.
        tensor: String,
        /// Shape of the tensor, in elements.
        found: Vec<u64>,
        /// Expected shape, in elements.
        expected: Vec<u64>,
    },
    /// The call has no tokens, or not as many for each sequence.
    #[error(
        "{found} tokens in a batch of {batch}, expected at least one for each sequence and as many for all"
    )]
    Tokens {
        /// Number of tokens in the call.
        found: usize,
        /// Number of sequences in the batch.
        batch: usize,
    },
    /// There are more tokens than the model has positions for.
    #[error("there are {tokens} tokens, and the model has positions for {positions}")]
    Positions { tokens: usize, positions: usize },
    /// Token ids that are not in the vocabulary.
    #[error("the input tokens has ids from {low} to {high}, expected ids from 0 to {}", vocab.saturating_sub(1))]
    TokenIds {
        low: i64,
        high: i64,
        /// Number of tokens that the model knows.
        vocab: usize,
    },
    /// Cached keys or values have another shape or dtype than the model's.
    #[error(
        "past_{kind}key is {} of shape {:?} and past_{kind}value {} of {:?}, expected float32 of [{layers}, {batch}, past, {heads}, {head_dim}] of both",
        key.0, key.1, value.0, value.1
    )]
    PastShape {
        /// Empty, or `window_` for layers with a window that have inputs of their own.
        kind: &'static str,
        /// Dtype and shape of the keys, in elements.
        key: (Dtype, Vec<u64>),
        /// Dtype and shape of the values, in elements.
        value: (Dtype, Vec<u64>),
        layers: usize,
        /// Number of sequences in the batch.
        batch: usize,
        /// Number of key-value heads.
        heads: usize,
        head_dim: usize,
    },
    /// States have another shape or dtype than the model's.
    #[error(
        "past_conv is {} of shape {:?} and past_state {} of {:?}, expected float32 of {:?} and {:?}",
        found[0].0, found[0].1, found[1].0, found[1].1, expected[0], expected[1]
    )]
    StateShape {
        /// Dtypes and shapes of what convolutions read, and of the states.
        found: [(Dtype, Vec<u64>); 2],
        /// Shapes of both.
        expected: [Vec<u64>; 2],
    },
    /// The cache was made by another model, or for another number of sequences.
    #[error("the cache is of another model or batch")]
    CacheMismatch,
    /// An allocation whose size follows from the input does not fit in memory.
    #[error("{} do not fit in memory", if *nbytes == u64::MAX { "2^63 bytes or more".to_owned() } else { format!("{nbytes} bytes") })]
    Memory {
        /// Size in bytes; `u64::MAX` if it does not fit 63 bits.
        nbytes: u64,
    },
}

details! {
    Problem {
        Input: NotMatrix, MissingWeight, WeightShape, Tokens, TokenIds, Positions, PastShape, StateShape, CacheMismatch;
        Unsupported: Dtype, TooLarge;
        Io: Threads, Memory;
    }
}

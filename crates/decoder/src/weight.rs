//! The weights of a decoder, by their roles.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0, for names and shapes.

/// A weight of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The token embeddings: `[vocab, dim]`.
    Embedding,
    /// The last norm: `[dim]`.
    Norm,
    /// The output matrix: `[vocab, dim]`.
    Output,
    /// A matrix or norm of a layer.
    Layer {
        /// The number of the layer.
        layer: u64,
        /// Which of its parts.
        part: Part,
    },
    /// The bias of a layer's matrix: as long as the matrix has rows.
    Bias {
        /// The number of the layer.
        layer: u64,
        /// Which of its parts.
        part: Part,
    },
}

/// The parts of a layer that have weights, in the order and with the names of Meta's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Queries: `[n_heads × head_dim, dim]`.
    Wq,
    /// Keys: `[n_kv_heads × head_dim, dim]`.
    Wk,
    /// Values: `[n_kv_heads × head_dim, dim]`.
    Wv,
    /// The output of attention: `[dim, n_heads × head_dim]`.
    Wo,
    /// The gate of the feed-forward layer: `[hidden, dim]`.
    W1,
    /// The last matrix of the feed-forward layer: `[dim, hidden]`.
    W2,
    /// The matrix next to the gate: `[hidden, dim]`.
    W3,
    /// The norm before attention: `[dim]`.
    AttentionNorm,
    /// The norm before the feed-forward layer: `[dim]`.
    FfnNorm,
}

impl Part {
    /// All parts, in their order.
    pub const ALL: [Self; 9] = [
        Self::Wq,
        Self::Wk,
        Self::Wv,
        Self::Wo,
        Self::W1,
        Self::W2,
        Self::W3,
        Self::AttentionNorm,
        Self::FfnNorm,
    ];
}

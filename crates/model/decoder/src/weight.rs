//! The weights of a decoder, by their roles.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0, for names and shapes.

/// A weight of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weight {
    /// The token embeddings: `[vocab, dim]`.
    Embedding,
    /// The last norm: `[dim]`.
    Norm,
    /// The bias of the last norm: `[dim]`.
    NormBias,
    /// The output matrix: `[vocab, dim]`.
    Output,
    /// A matrix or norm of a layer.
    Layer {
        /// The number of the layer.
        layer: u64,
        /// Which of its parts.
        part: Part,
    },
    /// The bias of a layer's matrix, as long as the matrix has rows, or of its norm.
    Bias {
        /// The number of the layer.
        layer: u64,
        /// Which of its parts.
        part: Part,
    },
    /// The norm of one head, where each has its own: `[head_dim]`.
    Head {
        /// The number of the layer.
        layer: u64,
        /// [`Part::QNorm`] or [`Part::KNorm`].
        part: Part,
        /// The number of the head.
        head: u64,
    },
    /// A matrix of an expert: its shape is the feed-forward layer's, with the width of an expert.
    Expert {
        /// The number of the layer.
        layer: u64,
        /// [`Part::W1`], [`Part::W2`], [`Part::W3`] or [`Part::W13`].
        part: Part,
        /// The number of the expert.
        expert: u64,
    },
    /// The bias of an expert's matrix.
    ExpertBias {
        /// The number of the layer.
        layer: u64,
        /// As in [`Weight::Expert`].
        part: Part,
        /// The number of the expert.
        expert: u64,
    },
}

/// The parts of a layer that have weights, in the order and with the names of Meta's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// The norm of queries: `[head_dim]` or `[n_heads × head_dim]`.
    QNorm,
    /// The norm of keys: `[head_dim]` or `[n_kv_heads × head_dim]`.
    KNorm,
    /// The norm after attention: `[dim]`.
    AttentionPostNorm,
    /// The norm after the feed-forward layer: `[dim]`.
    FfnPostNorm,
    /// The score of each query head that belongs to no token: `[n_heads]`.
    Sinks,
    /// The router of experts: `[experts, dim]`.
    Router,
    /// Gate and up of an expert in alternate rows, first a row of the gate: `[2 × hidden, dim]`.
    W13,
    /// The gate of the shared expert: `[hidden, dim]`.
    SharedW1,
    /// The last matrix of the shared expert: `[dim, hidden]`.
    SharedW2,
    /// The matrix next to the gate of the shared expert: `[hidden, dim]`.
    SharedW3,
    /// How much of the shared expert's result is used: `[1, dim]`.
    SharedGate,
}

impl Part {
    /// The parts that every LLaMA has, in their order.
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

    /// The parts that a layer can have, those of its experts aside, in the order of [`Decoder::weights`](crate::Decoder::weights).
    pub(crate) const IN_ORDER: [Self; 19] = [
        Self::Wq,
        Self::Wk,
        Self::Wv,
        Self::Wo,
        Self::W1,
        Self::W2,
        Self::W3,
        Self::AttentionNorm,
        Self::FfnNorm,
        Self::QNorm,
        Self::KNorm,
        Self::AttentionPostNorm,
        Self::FfnPostNorm,
        Self::Sinks,
        Self::Router,
        Self::SharedW1,
        Self::SharedW2,
        Self::SharedW3,
        Self::SharedGate,
    ];
}

impl Weight {
    /// Which part of a layer it is of.
    pub(crate) fn part(self) -> Option<Part> {
        match self {
            Self::Embedding | Self::Norm | Self::NormBias | Self::Output => None,
            Self::Layer { part, .. }
            | Self::Bias { part, .. }
            | Self::Head { part, .. }
            | Self::Expert { part, .. }
            | Self::ExpertBias { part, .. } => Some(part),
        }
    }

    /// The same of another part.
    pub(crate) fn with(mut self, other: Part) -> Self {
        if let Self::Layer { part, .. }
        | Self::Bias { part, .. }
        | Self::Head { part, .. }
        | Self::Expert { part, .. }
        | Self::ExpertBias { part, .. } = &mut self
        {
            *part = other;
        }
        self
    }
}

//! Weights of a decoder by their roles, and their shapes.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0, for names and shapes.

use crate::block::Block;
use crate::feed_forward::FeedForwardKind;

/// A weight of a decoder, by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weight {
    /// Token embeddings: `[vocab, dim]`.
    Embedding,
    /// Table of learned positions: `[offset + count, dim]`.
    Positions,
    /// Weight of the norm of the embeddings: `[dim]`.
    EmbeddingNorm,
    /// Bias of the norm of the embeddings: `[dim]`.
    EmbeddingNormBias,
    /// Weight of the last norm: `[dim]`.
    Norm,
    /// Bias of the last norm: `[dim]`.
    NormBias,
    /// Output matrix: `[vocab, dim]`.
    Output,
    /// Bias of the output matrix: `[vocab]`.
    OutputBias,
    /// Matrix or norm of a layer.
    Layer { layer: u64, part: LayerPart },
    /// Bias of a layer's matrix, with one element per row, or of a layer's norm.
    Bias { layer: u64, part: LayerPart },
    /// Norm of one head, in models with a norm for each head: `[head_dim]`.
    Head {
        layer: u64,
        /// Either [`LayerPart::QNorm`] or [`LayerPart::KNorm`].
        part: LayerPart,
        head: u64,
    },
    /// Matrix of an expert, with the shape of a feed-forward matrix and the width of an expert.
    Expert {
        layer: u64,
        /// One of [`LayerPart::W1`], [`LayerPart::W2`], [`LayerPart::W3`] and [`LayerPart::W13`].
        part: LayerPart,
        expert: u64,
    },
    /// Bias of an expert's matrix.
    ExpertBias {
        layer: u64,
        /// One of the parts of [`Weight::Expert`].
        part: LayerPart,
        expert: u64,
    },
}

/// Parts of a layer that have weights, in the order and with the names of Meta's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerPart {
    /// Query matrix: `[n_heads × head_dim, dim]`.
    Wq,
    /// Key matrix: `[n_kv_heads × head_dim, dim]`.
    Wk,
    /// Value matrix: `[n_kv_heads × head_dim, dim]`.
    Wv,
    /// Query, key and value matrices of each head of keys, one after the other:
    /// `[(n_heads + 2 × n_kv_heads) × head_dim, dim]`.
    Wqkv,
    /// Output matrix of attention: `[dim, n_heads × head_dim]`.
    Wo,
    /// Gate matrix of the feed-forward layer: `[hidden, dim]`.
    W1,
    /// Down matrix of the feed-forward layer: `[dim, hidden]`.
    W2,
    /// Up matrix of the feed-forward layer: `[hidden, dim]`.
    W3,
    /// Norm before attention: `[dim]`.
    AttentionNorm,
    /// Norm before the feed-forward layer: `[dim]`.
    FfnNorm,
    /// Norm of queries: `[head_dim]` or `[n_heads × head_dim]`.
    QNorm,
    /// Norm of keys: `[head_dim]` or `[n_kv_heads × head_dim]`.
    KNorm,
    /// Norm after attention: `[dim]`.
    AttentionPostNorm,
    /// Norm after the feed-forward layer: `[dim]`.
    FfnPostNorm,
    /// Attention sinks, the extra score of each query head: `[n_heads]`.
    Sinks,
    /// Router of the experts: `[experts, dim]`.
    Router,
    /// Gate and up matrices of an expert in alternating rows, starting with the gate: `[2 × hidden, dim]`.
    W13,
    /// Gate matrix of the shared expert: `[hidden, dim]`.
    SharedW1,
    /// Down matrix of the shared expert: `[dim, hidden]`.
    SharedW2,
    /// Up matrix of the shared expert: `[hidden, dim]`.
    SharedW3,
    /// Gate of the shared expert's result: `[1, dim]`.
    SharedGate,
    /// Bias of the experts' scores in the choice: `[experts]`.
    ChoiceBias,
    /// First number of xIELU, of which the factor above 0 is the softplus: `[1]`.
    XieluPositive,
    /// Second number of xIELU: `[1]`.
    XieluNegative,
    /// Queries, keys and values of `DeltaNet`: `[channels, dim]`.
    DeltaQkv,
    /// Gates of the results of `DeltaNet`: `[values, dim]`.
    DeltaZ,
    /// Step sizes of `DeltaNet`: `[value_heads, dim]`.
    DeltaB,
    /// Decays of `DeltaNet`: `[value_heads, dim]`.
    DeltaA,
    /// Both of the first, by head of keys: `[channels + values, dim]`.
    DeltaQkvz,
    /// Both of the last, by head of keys: `[2 × value_heads, dim]`.
    DeltaBa,
    /// Convolution of `DeltaNet`, with the present token last: `[channels, 1, kernel]`.
    DeltaConv,
    /// Logarithms of the decays: `[value_heads]`.
    DeltaLog,
    /// Bias of the decays: `[value_heads]`.
    DeltaBias,
    /// Norm of the results of a head of `DeltaNet`: `[value_dim]`.
    DeltaNorm,
    /// Output matrix of `DeltaNet`: `[dim, values]`.
    DeltaOut,
    /// Slope of xIELU at 0: one number without dimensions.
    XieluBeta,
    /// Largest exponent of xIELU, near 0: one number without dimensions.
    XieluEps,
}

impl LayerPart {
    /// Parts of every LLaMA layer, in order.
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

    /// Parts that a layer can have, except those of its experts, in the order of
    /// [`Decoder::weights`](crate::Decoder::weights).
    pub(crate) const IN_ORDER: [Self; 36] = [
        Self::Wq,
        Self::Wk,
        Self::Wv,
        Self::Wqkv,
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
        Self::ChoiceBias,
        Self::XieluPositive,
        Self::XieluNegative,
        Self::XieluBeta,
        Self::XieluEps,
        Self::DeltaQkv,
        Self::DeltaZ,
        Self::DeltaB,
        Self::DeltaA,
        Self::DeltaQkvz,
        Self::DeltaBa,
        Self::DeltaConv,
        Self::DeltaLog,
        Self::DeltaBias,
        Self::DeltaNorm,
        Self::DeltaOut,
    ];

    /// Returns a matrix that every dense feed-forward layer of a block has, and whose rows are its width.
    pub(crate) fn of_hidden(block: &Block) -> Self {
        if block.feed_forward == FeedForwardKind::Gated { Self::W1 } else { Self::W3 }
    }

    /// Returns true for a parameter of its module, whose name has no `.weight` at its end.
    pub(crate) fn is_bare(self) -> bool {
        matches!(
            self,
            Self::Sinks
                | Self::ChoiceBias
                | Self::XieluPositive
                | Self::XieluNegative
                | Self::XieluBeta
                | Self::XieluEps
                | Self::DeltaLog
                | Self::DeltaBias
        )
    }
}

impl Weight {
    /// Returns the layer and the part of it that has the weight; `None` for a weight outside of the layers.
    fn place(self) -> Option<(u64, LayerPart)> {
        match self {
            Self::Embedding
            | Self::Positions
            | Self::EmbeddingNorm
            | Self::EmbeddingNormBias
            | Self::Norm
            | Self::NormBias
            | Self::Output
            | Self::OutputBias => None,
            Self::Layer { layer, part, .. }
            | Self::Bias { layer, part, .. }
            | Self::Head { layer, part, .. }
            | Self::Expert { layer, part, .. }
            | Self::ExpertBias { layer, part, .. } => Some((layer, part)),
        }
    }

    pub(crate) fn part(self) -> Option<LayerPart> {
        Some(self.place()?.1)
    }

    pub(crate) fn layer(self) -> Option<u64> {
        Some(self.place()?.0)
    }

    /// Returns the same weight of another layer.
    pub(crate) fn with_layer(mut self, number: u64) -> Self {
        if let Self::Layer { layer, .. }
        | Self::Bias { layer, .. }
        | Self::Head { layer, .. }
        | Self::Expert { layer, .. }
        | Self::ExpertBias { layer, .. } = &mut self
        {
            *layer = number;
        }
        self
    }

    pub(crate) fn with_part(mut self, other: LayerPart) -> Self {
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

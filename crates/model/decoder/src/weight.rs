//! Weights of a decoder by their roles, and their shapes.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0, for names and shapes.

pub use families::LayerPart;

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
    /// Embeddings for each layer: `[vocab, layers × width]`.
    LayerEmbedding,
    /// Matrix from embeddings to the inputs of each layer: `[layers × width, dim]`.
    LayerProjection,
    /// Norm of the results of that matrix, by layer: `[width]`.
    LayerProjectionNorm,
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

/// Parts that a layer can have, except those of its experts, in the order of [`Decoder::weights`](crate::Decoder::weights).
pub(crate) const IN_ORDER: [LayerPart; 45] = [
    LayerPart::Wq,
    LayerPart::Wk,
    LayerPart::Wv,
    LayerPart::Wqkv,
    LayerPart::Wo,
    LayerPart::W1,
    LayerPart::W2,
    LayerPart::W3,
    LayerPart::AttentionNorm,
    LayerPart::FfnNorm,
    LayerPart::QNorm,
    LayerPart::KNorm,
    LayerPart::AttentionPostNorm,
    LayerPart::FfnPostNorm,
    LayerPart::Sinks,
    LayerPart::Router,
    LayerPart::SharedW1,
    LayerPart::SharedW2,
    LayerPart::SharedW3,
    LayerPart::SharedGate,
    LayerPart::ChoiceBias,
    LayerPart::XieluPositive,
    LayerPart::XieluNegative,
    LayerPart::XieluBeta,
    LayerPart::XieluEps,
    LayerPart::DeltaQkv,
    LayerPart::DeltaZ,
    LayerPart::DeltaB,
    LayerPart::DeltaA,
    LayerPart::DeltaQkvz,
    LayerPart::DeltaBa,
    LayerPart::DeltaConv,
    LayerPart::DeltaLog,
    LayerPart::DeltaBias,
    LayerPart::DeltaNorm,
    LayerPart::DeltaOut,
    LayerPart::DensePostNorm,
    LayerPart::ExpertsNorm,
    LayerPart::ExpertsPostNorm,
    LayerPart::RouterScale,
    LayerPart::ExpertScale,
    LayerPart::LayerInputGate,
    LayerPart::LayerInputOutput,
    LayerPart::LayerInputNorm,
    LayerPart::LayerScalar,
];

/// Returns a matrix that every dense feed-forward layer of a block has, and whose rows are its width.
pub(crate) fn of_hidden(block: &Block) -> LayerPart {
    if block.feed_forward == FeedForwardKind::Gated { LayerPart::W1 } else { LayerPart::W3 }
}

impl Weight {
    /// Returns the layer and the part of it that has the weight; `None` for a weight outside of the layers.
    fn place(self) -> Option<(u64, LayerPart)> {
        match self {
            Self::Embedding
            | Self::Positions
            | Self::EmbeddingNorm
            | Self::EmbeddingNormBias
            | Self::LayerEmbedding
            | Self::LayerProjection
            | Self::LayerProjectionNorm
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

    pub(crate) fn is_bias(self) -> bool {
        matches!(
            self,
            Self::EmbeddingNormBias
                | Self::NormBias
                | Self::OutputBias
                | Self::Bias { .. }
                | Self::ExpertBias { .. }
        )
    }

    pub(crate) fn part(self) -> Option<LayerPart> {
        Some(self.place()?.1)
    }

    pub(crate) fn layer(self) -> Option<u64> {
        Some(self.place()?.0)
    }

    /// Returns true for embeddings, and for matrices whose products are most of the work: those that llama.cpp quantizes. Routers and the
    /// gates of shared experts are not among them.
    pub fn is_quantized(self) -> bool {
        match self {
            Self::Embedding
            | Self::LayerEmbedding
            | Self::LayerProjection
            | Self::Output
            | Self::Expert { .. } => true,
            Self::Layer { part, .. } => match part {
                LayerPart::Wq
                | LayerPart::Wk
                | LayerPart::Wv
                | LayerPart::Wqkv
                | LayerPart::Wo
                | LayerPart::W1
                | LayerPart::W2
                | LayerPart::W3
                | LayerPart::W13
                | LayerPart::SharedW1
                | LayerPart::SharedW2
                | LayerPart::SharedW3
                | LayerPart::DeltaQkv
                | LayerPart::DeltaZ
                | LayerPart::DeltaB
                | LayerPart::DeltaA
                | LayerPart::DeltaQkvz
                | LayerPart::DeltaBa
                | LayerPart::DeltaOut
                | LayerPart::LayerInputGate
                | LayerPart::LayerInputOutput => true,
                LayerPart::AttentionNorm
                | LayerPart::FfnNorm
                | LayerPart::QNorm
                | LayerPart::KNorm
                | LayerPart::AttentionPostNorm
                | LayerPart::FfnPostNorm
                | LayerPart::Sinks
                | LayerPart::Router
                | LayerPart::SharedGate
                | LayerPart::ChoiceBias
                | LayerPart::XieluPositive
                | LayerPart::XieluNegative
                | LayerPart::XieluBeta
                | LayerPart::XieluEps
                | LayerPart::DeltaConv
                | LayerPart::DeltaLog
                | LayerPart::DeltaBias
                | LayerPart::DeltaNorm
                | LayerPart::DensePostNorm
                | LayerPart::ExpertsNorm
                | LayerPart::ExpertsPostNorm
                | LayerPart::RouterScale
                | LayerPart::ExpertScale
                | LayerPart::LayerInputNorm
                | LayerPart::LayerScalar => false,
            },
            _ => false,
        }
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

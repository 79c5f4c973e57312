//! Dimensions of the weights of a layer.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0 and the modeling files of Hugging Face's `transformers` 5.23.

use crate::block::{Block, HeadNormScope};
use crate::weight::LayerPart;

/// A size from which dimensions of weights are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeTerm {
    One,
    Dim,
    Head,
    Heads,
    KeyHeads,
    /// Total size of all query heads.
    Queries,
    /// Total size of all key heads, which is also that of the values.
    Keys,
    Hidden,
    Vocab,
    /// Rows of the embeddings beyond those of the vocabulary.
    OtherEmbeddings,
    /// Rows of the table of learned positions.
    Positions,
    Pairs,
    Experts,
    ExpertHidden,
    SharedHidden,
    /// Queries, keys and values of `DeltaNet`.
    Channels,
    DeltaHeads,
    /// Size of a value of `DeltaNet`.
    DeltaValue,
    /// Total size of all values of `DeltaNet`.
    DeltaValues,
    Kernel,
    /// Size of a head in layers without a window.
    WideHead,
    /// Total size of all query heads there.
    WideQueries,
    /// Total size of all key heads there.
    WideKeys,
    /// Size of the input of a layer.
    LayerInput,
    /// Size of the inputs of all layers.
    LayerInputs,
    /// Rows of the table of embeddings for each layer.
    LayerVocab,
}

/// Returns the sizes that add up to each dimension of a part of a layer.
pub(crate) fn shape(part: LayerPart, block: &Block) -> &'static [&'static [SizeTerm]] {
    let head_norm = block.head_norm;
    let projection = head_norm == Some(HeadNormScope::Projection);
    match part {
        LayerPart::Wq if block.gated_attention => {
            &[&[SizeTerm::Queries, SizeTerm::Queries], &[SizeTerm::Dim]]
        }
        LayerPart::Wq => &[&[SizeTerm::Queries], &[SizeTerm::Dim]],
        LayerPart::DeltaQkv => &[&[SizeTerm::Channels], &[SizeTerm::Dim]],
        LayerPart::DeltaZ => &[&[SizeTerm::DeltaValues], &[SizeTerm::Dim]],
        LayerPart::DeltaB | LayerPart::DeltaA => &[&[SizeTerm::DeltaHeads], &[SizeTerm::Dim]],
        LayerPart::DeltaQkvz => &[&[SizeTerm::Channels, SizeTerm::DeltaValues], &[SizeTerm::Dim]],
        LayerPart::DeltaBa => &[&[SizeTerm::DeltaHeads, SizeTerm::DeltaHeads], &[SizeTerm::Dim]],
        LayerPart::DeltaConv => &[&[SizeTerm::Channels], &[SizeTerm::One], &[SizeTerm::Kernel]],
        LayerPart::DeltaLog | LayerPart::DeltaBias => &[&[SizeTerm::DeltaHeads]],
        LayerPart::DeltaNorm => &[&[SizeTerm::DeltaValue]],
        LayerPart::DeltaOut => &[&[SizeTerm::Dim], &[SizeTerm::DeltaValues]],
        LayerPart::Wk | LayerPart::Wv => &[&[SizeTerm::Keys], &[SizeTerm::Dim]],
        LayerPart::Wqkv => &[&[SizeTerm::Queries, SizeTerm::Keys, SizeTerm::Keys], &[SizeTerm::Dim]],
        LayerPart::Wo => &[&[SizeTerm::Dim], &[SizeTerm::Queries]],
        LayerPart::W1 | LayerPart::W3 => &[&[SizeTerm::Hidden], &[SizeTerm::Dim]],
        LayerPart::W2 => &[&[SizeTerm::Dim], &[SizeTerm::Hidden]],
        LayerPart::W13 => &[&[SizeTerm::Hidden, SizeTerm::Hidden], &[SizeTerm::Dim]],
        LayerPart::AttentionNorm
        | LayerPart::FfnNorm
        | LayerPart::AttentionPostNorm
        | LayerPart::FfnPostNorm
        | LayerPart::DensePostNorm
        | LayerPart::ExpertsNorm
        | LayerPart::ExpertsPostNorm
        | LayerPart::RouterScale
        | LayerPart::LayerInputNorm => &[&[SizeTerm::Dim]],
        LayerPart::LayerInputGate => &[&[SizeTerm::LayerInput], &[SizeTerm::Dim]],
        LayerPart::LayerInputOutput => &[&[SizeTerm::Dim], &[SizeTerm::LayerInput]],
        LayerPart::QNorm if projection => &[&[SizeTerm::Queries]],
        LayerPart::KNorm if projection => &[&[SizeTerm::Keys]],
        LayerPart::QNorm if head_norm == Some(HeadNormScope::Heads) => {
            &[&[SizeTerm::Heads], &[SizeTerm::Head]]
        }
        LayerPart::KNorm if head_norm == Some(HeadNormScope::Heads) => {
            &[&[SizeTerm::KeyHeads], &[SizeTerm::Head]]
        }
        LayerPart::QNorm | LayerPart::KNorm => &[&[SizeTerm::Head]],
        LayerPart::Sinks => &[&[SizeTerm::Heads]],
        LayerPart::Router => &[&[SizeTerm::Experts], &[SizeTerm::Dim]],
        LayerPart::ChoiceBias | LayerPart::ExpertScale => &[&[SizeTerm::Experts]],
        LayerPart::XieluPositive | LayerPart::XieluNegative | LayerPart::LayerScalar => &[&[SizeTerm::One]],
        LayerPart::XieluBeta | LayerPart::XieluEps => &[],
        LayerPart::SharedW1 | LayerPart::SharedW3 => &[&[SizeTerm::SharedHidden], &[SizeTerm::Dim]],
        LayerPart::SharedW2 => &[&[SizeTerm::Dim], &[SizeTerm::SharedHidden]],
        LayerPart::SharedGate => &[&[SizeTerm::One], &[SizeTerm::Dim]],
    }
}

/// Returns the same for a matrix of an expert.
pub(crate) fn expert_dimensions(part: LayerPart) -> &'static [&'static [SizeTerm]] {
    match part {
        LayerPart::W2 => &[&[SizeTerm::Dim], &[SizeTerm::ExpertHidden]],
        LayerPart::W13 => &[&[SizeTerm::ExpertHidden, SizeTerm::ExpertHidden], &[SizeTerm::Dim]],
        _ => &[&[SizeTerm::ExpertHidden], &[SizeTerm::Dim]],
    }
}

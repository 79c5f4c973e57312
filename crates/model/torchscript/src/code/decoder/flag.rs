//! Flags of a decoder's text, which select the lines of the templates that a module needs.

use decoder::{Activation, Decoder, HeadNormScope, NormKind, NormPlace, RouterSoftmax};

use super::calling_convention::CallingConvention;
use super::lists::WeightLists;
use super::positions::RotaryPositions;
use crate::OnInvalidInput;

#[derive(Clone, Copy)]
pub(super) struct TextVariant<'d> {
    pub(super) decoder: &'d Decoder,
    pub(super) positions: &'d RotaryPositions,
    pub(super) lists: &'d WeightLists,
    /// True if any weight is float16.
    pub(super) has_float16: bool,
    pub(super) signature: CallingConvention,
}

/// Condition of a template line, which holds for some variants of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    // The signature.
    Dict,
    Positional,
    Returns,
    Raises,
    // Norms.
    NormBefore,
    NormAfter,
    Rms,
    PlusOne,
    LayerNorm,
    HeadNormScope,
    ProjectionNorm,
    LayerHeadNorm,
    // Positions and dtypes.
    Half,
    SeveralRopes,
    ListedFrequencies,
    Llama3,
    Magnitudes,
    LengthDependent,
    LongRope,
    Dynamic,
    PartialRotation,
    // Attention.
    SomeWindow,
    EveryWindow,
    ScoreScale,
    ScoreCap,
    Sinks,
    // Constants.
    EmbeddingScale,
    ResidualScale,
    LogitsScale,
    LogitsCap,
    // The feed-forward layer.
    Parallel,
    Silu,
    Gelu,
    GeluTanh,
    Clamped,
    FeedForward,
    Experts,
    SoftmaxBefore,
    SoftmaxAfter,
    Renormalised,
    Interleaved,
    Shared,
    SharedGate,
}

const FLAG_NAMES: [(&str, Flag); 43] = [
    ("dict", Flag::Dict),
    ("positional", Flag::Positional),
    ("returns", Flag::Returns),
    ("raises", Flag::Raises),
    ("norm before", Flag::NormBefore),
    ("norm after", Flag::NormAfter),
    ("rms", Flag::Rms),
    ("plus one", Flag::PlusOne),
    ("layer norm", Flag::LayerNorm),
    ("head norm", Flag::HeadNormScope),
    ("projection norm", Flag::ProjectionNorm),
    ("layer head norm", Flag::LayerHeadNorm),
    ("half", Flag::Half),
    ("ropes", Flag::SeveralRopes),
    ("listed", Flag::ListedFrequencies),
    ("llama3", Flag::Llama3),
    ("magnitudes", Flag::Magnitudes),
    ("length", Flag::LengthDependent),
    ("longrope", Flag::LongRope),
    ("dynamic", Flag::Dynamic),
    ("part", Flag::PartialRotation),
    ("some window", Flag::SomeWindow),
    ("every window", Flag::EveryWindow),
    ("score scale", Flag::ScoreScale),
    ("score cap", Flag::ScoreCap),
    ("sinks", Flag::Sinks),
    ("embedding scale", Flag::EmbeddingScale),
    ("residual scale", Flag::ResidualScale),
    ("logits scale", Flag::LogitsScale),
    ("logits cap", Flag::LogitsCap),
    ("parallel", Flag::Parallel),
    ("silu", Flag::Silu),
    ("gelu", Flag::Gelu),
    ("gelu tanh", Flag::GeluTanh),
    ("clamped", Flag::Clamped),
    ("feed forward", Flag::FeedForward),
    ("experts", Flag::Experts),
    ("softmax before", Flag::SoftmaxBefore),
    ("softmax after", Flag::SoftmaxAfter),
    ("renormalised", Flag::Renormalised),
    ("interleaved", Flag::Interleaved),
    ("shared", Flag::Shared),
    ("shared gate", Flag::SharedGate),
];

impl Flag {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        FLAG_NAMES.iter().find(|(known, _)| *known == name).map(|(_, flag)| *flag)
    }

    pub(super) fn holds(self, variant: TextVariant<'_>) -> bool {
        let TextVariant { decoder, positions, has_float16: has_half, signature, .. } = variant;
        let (block, windows) = (decoder.block(), decoder.windows());
        let (scales, experts) = (&block.scales, block.experts.as_ref());
        let mut layers = 0..decoder.n_layers();
        #[expect(clippy::float_cmp, reason = "a factor of exactly 1 changes nothing")]
        let changes = |factor: f64| factor != 1.0;
        match self {
            Self::Dict => matches!(signature, CallingConvention::Dict(_)),
            Self::Positional => signature == CallingConvention::Positional,
            Self::Returns => signature == CallingConvention::Dict(OnInvalidInput::Return),
            Self::Raises => signature == CallingConvention::Dict(OnInvalidInput::Raise),
            Self::NormBefore => block.norms != NormPlace::After,
            Self::NormAfter => block.norms != NormPlace::Before,
            Self::Rms => block.norm == NormKind::Rms,
            Self::PlusOne => block.norm == NormKind::RmsPlusOne,
            Self::LayerNorm => block.norm == NormKind::Layer,
            Self::HeadNormScope => {
                matches!(block.head_norm, Some(HeadNormScope::Head | HeadNormScope::EachHead))
            }
            Self::ProjectionNorm => block.head_norm == Some(HeadNormScope::Projection),
            Self::LayerHeadNorm => block.norm == NormKind::Layer && block.head_norm.is_some(),
            Self::Half => has_half,
            Self::SeveralRopes => positions.rope_count() > 1,
            Self::ListedFrequencies => positions.has_listed_frequencies(),
            Self::Llama3 => positions.llama3().is_some(),
            Self::Magnitudes => positions.has_magnitudes(),
            Self::LengthDependent => positions.has_length_dependent_rope(),
            Self::LongRope => positions.has_long_rope(),
            Self::Dynamic => positions.has_dynamic(),
            Self::PartialRotation => decoder.rotated() < decoder.head_dim(),
            Self::SomeWindow => layers.any(|layer| windows.window_of(layer).is_some()),
            Self::EveryWindow => layers.all(|layer| windows.window_of(layer).is_some()),
            Self::ScoreScale => block.scores.scale.is_some(),
            Self::ScoreCap => block.scores.soft_cap.is_some(),
            Self::Sinks => block.scores.sinks,
            Self::EmbeddingScale => changes(scales.embedding),
            Self::ResidualScale => changes(scales.residual),
            Self::LogitsScale => changes(scales.logits),
            Self::LogitsCap => scales.logits_soft_cap.is_some(),
            Self::Parallel => block.parallel,
            Self::Silu => block.activation == Activation::Silu,
            Self::Gelu => block.activation == Activation::Gelu,
            Self::GeluTanh => block.activation == Activation::GeluTanh,
            Self::Clamped => matches!(block.activation, Activation::ClampedSwiglu { .. }),
            Self::FeedForward => !layers.all(|layer| block.has_experts(layer)),
            Self::Experts => layers.any(|layer| block.has_experts(layer)),
            Self::SoftmaxBefore => experts.is_some_and(|it| it.softmax == RouterSoftmax::BeforeChoice),
            Self::SoftmaxAfter => experts.is_some_and(|it| it.softmax == RouterSoftmax::AfterChoice),
            Self::Renormalised => experts.is_some_and(|it| it.renormalised),
            Self::Interleaved => experts.is_some_and(|it| it.interleaved),
            Self::Shared => experts.is_some_and(|it| it.shared.is_some()),
            Self::SharedGate => experts.and_then(|it| it.shared).is_some_and(|shared| shared.gated),
        }
    }
}

//! Flags of a decoder's text, which select the lines of the templates that a module needs.

use decoder::{Activation, Decoder, HeadNorm, NormKind, NormPlace, Softmax};

use super::lists::Lists;
use super::positions::Positions;
use super::signature::Signature;
use crate::Errors;

/// Properties of a module that select its text.
#[derive(Clone, Copy)]
pub(super) struct Variant<'d> {
    pub(super) decoder: &'d Decoder,
    pub(super) positions: &'d Positions,
    pub(super) lists: &'d Lists,
    /// True if any weight is float16.
    pub(super) has_half: bool,
    pub(super) signature: Signature,
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
    HeadNorm,
    ProjectionNorm,
    LayerHeadNorm,
    // Positions and dtypes.
    Half,
    Ropes,
    Listed,
    Llama3,
    Magnitudes,
    Length,
    LongRope,
    Dynamic,
    Part,
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

/// Names of the flags in templates.
const NAMES: [(&str, Flag); 43] = [
    ("dict", Flag::Dict),
    ("positional", Flag::Positional),
    ("returns", Flag::Returns),
    ("raises", Flag::Raises),
    ("norm before", Flag::NormBefore),
    ("norm after", Flag::NormAfter),
    ("rms", Flag::Rms),
    ("plus one", Flag::PlusOne),
    ("layer norm", Flag::LayerNorm),
    ("head norm", Flag::HeadNorm),
    ("projection norm", Flag::ProjectionNorm),
    ("layer head norm", Flag::LayerHeadNorm),
    ("half", Flag::Half),
    ("ropes", Flag::Ropes),
    ("listed", Flag::Listed),
    ("llama3", Flag::Llama3),
    ("magnitudes", Flag::Magnitudes),
    ("length", Flag::Length),
    ("longrope", Flag::LongRope),
    ("dynamic", Flag::Dynamic),
    ("part", Flag::Part),
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
    /// Returns the flag with a name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, flag)| *flag)
    }

    /// Returns true if the flag holds for a variant of the text.
    pub(super) fn holds(self, variant: Variant<'_>) -> bool {
        let Variant { decoder, positions, has_half, signature, .. } = variant;
        let (block, windows) = (decoder.block(), decoder.windows());
        let (scales, experts) = (&block.scales, block.experts.as_ref());
        let mut layers = 0..decoder.n_layers();
        #[expect(clippy::float_cmp, reason = "a factor of exactly 1 changes nothing")]
        let changes = |factor: f64| factor != 1.0;
        match self {
            Self::Dict => matches!(signature, Signature::Dict(_)),
            Self::Positional => signature == Signature::Positional,
            Self::Returns => signature == Signature::Dict(Errors::Return),
            Self::Raises => signature == Signature::Dict(Errors::Raise),
            Self::NormBefore => block.norms != NormPlace::After,
            Self::NormAfter => block.norms != NormPlace::Before,
            Self::Rms => block.norm == NormKind::Rms,
            Self::PlusOne => block.norm == NormKind::RmsPlusOne,
            Self::LayerNorm => block.norm == NormKind::Layer,
            Self::HeadNorm => matches!(block.head_norm, Some(HeadNorm::Head | HeadNorm::EachHead)),
            Self::ProjectionNorm => block.head_norm == Some(HeadNorm::Projection),
            Self::LayerHeadNorm => block.norm == NormKind::Layer && block.head_norm.is_some(),
            Self::Half => has_half,
            Self::Ropes => positions.rows() > 1,
            Self::Listed => positions.are_listed(),
            Self::Llama3 => positions.llama3().is_some(),
            Self::Magnitudes => positions.have_magnitudes(),
            Self::Length => positions.depend_on_length(),
            Self::LongRope => positions.has_long(),
            Self::Dynamic => positions.has_dynamic(),
            Self::Part => decoder.rotated() < decoder.head_dim(),
            Self::SomeWindow => layers.any(|layer| windows.at(layer).is_some()),
            Self::EveryWindow => layers.all(|layer| windows.at(layer).is_some()),
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
            Self::SoftmaxBefore => experts.is_some_and(|it| it.softmax == Softmax::BeforeChoice),
            Self::SoftmaxAfter => experts.is_some_and(|it| it.softmax == Softmax::AfterChoice),
            Self::Renormalised => experts.is_some_and(|it| it.renormalised),
            Self::Interleaved => experts.is_some_and(|it| it.interleaved),
            Self::Shared => experts.is_some_and(|it| it.shared.is_some()),
            Self::SharedGate => experts.and_then(|it| it.shared).is_some_and(|shared| shared.gated),
        }
    }
}

//! What the configuration class of an architecture has for keys that `config.json` omits, and which other keys it reads.
//!
//! Facts: the configuration files of Hugging Face's `transformers` 5.23.

use crate::block::Activation;
use crate::rope::THETA;

/// What a configuration class has for keys that `config.json` omits, and which other keys it reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    /// The keys that it has besides those of all classes, whether or not they change the result.
    pub(crate) own: &'static [&'static str],
    /// The key of the epsilon of the norms, and its value.
    pub(crate) norm_eps: (&'static str, f64),
    /// The RoPE base.
    pub(crate) theta: f64,
    /// `max_position_embeddings`.
    pub(crate) context: f64,
    /// `original_max_position_embeddings`.
    pub(crate) old_context: Option<f64>,
    pub(crate) head_dim: Option<u64>,
    /// The part of each head that is rotated; `None` means all, whatever `config.json` says.
    pub(crate) partial: Option<f64>,
    pub(crate) tied: bool,
    /// The key of the activation, and its value.
    pub(crate) activation: (&'static str, Activation),
    /// The kinds of scaled positions.
    pub(crate) scalings: &'static [(&'static str, Kind)],
    /// Whether positions may differ between kinds of layers, so that the architecture reads them itself.
    pub(crate) has_layer_ropes: bool,
}

/// How positions are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unscaled,
    Linear,
    Dynamic,
    Yarn,
    LongRope,
    Llama3,
}

/// What most classes have.
pub(crate) const CLASS: Class = Class {
    own: &[],
    norm_eps: ("rms_norm_eps", 1e-6),
    theta: THETA,
    context: 2048.0,
    old_context: None,
    head_dim: None,
    partial: None,
    tied: false,
    activation: ("hidden_act", Activation::Silu),
    scalings: &[
        ("default", Kind::Unscaled),
        ("linear", Kind::Linear),
        ("dynamic", Kind::Dynamic),
        ("yarn", Kind::Yarn),
        ("longrope", Kind::LongRope),
        ("llama3", Kind::Llama3),
    ],
    has_layer_ropes: false,
};

/// The activations by their names in `transformers`.
pub(crate) const ACTIVATIONS: &[(&str, Activation)] = &[
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("gelu", Activation::Gelu),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_new", Activation::GeluTanh),
];

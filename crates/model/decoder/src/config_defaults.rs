//! Defaults of an architecture's configuration class for keys that `config.json` omits, and the keys that it reads.
//!
//! Facts: the configuration files of Hugging Face's `transformers` 5.23.

use crate::feed_forward::Activation;
use crate::rope::THETA;

/// Defaults of a configuration class for keys that `config.json` omits, and the keys that it reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigDefaults {
    /// Keys of this class besides those of all classes; some of them do not change the result.
    pub(crate) own_keys: &'static [&'static str],
    /// Keys of other classes, each with the key of this one for the same value.
    pub(crate) aliases: &'static [(&'static str, &'static str)],
    /// Keys that this class has under another name only.
    pub(crate) renamed: &'static [(&'static str, &'static str)],
    /// Key of the norm epsilon, and its default.
    pub(crate) norm_eps: (&'static str, f64),
    /// Default RoPE base (theta).
    pub(crate) theta: f64,
    /// Default of `max_position_embeddings`, in tokens.
    pub(crate) context: f64,
    /// Default of `original_max_position_embeddings`, in tokens.
    pub(crate) original_context: Option<f64>,
    pub(crate) head_dim: Option<u64>,
    /// Default fraction of each head that is rotated; `None` means that the class rotates whole heads and `config.json` must
    /// not state less.
    pub(crate) partial_rotary: Option<f64>,
    pub(crate) tied: bool,
    /// Key of the activation, and its default.
    pub(crate) activation: (&'static str, Activation),
    /// Names of the supported kinds of RoPE scaling.
    pub(crate) scalings: &'static [(&'static str, RopeScalingKind)],
    /// True if RoPE may differ between kinds of layers, so that the architecture reads it itself.
    pub(crate) has_layer_ropes: bool,
    /// True if rotary embeddings pair the two halves of a head; false if they pair adjacent dimensions.
    pub(crate) rotates_halves: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RopeScalingKind {
    Unscaled,
    Linear,
    Dynamic,
    Yarn,
    LongRope,
    Llama3,
    Proportional,
}

pub(crate) const DEFAULTS: ConfigDefaults = ConfigDefaults {
    own_keys: &[],
    aliases: &[],
    renamed: &[],
    norm_eps: ("rms_norm_eps", 1e-6),
    theta: THETA,
    context: 2048.0,
    original_context: None,
    head_dim: None,
    partial_rotary: None,
    tied: false,
    activation: ("hidden_act", Activation::Silu),
    scalings: &[
        ("default", RopeScalingKind::Unscaled),
        ("linear", RopeScalingKind::Linear),
        ("dynamic", RopeScalingKind::Dynamic),
        ("yarn", RopeScalingKind::Yarn),
        ("longrope", RopeScalingKind::LongRope),
        ("llama3", RopeScalingKind::Llama3),
    ],
    has_layer_ropes: false,
    rotates_halves: true,
};

/// Kinds of RoPE scaling of models that give each section of a head positions of its own. For text, all are the same.
pub(crate) const SECTIONED: &[(&str, RopeScalingKind)] = &[
    ("mrope", RopeScalingKind::Unscaled),
    ("default", RopeScalingKind::Unscaled),
    ("linear", RopeScalingKind::Linear),
    ("dynamic", RopeScalingKind::Dynamic),
    ("yarn", RopeScalingKind::Yarn),
    ("longrope", RopeScalingKind::LongRope),
    ("llama3", RopeScalingKind::Llama3),
];

/// Activations by their names in `transformers`.
pub(crate) const ACTIVATIONS: &[(&str, Activation)] = &[
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("gelu", Activation::Gelu),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_new", Activation::GeluTanh),
    ("relu", Activation::Relu),
    ("relu2", Activation::ReluSquared),
    ("xielu", Activation::Xielu),
];

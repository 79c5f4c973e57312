//! Kinds of feed-forward layers, and their activations.
//!
//! Facts: `activations.py` and the modeling files of Hugging Face's `transformers` 5.23.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::param_error::{MakeParamError, check_positive};

/// A kind of feed-forward layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FeedForwardKind {
    /// `down(act(gate(x)) × up(x))`.
    #[default]
    Gated,
    /// `down(act(up(x)))`.
    Plain,
}

/// Activation `act` of a feed-forward layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Activation {
    /// `SiLU`: `x × sigmoid(x)`.
    #[default]
    Silu,
    /// GELU with the error function.
    Gelu,
    /// GELU approximated with tanh.
    GeluTanh,
    /// The larger of `x` and 0.
    Relu,
    /// The square of the larger of `x` and 0.
    ReluSquared,
    /// `gate × sigmoid(alpha × gate) × (up + 1)`, with `gate` at most `limit`, and `up` from `-limit` to `limit`.
    ClampedSwiglu {
        /// Slope of the sigmoid.
        alpha: f64,
        /// Limit of both gate and up.
        limit: f64,
    },
    /// xIELU, whose four numbers are weights of each layer: `p × x² + beta × x` above 0, and
    /// `(expm1(min(x, eps)) − x) × n + beta × x` below, with `p` the softplus of the first, and `n` that of the second plus
    /// `beta`.
    Xielu,
}

impl FeedForwardKind {
    pub(crate) fn check(
        self,
        wrong: MakeParamError<'_>,
        activation: Activation,
        has_experts: bool,
    ) -> Result<()> {
        let is_plain = self == Self::Plain;
        if is_plain && has_experts {
            return Err(wrong("num_experts", &"a number", "no experts, which have gates".to_owned()));
        }
        match activation {
            Activation::ClampedSwiglu { alpha, limit } if !is_plain => {
                check_positive(wrong, &[("swiglu_alpha", alpha), ("swiglu_limit", limit)])
            }
            Activation::Xielu if is_plain => Ok(()),
            Activation::ClampedSwiglu { .. } | Activation::Xielu => {
                let (one, other) =
                    if is_plain { ("without a gate", "with") } else { ("with a gate", "without") };
                let found = format!("{activation:?} {one}");
                Err(wrong("hidden_act", &found, format!("one of layers {other} one")))
            }
            _ => Ok(()),
        }
    }
}

//! Rotary positions: their base, and how their wavelengths are stretched.
//!
//! Facts: `modeling_rope_utils.py` in Hugging Face's `transformers` 5.23, `apply_scaling` in Meta's
//! `llama-models` 0.3.0.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

/// Rotary positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// The base (theta) of the wavelengths.
    pub theta: f64,
    /// How wavelengths are stretched, if they are.
    pub scaling: Option<Scaling>,
}

/// How wavelengths are stretched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Scaling {
    /// As in Llama 3.1: long ones.
    Llama3(Llama3),
    /// All by one factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// All, by a base that grows with the number of tokens once they are more than `old`.
    Dynamic {
        /// The factor.
        factor: f64,
        /// The number of tokens that the model was first trained on.
        old: f64,
    },
    /// As in `YaRN`: long ones, and cosines and sines become larger.
    Yarn(Yarn),
    /// As in `LongRoPE`: each by its own factor.
    LongRope(LongRope),
}

/// Wavelengths longer than `old / low` tokens are multiplied by `factor`, those shorter than `old / high` are
/// unchanged, and those in between are interpolated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Llama3 {
    /// How much longer the longest wavelengths become.
    pub factor: f64,
    /// `low_freq_factor` in config.json.
    pub low: f64,
    /// `high_freq_factor` in config.json; larger than `low`.
    pub high: f64,
    /// The number of tokens that the model was first trained on.
    pub old: f64,
}

/// Pairs that turn fewer than `slow` times within `old` tokens are stretched by `factor`, those that turn more than `fast`
/// times are unchanged, and those in between are interpolated by their number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Yarn {
    /// How much longer the longest wavelengths become.
    pub factor: f64,
    /// `beta_fast` in config.json.
    pub fast: f64,
    /// `beta_slow` in config.json.
    pub slow: f64,
    /// The number of tokens that the model was first trained on.
    pub old: f64,
    /// What cosines and sines are multiplied with.
    pub magnitude: f64,
    /// Whether the numbers of the first and last pair that are interpolated are rounded.
    pub truncate: bool,
}

/// Wavelengths are multiplied by one list of factors, or by another once there are more than `old` tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongRope {
    /// The factors for at most `old` tokens, one for each pair of numbers that is rotated.
    pub short: Vec<f64>,
    /// The factors for more tokens.
    pub long: Vec<f64>,
    /// The number of tokens that the model was first trained on.
    pub old: f64,
    /// What cosines and sines are multiplied with.
    pub magnitude: f64,
}

/// The base of models that do not name one.
pub(crate) const THETA: f64 = 10_000.0;

impl Llama3 {
    /// Scaling by `factor` with the constants of Meta's code.
    pub fn by(factor: f64) -> Self {
        Self { factor, low: 1.0, high: 4.0, old: 8192.0 }
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers that f64 lacks are larger than any head or text")]
impl Rope {
    /// How far each pair of numbers turns from one token to the next, in radians, in a sequence of `tokens` tokens of which
    /// `rotated` numbers of each head are rotated: `[rotated / 2]`.
    pub fn frequencies(&self, rotated: u64, tokens: u64) -> Vec<f64> {
        let mut theta = self.theta;
        let dim = rotated as f64;
        if let Some(Scaling::Dynamic { factor, old }) = self.scaling {
            let tokens = (tokens as f64).max(old);
            theta *= (factor * tokens / old - (factor - 1.0)).powf(dim / (dim - 2.0));
        }
        let pairs = 0..rotated / 2;
        let plain = pairs.map(|pair| theta.powf(-(pair.saturating_mul(2) as f64) / dim));
        plain.enumerate().map(|(pair, f)| self.stretched(pair, f, dim, tokens as f64)).collect()
    }

    fn stretched(&self, pair: usize, f: f64, dim: f64, tokens: f64) -> f64 {
        match &self.scaling {
            None | Some(Scaling::Dynamic { .. }) => f,
            Some(Scaling::Linear { factor }) => f / factor,
            Some(Scaling::Llama3(Llama3 { factor, low, high, old })) => {
                let kept = ((old * f / TAU - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - kept) * f / factor + kept * f
            }
            Some(Scaling::Yarn(yarn)) => {
                let stretched = yarn.stretched(pair as f64, dim, self.theta);
                f / yarn.factor * stretched + f * (1.0 - stretched)
            }
            Some(Scaling::LongRope(LongRope { short, long, old, .. })) => {
                let factors = if tokens > *old { long } else { short };
                factors.get(pair).map_or(f, |factor| f / factor)
            }
        }
    }

    /// What cosines and sines are multiplied with.
    pub fn magnitude(&self) -> f64 {
        match &self.scaling {
            Some(Scaling::Yarn(yarn)) => yarn.magnitude,
            Some(Scaling::LongRope(long)) => long.magnitude,
            _ => 1.0,
        }
    }

    /// Whether frequencies depend on the number of tokens, so that those of earlier tokens change as a text grows.
    pub fn depends_on_length(&self) -> bool {
        matches!(self.scaling, Some(Scaling::Dynamic { .. } | Scaling::LongRope(_)))
    }
}

impl Yarn {
    /// How much the wavelength of a pair is stretched: 0 is not at all, 1 is by the whole factor.
    fn stretched(&self, pair: f64, dim: f64, theta: f64) -> f64 {
        // The number of the pair that turns so often within the tokens of the training.
        let number = |turns: f64| dim * (self.old / (turns * TAU)).ln() / (2.0 * theta.ln());
        let (mut first, mut last) = (number(self.fast), number(self.slow));
        if self.truncate {
            (first, last) = (first.floor(), last.ceil());
        }
        (first, last) = (first.max(0.0), last.min(dim - 1.0));
        let span = if first.total_cmp(&last).is_eq() { 0.001 } else { last - first };
        ((pair - first) / span).clamp(0.0, 1.0)
    }
}

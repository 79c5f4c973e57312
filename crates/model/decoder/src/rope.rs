//! Rotary embeddings (RoPE): their base, and the scaling of their wavelengths.
//!
//! Facts: `modeling_rope_utils.py` in Hugging Face's `transformers` 5.23, `apply_scaling` in Meta's `llama-models` 0.3.0.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

/// Parameters of a rotary embedding (RoPE).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Base (theta) of the wavelengths.
    pub theta: f64,
    /// Scaling of the wavelengths; `None` keeps them.
    pub scaling: Option<RopeScaling>,
}

/// A method of scaling RoPE wavelengths for longer contexts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum RopeScaling {
    /// Llama 3.1: stretches long wavelengths.
    Llama3(Llama3),
    /// Stretches all wavelengths by one factor.
    Linear { factor: f64 },
    /// Dynamic NTK: stretches all wavelengths by a base that grows with the number of tokens beyond `old`.
    Dynamic {
        factor: f64,
        /// Original context length, in tokens.
        old: f64,
    },
    /// `YaRN`: stretches long wavelengths, and scales cosines and sines up.
    Yarn(Yarn),
    /// `LongRoPE`: stretches each wavelength by its own factor.
    LongRope(LongRope),
    /// Turns the first part of the pairs and stretches their wavelengths by one factor; the other pairs do not turn.
    Proportional {
        /// Part of the pairs, at most 1.
        part: f64,
        factor: f64,
    },
}

/// Scaling of Llama 3.1: wavelengths longer than `old / low` tokens are multiplied by `factor`, those shorter than
/// `old / high` are unchanged, and those in between are interpolated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Llama3 {
    /// Factor of the longest wavelengths.
    pub factor: f64,
    /// Number of turns within `old` tokens below which the whole factor applies: `low_freq_factor` in config.json.
    pub low: f64,
    /// Number of turns within `old` tokens above which wavelengths are unchanged: `high_freq_factor` in config.json, larger
    /// than `low`.
    pub high: f64,
    /// Original context length, in tokens.
    pub old: f64,
}

/// Scaling of `YaRN`: pairs that turn fewer than `slow` times within `old` tokens are stretched by `factor`, those that turn
/// more than `fast` times are unchanged, and those in between are interpolated by their index.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Yarn {
    /// Factor of the longest wavelengths.
    pub factor: f64,
    /// Number of turns above which pairs are unchanged: `beta_fast` in config.json.
    pub fast: f64,
    /// Number of turns below which pairs are stretched by `factor`: `beta_slow` in config.json.
    pub slow: f64,
    /// Original context length, in tokens.
    pub old: f64,
    /// Factor for cosines and sines.
    pub magnitude: f64,
    /// True if the bounds of the interpolated range of pairs are rounded to whole indices.
    pub truncate: bool,
}

/// Scaling of `LongRoPE`: wavelengths are multiplied by one list of factors, or by another for more than `old` tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongRope {
    /// Factors for at most `old` tokens: `[rotated / 2]`.
    pub short: Vec<f64>,
    /// Factors for more than `old` tokens: `[rotated / 2]`.
    pub long: Vec<f64>,
    /// Original context length, in tokens.
    pub old: f64,
    /// Factor for cosines and sines.
    pub magnitude: f64,
}

/// Default RoPE base (theta).
pub(crate) const THETA: f64 = 10_000.0;

impl Llama3 {
    /// Returns scaling by `factor` with the other constants of Meta's code.
    pub fn with_factor(factor: f64) -> Self {
        Self { factor, low: 1.0, high: 4.0, old: 8192.0 }
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers that f64 lacks are larger than any head or text")]
impl Rope {
    /// Returns the rotation of each pair from one token to the next, in radians: `[rotated / 2]`. `rotated` is the number of
    /// rotary dimensions per head, and `tokens` the length of the sequence.
    pub fn frequencies(&self, rotated: u64, tokens: u64) -> Vec<f64> {
        let mut theta = self.theta;
        let dim = rotated as f64;
        if let Some(RopeScaling::Dynamic { factor, old }) = self.scaling {
            let tokens = (tokens as f64).max(old);
            theta *= libm::pow(factor * tokens / old - (factor - 1.0), dim / (dim - 2.0));
        }
        let pairs = 0..rotated / 2;
        let plain = pairs.map(|pair| libm::pow(theta, -(pair.saturating_mul(2) as f64) / dim));
        plain.enumerate().map(|(pair, f)| self.scaled_frequency(pair, f, dim, tokens as f64)).collect()
    }

    fn scaled_frequency(&self, pair: usize, f: f64, dim: f64, tokens: f64) -> f64 {
        match &self.scaling {
            None | Some(RopeScaling::Dynamic { .. }) => f,
            Some(RopeScaling::Linear { factor }) => f / factor,
            Some(RopeScaling::Proportional { part, factor }) => {
                if (pair as f64) < (part * dim / 2.0).floor() { f / factor } else { 0.0 }
            }
            Some(RopeScaling::Llama3(Llama3 { factor, low, high, old })) => {
                let kept = ((old * f / TAU - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - kept) * f / factor + kept * f
            }
            Some(RopeScaling::Yarn(yarn)) => {
                let stretched = yarn.stretch_fraction(pair as f64, dim, self.theta);
                f / yarn.factor * stretched + f * (1.0 - stretched)
            }
            Some(RopeScaling::LongRope(LongRope { short, long, old, .. })) => {
                let factors = if tokens > *old { long } else { short };
                factors.get(pair).map_or(f, |factor| f / factor)
            }
        }
    }

    /// Returns the factor for cosines and sines.
    pub fn magnitude(&self) -> f64 {
        match &self.scaling {
            Some(RopeScaling::Yarn(yarn)) => yarn.magnitude,
            Some(RopeScaling::LongRope(long)) => long.magnitude,
            _ => 1.0,
        }
    }

    /// Returns true if frequencies depend on the number of tokens, so that those of earlier tokens change as the sequence
    /// grows.
    pub fn depends_on_length(&self) -> bool {
        matches!(self.scaling, Some(RopeScaling::Dynamic { .. } | RopeScaling::LongRope(_)))
    }
}

impl Yarn {
    /// Returns the fraction of stretching for a pair: 0 keeps its wavelength, 1 applies the whole factor.
    fn stretch_fraction(&self, pair: f64, dim: f64, theta: f64) -> f64 {
        // Index of the pair that makes `turns` full turns within the original context length.
        let number = |turns: f64| dim * libm::log(self.old / (turns * TAU)) / (2.0 * libm::log(theta));
        let (mut first, mut last) = (number(self.fast), number(self.slow));
        if self.truncate {
            (first, last) = (first.floor(), last.ceil());
        }
        (first, last) = (first.max(0.0), last.min(dim - 1.0));
        // The two are compared as numbers: `ceil` makes -0.0 of a small negative number, which equals 0.0.
        let span = if last - first == 0.0 { 0.001 } else { last - first };
        ((pair - first) / span).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected fractions are those of `find_correction_range` and `linear_ramp_factor` in `transformers` 5.23.
    #[test]
    fn yarn_with_an_original_context_shorter_than_a_turn_has_fractions() {
        let fractions = |old: f64, slow: f64, truncate: bool| {
            let yarn = Yarn { factor: 4.0, fast: 32.0, slow, old, magnitude: 1.0, truncate };
            [0.0, 1.0, 7.0].map(|pair| yarn.stretch_fraction(pair, 16.0, 10_000.0).abs().to_string())
        };
        // The range from 0 to -0.0 has one index: the pair 0 is unchanged, and those after it are stretched.
        for (old, slow) in [(6.0, 1.0), (12.0, 2.0), (TAU, 1.0)] {
            assert_eq!(fractions(old, slow, true), ["0", "1", "1"], "{old} tokens, {slow} turns");
        }
        // A range of one index need not be 0, and a range ends at the number of dimensions minus 1.
        let fraction = |fast: f64, slow: f64, theta: f64, pair: f64| {
            let yarn = Yarn { factor: 4.0, fast, slow, old: 4096.0, magnitude: 1.0, truncate: true };
            yarn.stretch_fraction(pair, 8.0, theta).to_string()
        };
        assert_eq!([2.0, 3.0].map(|pair| fraction(5.0, 32.0, 10_000.0, pair)), ["0", "1"]);
        assert_eq!([2.0, 3.0].map(|pair| fraction(200.0, 1.0, 10.0, pair)), ["0", "0.2"]);
        // A range that ends before the pair 0 stretches none.
        assert_eq!(fractions(1.0, 1.0, true), ["0"; 3]);
        assert_eq!(fractions(6.0, 1.0, false), ["0"; 3]);
    }

    /// Compares a rope of 8 rotary dimensions with the frequencies and the magnitude that `transformers` 5.23 computes.
    fn check(scaling: RopeScaling, tokens: u64, frequencies: [f64; 4], magnitude: f64) {
        let rope = Rope { theta: 10_000.0, scaling: Some(scaling) };
        let found = rope.frequencies(8, tokens);
        assert_eq!(found.len(), 4);
        for (found, expected) in found.iter().zip(frequencies).chain([(&rope.magnitude(), magnitude)]) {
            assert!((found - expected).abs() <= 1e-14 * expected, "{found} is not {expected}: {rope:?}");
        }
    }

    #[test]
    fn scaled_frequencies_are_those_of_transformers() {
        check(RopeScaling::Linear { factor: 4.0 }, 0, [0.25, 0.025, 0.0025, 0.000_25], 1.0);
        let dynamic = || RopeScaling::Dynamic { factor: 2.0, old: 32.0 };
        let grown = [1.0, 0.057_536_958_266_478_8, 0.003_310_501_566_558_523_6, 0.000_190_476_190_476_190_48];
        check(dynamic(), 100, grown, 1.0);
        check(dynamic(), 20, [1.0, 0.1, 0.01, 0.001], 1.0);
        let yarn = |truncate| {
            let magnitude = 1.5;
            RopeScaling::Yarn(Yarn { factor: 4.0, fast: 16.0, slow: 1.0, old: 256.0, magnitude, truncate })
        };
        check(yarn(true), 0, [1.0, 0.0625, 0.0025, 0.000_25], 1.5);
        check(yarn(false), 0, [1.0, 0.062_998_295_793_255_97, 0.0025, 0.000_25], 1.5);
        // The range begins after the first pair: at 1.3 or 1, and ends at 2.8 or 3.
        let later = |truncate| {
            let magnitude = 1.5;
            RopeScaling::Yarn(Yarn { factor: 4.0, fast: 32.0, slow: 1.0, old: 4096.0, magnitude, truncate })
        };
        check(later(true), 0, [1.0, 0.1, 0.00625, 0.000_25], 1.5);
        check(later(false), 0, [1.0, 0.1, 0.006_556_971_521_129_435, 0.000_25], 1.5);
        let long = || {
            let (short, long) = (vec![1.0, 1.5, 2.0, 3.0], vec![1.0, 2.0, 4.0, 8.0]);
            RopeScaling::LongRope(LongRope { short, long, old: 32.0, magnitude: 1.25 })
        };
        check(long(), 32, [1.0, 0.066_666_666_666_666_67, 0.005, 0.000_333_333_333_333_333_3], 1.25);
        check(long(), 33, [1.0, 0.05, 0.0025, 0.000_125], 1.25);
        let llama3 = Llama3 { factor: 8.0, low: 1.0, high: 4.0, old: 100.0 };
        check(RopeScaling::Llama3(llama3), 0, [1.0, 0.029_753_525_068_469_47, 0.001_25, 0.000_125], 1.0);
    }

    #[test]
    fn only_two_kinds_of_scaling_depend_on_the_length() {
        let long = LongRope { short: vec![1.0], long: vec![2.0], old: 32.0, magnitude: 1.0 };
        for (scaling, depends) in [
            (None, false),
            (Some(RopeScaling::Linear { factor: 2.0 }), false),
            (Some(RopeScaling::Llama3(Llama3::with_factor(8.0))), false),
            (Some(RopeScaling::Dynamic { factor: 2.0, old: 32.0 }), true),
            (Some(RopeScaling::LongRope(long)), true),
        ] {
            assert_eq!(Rope { theta: 100.0, scaling }.depends_on_length(), depends);
        }
    }
}

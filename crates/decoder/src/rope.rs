//! Rotary positions: their base, and how Llama 3.1 stretches long wavelengths.
//!
//! Facts: `modeling_rope_utils.py` in Hugging Face's `transformers` 5.23, `apply_scaling` in Meta's
//! `llama-models` 0.3.0.

/// Rotary positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// The base (theta) of the wavelengths.
    pub theta: f64,
    /// How long wavelengths are stretched, if they are.
    pub scaling: Option<Scaling>,
}

/// Wavelengths longer than `old / low` tokens are multiplied by `factor`, those shorter than `old / high` are
/// unchanged, and those in between are interpolated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// How much longer the longest wavelengths become.
    pub factor: f64,
    /// `low_freq_factor` in config.json.
    pub low: f64,
    /// `high_freq_factor` in config.json; larger than `low`.
    pub high: f64,
    /// The number of tokens that the model was first trained on.
    pub old: f64,
}

/// The base of models that do not name one.
pub(crate) const THETA: f64 = 10_000.0;

impl Scaling {
    /// Scaling by `factor` with the constants of Meta's code.
    pub fn by(factor: f64) -> Self {
        Self { factor, low: 1.0, high: 4.0, old: 8192.0 }
    }
}

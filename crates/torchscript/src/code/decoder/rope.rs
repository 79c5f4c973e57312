//! Rotary positions: their base, and how Llama 3.1 stretches long wavelengths.
//!
//! Facts: `modeling_rope_utils.py` and `RotaryEmbeddingConfigMixin` in Hugging Face's `transformers` 5.23,
//! `apply_scaling` in Meta's `llama-models` 0.3.0.

use serde_json::Value;

use super::config::Config;
use crate::{Error, Result};

/// Rotary positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::code) struct Rope {
    /// The base of the wavelengths.
    pub(in crate::code) theta: f64,
    pub(in crate::code) scaling: Option<Scaling>,
}

/// Wavelengths longer than `old / low` tokens are `factor` times as long, those shorter than `old / high`
/// as they were, and those between are between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::code) struct Scaling {
    pub(in crate::code) factor: f64,
    pub(in crate::code) low: f64,
    pub(in crate::code) high: f64,
    /// Tokens that the model was first trained on.
    pub(in crate::code) old: f64,
}

impl Scaling {
    /// With the constants of Meta's code.
    pub(in crate::code) fn by(factor: f64) -> Self {
        Self { factor, low: 1.0, high: 4.0, old: 8192.0 }
    }
}

/// The key of [`Scaling::old`].
const OLD: &str = "original_max_position_embeddings";

/// The base of models that do not say one.
pub(in crate::code) const THETA: f64 = 10_000.0;

impl Rope {
    /// What config.json says: `rope_scaling`, else `rope_parameters`, with `rope_theta` in it or beside it.
    pub(super) fn of(config: &Config) -> Result<Self> {
        let theta = Self::theta(config)?;
        let within = Self::within(config)?;
        for part in [Some(config), within.as_ref()].into_iter().flatten() {
            if part.number("partial_rotary_factor")?.is_some_and(|factor| factor < 1.0) {
                return Err(part.unknown("partial_rotary_factor"));
            }
        }
        let scaling = within.map(|within| Self::scaling(config, &within)).transpose()?.flatten();
        Ok(Self { theta: theta.unwrap_or(THETA), scaling })
    }

    /// The base that config.json says.
    pub(super) fn theta(config: &Config) -> Result<Option<f64>> {
        let within = Self::within(config)?;
        match within.map(|within| within.number("rope_theta")).transpose()?.flatten() {
            Some(theta) => Ok(Some(theta)),
            None => config.number("rope_theta"),
        }
    }

    /// The key of the object that says how positions are scaled.
    pub(super) fn key(config: &Config) -> Option<&'static str> {
        let filled = |key: &&str| config.get(key).is_some_and(|value| *value != serde_json::json!({}));
        ["rope_scaling", "rope_parameters"].into_iter().find(filled)
    }

    fn within(config: &Config) -> Result<Option<Config>> {
        Self::key(config).map(|key| config.object(key)).transpose()
    }

    /// How positions are scaled, and the key that says it.
    pub(super) fn kind(within: &Config) -> Result<(&'static str, Option<&str>)> {
        let key = if within.get("rope_type").is_some() { "rope_type" } else { "type" };
        Ok((key, within.text(key)?))
    }

    fn scaling(config: &Config, within: &Config) -> Result<Option<Scaling>> {
        let (key, kind) = Self::kind(within)?;
        match kind {
            None if within.values().any(Value::is_object) => Err(within.unknown("rope_type")),
            None | Some("default") => Ok(None),
            Some("llama3") => {
                let number = |key: &'static str| {
                    within
                        .number(key)?
                        .ok_or_else(|| Error::MissingKey { file: config.file, key: within.path(key) })
                };
                let old = match (config.number(OLD)?, within.number(OLD)?) {
                    (Some(old), _) | (None, Some(old)) => Some(old),
                    (None, None) => config.number("max_position_embeddings")?,
                };
                let old = old.map_or_else(|| number(OLD), Ok)?;
                let scaling = Scaling {
                    factor: number("factor")?,
                    low: number("low_freq_factor")?,
                    high: number("high_freq_factor")?,
                    old,
                };
                if scaling.high <= scaling.low {
                    let expected = format!("more than low_freq_factor {}", scaling.low);
                    return Err(within.wrong("high_freq_factor", &scaling.high, expected));
                }
                Ok(Some(scaling))
            }
            Some(other) => {
                Err(within.wrong(key, &format!("{other:?}"), "\"default\" or \"llama3\"".to_owned()))
            }
        }
    }
}

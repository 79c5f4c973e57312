//! Hyperparameters that the caller gives because no document states them.

use std::fmt::Debug;

use crate::{Error, HyperparameterKind, Result};

/// Hyperparameters that the caller gives. They fill in values that the document omits; a value that differs from the
/// document's is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Number of query heads.
    pub n_heads: Option<u64>,
    /// RoPE base (theta) of the model.
    pub rope_theta: Option<f64>,
    /// Factor by which Llama 3.1 and 3.2 stretch long wavelengths.
    pub rope_factor: Option<f64>,
    /// Epsilon of the norms.
    pub norm_eps: Option<f64>,
}

impl Overrides {
    /// Returns each hyperparameter with its value as text, or `None` if the caller does not give it.
    pub fn numbers(&self) -> [(HyperparameterKind, Option<String>); 4] {
        [
            (HyperparameterKind::Heads, self.n_heads.map(number_text)),
            (HyperparameterKind::RopeTheta, self.rope_theta.map(number_text)),
            (HyperparameterKind::RopeFactor, self.rope_factor.map(number_text)),
            (HyperparameterKind::NormEps, self.norm_eps.map(number_text)),
        ]
    }

    /// Returns true if the caller gives no hyperparameter.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the number of the document, or else that of the caller.
///
/// # Errors
/// Returns an error if both are present and differ.
pub(crate) fn reconcile<T: Copy + PartialEq + Debug>(
    fact: HyperparameterKind,
    file: &'static str,
    given: Option<T>,
    found: Option<T>,
) -> Result<Option<T>> {
    match (given, found) {
        (Some(given), Some(found)) if given != found => {
            Err(Error::Contradiction { fact, given: number_text(given), file, found: number_text(found) })
        }
        _ => Ok(found.or(given)),
    }
}

/// Formats a number as a person types it, without a trailing `.0`.
pub(crate) fn number_text(number: impl Debug) -> String {
    let text = format!("{number:?}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

//! Hyperparameters that the caller gives because no document states them.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::{HyperparameterKind, Problem, Result};

/// Hyperparameters that the caller gives. They fill in values that the document omits; a value that differs from the
/// document's is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
pub struct Overrides {
    /// Number of query heads, if params.json or config.json omits it
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", allow_negative_numbers = true))]
    pub n_heads: Option<u64>,
    /// RoPE base (theta), if the document omits it: 10000 in Llama 1 and 2, 500000 in Llama 3
    #[cfg_attr(feature = "cli", arg(long, value_name = "BASE", allow_negative_numbers = true))]
    pub rope_theta: Option<f64>,
    /// RoPE scaling factor, if the document omits it: 8 in Llama 3.1, 32 in Llama 3.2
    #[cfg_attr(feature = "cli", arg(long, value_name = "FACTOR", allow_negative_numbers = true))]
    pub rope_factor: Option<f64>,
    /// Epsilon of the norms, if the document omits it, such as 1e-5
    #[cfg_attr(feature = "cli", arg(long, value_name = "EPS", allow_negative_numbers = true))]
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

    /// Checks that each number can be one of a model.
    ///
    /// # Errors
    /// The name of one that cannot, and what is expected.
    pub fn check(&self) -> std::result::Result<(), (&'static str, &'static str)> {
        if self.n_heads == Some(0) {
            return Err(("n_heads", "expected a whole number above 0"));
        }
        let numbers =
            [("rope_theta", self.rope_theta), ("rope_factor", self.rope_factor), ("norm_eps", self.norm_eps)];
        let is_wrong = |number: f64| !(number.is_finite() && number > 0.0);
        match numbers.into_iter().find(|(_, number)| number.is_some_and(is_wrong)) {
            Some((name, _)) => Err((name, "expected a number above 0")),
            None => Ok(()),
        }
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
            Err(Problem::Contradiction { fact, given: number_text(given), file, found: number_text(found) }
                .into())
        }
        _ => Ok(found.or(given)),
    }
}

/// Formats a number as a person types it, without a trailing `.0`.
pub(crate) fn number_text(number: impl Debug) -> String {
    let text = format!("{number:?}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

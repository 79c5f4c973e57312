//! Numbers that the caller gives because no document has them.

use std::fmt::Debug;

use crate::{Error, Fact, Result};

/// Numbers that the caller gives. They fill in what the document omits; a number that differs from the
/// document's is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Given {
    /// The number of query heads.
    pub n_heads: Option<u64>,
    /// The RoPE base (theta).
    pub rope_theta: Option<f64>,
    /// The factor by which Llama 3.1 and 3.2 stretch long wavelengths.
    pub rope_factor: Option<f64>,
    /// The epsilon of the norms.
    pub norm_eps: Option<f64>,
}

impl Given {
    /// Each fact that can be given, with its number as text if it is given.
    pub fn numbers(&self) -> [(Fact, Option<String>); 4] {
        [
            (Fact::Heads, self.n_heads.map(number_text)),
            (Fact::RopeTheta, self.rope_theta.map(number_text)),
            (Fact::RopeFactor, self.rope_factor.map(number_text)),
            (Fact::NormEps, self.norm_eps.map(number_text)),
        ]
    }

    /// Whether nothing is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The number in the document, or else the one that is given.
///
/// # Errors
/// When there are both and they differ.
pub(crate) fn reconcile<T: Copy + PartialEq + Debug>(
    fact: Fact,
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

/// A number as a person types it.
pub(crate) fn number_text(number: impl Debug) -> String {
    let text = format!("{number:?}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

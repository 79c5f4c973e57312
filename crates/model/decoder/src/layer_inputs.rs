//! Inputs of each layer besides the rows of the one before: embeddings of the tokens for each layer, and a projection of their
//! embeddings.
//!
//! Facts: `get_per_layer_inputs` and `project_per_layer_inputs` of `Gemma4TextModel` in `transformers` 5.23.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::param_error::MakeParamError;

/// Inputs of each layer: `(norm(P × embedding / sqrt(dim)) + table[token] × sqrt(width)) / sqrt(2)`. A layer ends with
/// `h + norm(O × (act(G × h) × input))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerInputs {
    /// Size of the input of a layer.
    pub width: u64,
    /// Rows of the table of embeddings.
    pub vocab: u64,
}

/// Maximum width: many times that of any model.
const WIDTH_MAX: u64 = 1 << 16;

impl LayerInputs {
    /// Returns the factor of the projected embeddings of a model with rows of `dim` numbers.
    #[expect(clippy::cast_precision_loss, reason = "numbers that f64 lacks are larger than any model")]
    pub fn projection_factor(dim: u64) -> f64 {
        1.0 / (dim as f64).sqrt()
    }

    /// Returns the factor of the embeddings for each layer.
    pub fn embedding_factor(&self) -> f64 {
        rounded_sqrt(self.width)
    }

    pub(crate) fn check(&self, wrong: MakeParamError<'_>) -> Result<()> {
        if (1..=WIDTH_MAX).contains(&self.width) {
            return Ok(());
        }
        Err(wrong("hidden_size_per_layer_input", &self.width, format!("1 to {WIDTH_MAX}")))
    }
}

/// Returns the square root of a width, rounded to float32 as in `transformers`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "transformers rounds it too"
)]
pub(crate) fn rounded_sqrt(dim: u64) -> f64 {
    f64::from((dim as f64).sqrt() as f32)
}

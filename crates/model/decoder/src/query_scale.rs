//! Factor of queries that grows with the position.
//!
//! Facts: `get_llama_4_attn_scale` of `modeling_ministral3.py` in `transformers` 5.23.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::param_error::{MakeParamError, check_positive};

/// Factor of rotated queries: `1 + beta × ln(1 + floor(position / old))`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryScale {
    pub beta: f64,
    /// Original context length, in tokens.
    pub old: f64,
}

impl QueryScale {
    pub(crate) fn check(self, wrong: MakeParamError<'_>) -> Result<()> {
        check_positive(wrong, &[("original_max_position_embeddings", self.old)])?;
        if self.beta.is_finite() {
            return Ok(());
        }
        Err(wrong("llama_4_scaling_beta", &self.beta, "a number".to_owned()))
    }
}

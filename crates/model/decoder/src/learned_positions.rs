//! Positions as a table of weights that are added to the embeddings.
//!
//! Facts: `modeling_gpt2.py` and `modeling_opt.py` in `transformers` 5.23.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::param_error::MakeParamError;

/// A table with a row for each position, [`Weight::Positions`](crate::Weight::Positions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedPositions {
    /// Number of positions, and so of tokens that a text may have.
    pub count: u64,
    /// Rows before that of the first position.
    pub offset: u64,
}

impl LearnedPositions {
    pub(crate) fn check(self, wrong: MakeParamError<'_>) -> Result<()> {
        if self.count > 0 && self.offset < self.count.saturating_add(8) {
            return Ok(());
        }
        Err(wrong("max_position_embeddings", &self.count, "at least 1".to_owned()))
    }
}

//! Attention of two kinds of layers: those with a window, and those without one, whose heads have other sizes. The last layers may
//! use the keys and values of earlier ones.
//!
//! Facts: `Gemma4TextAttention` and `kv_sharing_modes` in `transformers` 5.23.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::param_error::MakeParamError;

/// Attention whose layers without a window have heads of their own sizes. All values are normalised by head, without a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixedHeads {
    /// Size of a head in layers without a window, an even number.
    pub head_dim: u64,
    /// Heads of keys and values in layers without a window.
    pub kv_heads: u64,
    /// True if layers without a window have no matrix for values: these are the keys before their norm.
    pub keys_are_values: bool,
    /// First of the layers that use the keys and values of the last earlier layer of their kind; the number of layers if none does.
    pub first_shared: u64,
    /// True if these layers have feed-forward layers of twice the width.
    pub doubles_hidden: bool,
}

/// Maximum size of a head: a hundred times that of any model.
const HEAD_DIM_MAX: u64 = 1 << 16;

impl MixedHeads {
    /// Checks the sizes of heads without a window, in a model with `n_heads` query heads, whose key is `n_heads_key`.
    pub(crate) fn check(&self, wrong: MakeParamError<'_>, n_heads_key: &str, n_heads: u64) -> Result<()> {
        if !(2..=HEAD_DIM_MAX).contains(&self.head_dim) || !self.head_dim.is_multiple_of(2) {
            let expected = format!("an even number from 2 to {HEAD_DIM_MAX}");
            return Err(wrong("global_head_dim", &self.head_dim, expected));
        }
        if n_heads.checked_rem(self.kv_heads) != Some(0) {
            let expected = format!("a divisor of {n_heads_key} {n_heads}");
            return Err(wrong("num_global_key_value_heads", &self.kv_heads, expected));
        }
        Ok(())
    }
}

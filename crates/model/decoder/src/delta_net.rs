//! Gated `DeltaNet`: layers without attention, of which each head has a state that every token decays and corrects.
//!
//! Facts: `Qwen3NextGatedDeltaNet` and `Qwen3_5GatedDeltaNet` in `transformers` 5.23.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::param_error::MakeParamError;

/// Layers of gated `DeltaNet`: a causal convolution of queries, keys and values, and a state of each head, a matrix that maps
/// keys to values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaNet {
    /// Heads of queries and keys; a divisor of `value_heads`.
    pub key_heads: u64,
    /// Heads of values, and so of states.
    pub value_heads: u64,
    /// Size of a query and a key.
    pub key_dim: u64,
    /// Size of a value.
    pub value_dim: u64,
    /// Number of tokens that the convolution reads, the present one included.
    pub kernel: u64,
    /// True if two matrices have all projections, by head of keys: [`LayerPart::DeltaQkvz`](crate::LayerPart::DeltaQkvz)
    /// and [`LayerPart::DeltaBa`](crate::LayerPart::DeltaBa).
    pub fused: bool,
    /// One flag per layer: true for `DeltaNet`, false for attention.
    pub layers: Vec<bool>,
}

/// Sizes of the states of all layers for one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaSizes {
    /// Number of layers with states.
    pub layers: u64,
    /// Channels of the convolution.
    pub channels: u64,
    /// Tokens before the present one that the convolution reads.
    pub taps: u64,
    /// Number of heads.
    pub heads: u64,
    /// Rows of a head's state.
    pub key_dim: u64,
    /// Columns of a head's state.
    pub value_dim: u64,
}

/// Maximum of each size: many times that of any model. States are allocated for them.
const SIZE_MAX: u64 = 1 << 16;

impl DeltaNet {
    /// Returns true for a layer of `DeltaNet`.
    pub fn has(&self, layer: u64) -> bool {
        usize::try_from(layer).ok().and_then(|layer| self.layers.get(layer)) == Some(&true)
    }

    /// Returns the number of channels of the convolution.
    pub fn channels(&self) -> u64 {
        let keys = self.key_heads.saturating_mul(self.key_dim);
        keys.saturating_mul(2).saturating_add(self.values())
    }

    /// Returns the size of all values of a token.
    pub fn values(&self) -> u64 {
        self.value_heads.saturating_mul(self.value_dim)
    }

    /// Returns the sizes of the states.
    pub fn sizes(&self) -> DeltaSizes {
        DeltaSizes {
            layers: self.layers.iter().filter(|is| **is).count() as u64,
            channels: self.channels(),
            taps: self.kernel.saturating_sub(1),
            heads: self.value_heads,
            key_dim: self.key_dim,
            value_dim: self.value_dim,
        }
    }

    pub(crate) fn check(&self, wrong: MakeParamError<'_>, n_layers: u64) -> Result<()> {
        for (key, size, least) in [
            ("linear_num_key_heads", self.key_heads, 1),
            ("linear_num_value_heads", self.value_heads, 1),
            ("linear_key_head_dim", self.key_dim, 1),
            ("linear_value_head_dim", self.value_dim, 1),
            ("linear_conv_kernel_dim", self.kernel, 2),
        ] {
            if !(least..=SIZE_MAX).contains(&size) {
                return Err(wrong(key, &size, format!("{least} to {SIZE_MAX}")));
            }
        }
        if !self.value_heads.is_multiple_of(self.key_heads) {
            let expected = format!("a multiple of linear_num_key_heads {}", self.key_heads);
            return Err(wrong("linear_num_value_heads", &self.value_heads, expected));
        }
        if self.layers.len() as u64 != n_layers {
            let expected = format!("one entry for each of {n_layers} layers");
            return Err(wrong("layer_types", &format!("a list of {}", self.layers.len()), expected));
        }
        if self.layers.contains(&true) && self.layers.contains(&false) {
            return Ok(());
        }
        let expected = "both \"linear_attention\" and \"full_attention\"".to_owned();
        Err(wrong("layer_types", &"of one kind", expected))
    }
}

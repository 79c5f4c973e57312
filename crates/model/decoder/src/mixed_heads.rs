//! Attention of two kinds of layers: those with a window, and those without one, whose heads have other sizes. The last layers may
//! use the keys and values of earlier ones.
//!
//! Facts: `Gemma4TextAttention` and `kv_sharing_modes` in `transformers` 5.23.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::block::{Block, HeadNormScope, NormKind, NormPlace};
use crate::param_error::MakeParamError;
use crate::rope::Rope;
use crate::sizes::Decoder;
use crate::validate::HyperparameterCheck;

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

/// Sizes of the cached keys and values of one kind of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLayers {
    /// Number of layers with keys and values of their own.
    pub layers: u64,
    /// Number of heads of keys and values.
    pub kv_heads: u64,
    /// Size of a head.
    pub head_dim: u64,
}

/// Maximum size of a head: a hundred times that of any model.
const HEAD_DIM_MAX: u64 = 1 << 16;

impl MixedHeads {
    pub(crate) fn check(&self, wrong: MakeParamError<'_>, all: &HyperparameterCheck<'_>) -> Result<()> {
        if !(2..=HEAD_DIM_MAX).contains(&self.head_dim) || !self.head_dim.is_multiple_of(2) {
            let expected = format!("an even number from 2 to {HEAD_DIM_MAX}");
            return Err(wrong("global_head_dim", &self.head_dim, expected));
        }
        if all.n_heads.checked_rem(self.kv_heads) != Some(0) {
            let expected = format!("a divisor of {} {}", all.keys.n_heads, all.n_heads);
            return Err(wrong("num_global_key_value_heads", &self.kv_heads, expected));
        }
        let has_window = |layer: &u64| all.windows.window_of(*layer).is_some();
        let shared = || self.first_shared..all.n_layers;
        let own = |window: bool| (0..self.first_shared).any(|layer| has_window(&layer) == window);
        let is_complete = |window| own(window) || !shared().any(|layer| has_window(&layer) == window);
        if self.first_shared > all.n_layers || !is_complete(true) || !is_complete(false) {
            let found = all.n_layers.saturating_sub(self.first_shared);
            let expected =
                "a number that leaves a layer of each kind with keys and values of its own".to_owned();
            return Err(wrong("num_kv_shared_layers", &found, expected));
        }
        if all.n_layers.checked_sub(1).is_none_or(|last| has_window(&last)) {
            let expected = "\"full_attention\" in the last layer".to_owned();
            return Err(wrong("layer_types", &"\"sliding_attention\"", expected));
        }
        if has_plain_attention(all.block) && has_two_ropes(all) {
            return Ok(());
        }
        let expected =
            "attention with norms of each head, and a rotary embedding of whole heads for each kind of layer";
        Err(wrong("layer_types", &"attention of another kind", expected.to_owned()))
    }
}

/// Returns true if attention is of the only kind that may have heads of two sizes.
fn has_plain_attention(block: &Block) -> bool {
    let Block { head_norm, head_norm_last, fused_heads, qkv_limit, query_scale, scores, .. } = block;
    *head_norm == Some(HeadNormScope::Head)
        && block.norm == NormKind::Rms
        && block.norms == NormPlace::Both
        && !(*head_norm_last
            || *fused_heads
            || block.gated_attention
            || block.parallel
            || block.adds_to_norms)
        && qkv_limit.is_none()
        && query_scale.is_none()
        && block.delta_net.is_none()
        && block.alibi.is_none()
        && !scores.sinks
}

/// Returns true if the first rotary embedding is that of layers without a window, and the second one that of the others.
fn has_two_ropes(all: &HyperparameterCheck<'_>) -> bool {
    let is_of_kind = |(layer, rope): (u64, &Option<usize>)| {
        *rope == Some(usize::from(all.windows.window_of(layer).is_some()))
    };
    let of_layers = all.rope_of_layer.unwrap_or_default();
    of_layers.len() as u64 == all.n_layers
        && (0..).zip(of_layers).all(is_of_kind)
        && all.ropes.len() == 2
        && all.rotated == all.head_dim
        && !all.ropes.iter().any(Rope::depends_on_length)
}

impl Decoder {
    /// Returns the sizes of heads in layers without a window, if they are others.
    fn wide(&self, layer: u64) -> Option<&MixedHeads> {
        self.block().mixed_heads.as_ref().filter(|_| self.windows().window_of(layer).is_none())
    }

    /// Returns the size of a head in a layer.
    pub fn head_dim_of(&self, layer: u64) -> u64 {
        self.wide(layer).map_or_else(|| self.head_dim(), |mixed| mixed.head_dim)
    }

    /// Returns the number of heads of keys and values in a layer.
    pub fn n_kv_heads_of(&self, layer: u64) -> u64 {
        self.wide(layer).map_or_else(|| self.n_kv_heads(), |mixed| mixed.kv_heads)
    }

    /// Returns the number of rotary dimensions per head that turn with one of the rotary embeddings.
    pub fn rotated_by(&self, rope: usize) -> u64 {
        let mixed = self.block().mixed_heads.filter(|_| rope == 0);
        mixed.map_or_else(|| self.rotated(), |mixed| mixed.head_dim)
    }

    /// Returns true if a layer uses the keys and values of an earlier one.
    pub fn shares_keys(&self, layer: u64) -> bool {
        self.block().mixed_heads.is_some_and(|mixed| layer >= mixed.first_shared)
    }

    /// Returns true if a layer has feed-forward layers of twice the width.
    pub fn doubles_hidden(&self, layer: u64) -> bool {
        self.block().mixed_heads.is_some_and(|mixed| mixed.doubles_hidden) && self.shares_keys(layer)
    }

    /// Returns true if the values of a layer are its keys before their norm.
    pub fn has_keys_as_values(&self, layer: u64) -> bool {
        self.wide(layer).is_some_and(|mixed| mixed.keys_are_values)
    }

    /// Returns for each layer the one whose keys and values it uses, which may be itself.
    pub fn key_layers(&self) -> Vec<u64> {
        let mut last = [0; 2];
        let source = |layer| {
            let [with, without] = &mut last;
            let last = if self.windows().window_of(layer).is_some() { with } else { without };
            if !self.shares_keys(layer) {
                *last = layer;
            }
            *last
        };
        (0..self.n_layers()).map(source).collect()
    }

    /// Returns the sizes of the cached keys and values: of all layers, or of those without a window and of those with one.
    pub fn cache_layers(&self) -> (CacheLayers, Option<CacheLayers>) {
        let (kv_heads, head_dim) = (self.n_kv_heads(), self.head_dim());
        let block = self.block();
        let Some(mixed) = block.mixed_heads else {
            let layers = (0..self.n_layers()).filter(|layer| !block.has_delta_net(*layer)).count() as u64;
            return (CacheLayers { layers, kv_heads, head_dim }, None);
        };
        let own = || 0..mixed.first_shared.min(self.n_layers());
        let near = own().filter(|layer| self.windows().window_of(*layer).is_some()).count() as u64;
        let layers = own().count() as u64;
        let far = CacheLayers {
            layers: layers.saturating_sub(near),
            kv_heads: mixed.kv_heads,
            head_dim: mixed.head_dim,
        };
        (far, (near > 0).then_some(CacheLayers { layers: near, kv_heads, head_dim }))
    }
}
